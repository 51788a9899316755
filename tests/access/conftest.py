from __future__ import annotations

from collections.abc import Iterator

import pytest

from quacklake import Lake
from tests.access.secrets import fill


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake with secrets, which tests share and do not change."""
    with fill(tmp_path_factory.mktemp("secrets")) as lake:
        yield lake


@pytest.fixture(scope="session")
def own_secrets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake with secrets, which tests share: hidden rows never change."""
    with fill(tmp_path_factory.mktemp("own_secrets")) as lake:
        yield lake
