"""The SHA-256 of every file of a backup, written with it and compared when it is restored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pyarrow as pa

from quacklake.core.storage import Store
from quacklake.errors import CorruptFileError

NAME = "checksums"
_SCHEMA = pa.schema([("path", pa.string()), ("sha256", pa.string())])
_BLOCK = 1 << 20


def sha256_of(store: Store, path: str) -> str:
    """Return the hash of a file."""
    digest = hashlib.sha256()
    with store.open_input(path) as source:
        while block := source.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def check(store: Store, path: str, sha256: str | None) -> None:
    """Raise ``CorruptFileError`` when a file is not what was backed up; None is for a hash that is not known."""
    if sha256 is not None and sha256_of(store, path) != sha256:
        raise damaged(store, path)


def damaged(store: Store, path: str) -> CorruptFileError:
    """Return the error for a file whose bytes have changed."""
    return CorruptFileError(
        f"{store.url(path)} of the backup has changed", hint="use another backup; nothing was restored from this file"
    )


def write(store: Store, folder: str, sums: Mapping[str, str]) -> str:
    """Write the hashes of a backup, and return the hash of that file."""
    path = f"{folder}{NAME}.arrow"
    with store.open_output(path) as sink, pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_table(pa.table({"path": list(sums), "sha256": list(sums.values())}, _SCHEMA))
    return sha256_of(store, path)


def read(store: Store, folder: str, sha256: str | None) -> dict[str, str]:
    """Return the hashes of a backup by path; none for one that was made without. Raise ``CorruptFileError``."""
    if not sha256:
        return {}
    path = f"{folder}{NAME}.arrow"
    check(store, path, sha256)
    with store.open_input(path) as source, pa.ipc.open_stream(source) as reader:
        table = reader.read_all()
    return dict(zip(table.column("path").to_pylist(), table.column("sha256").to_pylist(), strict=True))
