"""The objects that move between the layers."""

from __future__ import annotations

import dataclasses

import pytest

from quacklake.core.format import objects
from quacklake.core.format.objects import DataFile, DeleteFile

DATA = DataFile(1, 2, 3, None, "f.parquet", True, 10, 100, encryption_key="c2VjcmV0")
DELETE = DeleteFile(1, 2, 1, 3, None, "d.parquet", True, "parquet", 1, 50, encryption_key="c2VjcmV0")


@pytest.mark.parametrize("file", [DATA, DELETE])
def test_an_encryption_key_is_never_shown(file: DataFile | DeleteFile) -> None:
    assert file.encryption_key == "c2VjcmV0"
    assert "c2VjcmV0" not in repr(file) + str(file)


@pytest.mark.parametrize("file", [DATA, DELETE])
def test_objects_do_not_change(file: DataFile | DeleteFile) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        file.path = "other"  # type: ignore[misc]


def test_the_reserved_field_ids_are_those_of_the_format() -> None:
    assert objects.RESERVED_FIELDS == {
        2147483540: "_ducklake_internal_row_id",
        2147483539: "_ducklake_internal_snapshot_id",
        2147483646: "file_path",
        2147483645: "pos",
    }
