"""Each test class of dbt's suite gets a lake of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.targets import USERS, target

pytest_plugins = ["dbt.tests.fixtures.project"]


@pytest.fixture(scope="class")
def dbt_profile_target(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return target(tmp_path_factory)


@pytest.fixture(scope="class")
def logs_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Keep the logs of dbt out of the repository, and name the users of its tests of grants."""
    with pytest.MonkeyPatch.context() as patch:
        place = str(tmp_path_factory.mktemp("logs"))
        patch.setenv("DBT_LOG_PATH", place)
        for number, name in enumerate(USERS, start=1):
            patch.setenv(f"DBT_TEST_USER_{number}", name)
        yield place
