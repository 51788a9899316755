"""A backup folder that was copied or renamed by hand is a separate backup."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import CorruptFileError


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", {"a": list(range(30))})
        lake.backup(tmp_path / "place")
        table.overwrite({"a": list(range(100))})
        lake.expire_snapshots(keep_last=1)
        lake.backup(tmp_path / "place")
    return tmp_path / "place"


def names(place: Path) -> list[str]:
    return [info.id for info in quacklake.backups(place)]


def restored(place: Path, tmp_path: Path, name: str) -> int:
    url = f"sqlite:///{tmp_path}/{name}.db"
    with quacklake.restore_backup(place, url, tmp_path / f"copy-{name}", backup=name) as lake:
        return lake.table("t").count()


@pytest.mark.parametrize("name", ["9999-keep", "0000-keep"])
def test_a_prune_keeps_what_a_copy_of_a_backup_needs(name: str, place: Path, tmp_path: Path) -> None:
    old, new = names(place)
    shutil.copytree(place / "backups" / new, place / "backups" / name)
    report = quacklake.prune_backups(place, keep_last=1)
    assert (len(report.backups), len(report.kept)) == (2, 1)
    assert old in report.backups
    assert tuple(names(place)) == report.kept
    assert restored(place, tmp_path, report.kept[0]) == 100


def test_the_newest_is_the_one_made_last_whatever_its_folder_is_called(place: Path, tmp_path: Path) -> None:
    old, new = names(place)
    (place / "backups" / old).rename(place / "backups" / "9999-first")
    assert names(place) == ["9999-first", new]
    assert restored(place, tmp_path, "9999-first") == 30
    assert quacklake.prune_backups(place, keep_last=1).kept == (new,)


def test_a_manifest_without_a_time_is_an_error(place: Path) -> None:
    path = place / "backups" / names(place)[0] / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"time": "yesterday"}))
    with pytest.raises(CorruptFileError):
        quacklake.prune_backups(place, keep_last=1)
