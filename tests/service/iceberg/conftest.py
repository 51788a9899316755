from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the package fastapi is not installed")
pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")

import quacklake
from quacklake import Lake
from quacklake.service.iceberg import IcebergSettings

from .serving import Service, served


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """The catalog in format 3."""
    with served() as running:
        yield running


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def older_service() -> Iterator[Service]:
    """The catalog in format 2."""
    with served(IcebergSettings(format_version=2)) as running:
        yield running
