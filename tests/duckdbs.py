"""The versions of DuckDB that tests meet: the one they run on, and the pinned one with its extensions.

``make test DUCKDB=2.0.0`` puts another DuckDB on ``PYTHONPATH``. The extensions (ducklake, the reference implementation,
and those for SQLite, PostgreSQL and HTTP) are wheels for the pinned version alone. Where the reference implementation
works in a process of its own, that has the pinned DuckDB, and the tests run; others are skipped.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import duckdb
import pytest

__all__ = ["IS_PINNED", "PINNED", "import_extension", "needs_extensions", "other_version", "pinned_environment"]

_VENV = Path(sysconfig.get_path("purelib"))


def _version(folder: Path) -> str:
    found = importlib.metadata.distributions(name="duckdb", path=[str(folder)])
    return next((distribution.version for distribution in found), "")


PINNED = _version(_VENV)
"""The version in the environment itself."""
IS_PINNED = duckdb.__version__ == PINNED


def needs_extensions() -> None:
    """Skip a test that needs a DuckDB extension if there is none for this version; in CI too."""
    if not IS_PINNED:
        pytest.skip(f"the extensions of DuckDB are there for {PINNED} only, and this is {duckdb.__version__}")


def import_extension(name: str, con: Any = None) -> None:
    """Let this process's DuckDB find an extension."""
    needs_extensions()
    from duckdb_extensions import import_extension

    import_extension(name) if con is None else import_extension(name, con=con)


def pinned_environment() -> dict[str, str]:
    """The environment for a Python process with the pinned DuckDB."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and not _has_duckdb(path)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def other_version() -> tuple[str, dict[str, str]]:
    """Another version of DuckDB than this one, and the environment for a Python process with it; else skips."""
    if not IS_PINNED:
        return PINNED, pinned_environment()
    for folder in sorted(Path(sys.prefix).glob("duckdb-*"), reverse=True):
        version = _version(folder)
        if version and version != PINNED:
            return version, os.environ | {"PYTHONPATH": str(folder)}
    pytest.skip("no other version of DuckDB is installed: make test DUCKDB=2.0.0 installs one")


def _has_duckdb(path: str) -> bool:
    return (Path(path) / "duckdb" / "__init__.py").exists()
