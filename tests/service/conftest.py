from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.serving import Served, sample_lake, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A lake with a table ``t`` of 90 rows in SQLite, served for a whole module."""
    folder: Path = tmp_path_factory.mktemp("service")
    with served(sample_lake(folder)) as found:
        yield found
