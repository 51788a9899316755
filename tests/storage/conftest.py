"""The stores that the storage tests run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from quacklake.core.storage import S3Options, Store
from services import S3Server


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    """An empty local store whose root does not exist yet."""
    return Store.open(str(tmp_path / "root"), retry_wait=0.001)


@pytest.fixture
def s3_options(s3_server: S3Server) -> S3Options:
    return S3Options(
        endpoint=s3_server.url,
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
        region=s3_server.region,
    )


@pytest.fixture
def s3_store(s3_options: S3Options, s3_bucket: str) -> Store:
    """An empty store in its own bucket."""
    return Store.open(f"{s3_bucket}/some/lake", s3=s3_options, retry_wait=0.001)


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    """Each kind of store in turn."""
    opened: Store = request.getfixturevalue(f"{request.param}_store")
    return opened
