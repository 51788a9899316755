"""Each test class of dbt's suite gets a lake of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["dbt.tests.fixtures.project"]


@pytest.fixture(scope="class")
def dbt_profile_target(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home: Path = tmp_path_factory.mktemp("lake")
    return {
        "type": "quacklake",
        "threads": 4,
        "lake": f"sqlite:///{home / 'lake.db'}",
        "data_path": str(home / "data"),
    }
