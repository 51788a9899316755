"""Files of this machine: their first bytes, what they are, and their hash."""

from __future__ import annotations

import hashlib
from pathlib import Path

from quacklake.errors import InputError

_HEAD = 4096
_MAGIC = b"PAR1"


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file. Raise ``InputError`` for one that cannot be read."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory", hint=f"name its files: {path}/*.csv")
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, by its name or by its first and last bytes."""
    if path.suffix.lower() == ".parquet":
        return True
    with path.open("rb") as file:
        if file.read(4) != _MAGIC or path.stat().st_size < 12:
            return False
        file.seek(-4, 2)
        return file.read(4) == _MAGIC


def sha256_of(path: Path) -> str:
    """Return the hash of a file of this machine."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
