"""A lake and a folder of pipelines for each test."""

from __future__ import annotations

from pathlib import Path

import dlt
import pytest
from dlt_quacklake import quacklake as destination


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/lake.db"


@pytest.fixture
def pipeline(tmp_path: Path, url: str) -> dlt.Pipeline:
    lake = destination(url, data_path=f"{tmp_path}/data")
    return dlt.pipeline("shop", destination=lake, dataset_name="shop", pipelines_dir=str(tmp_path / "pipelines"))
