"""The targets of dbt's suite: lakes in temporary folders."""

from __future__ import annotations

from typing import Any

import pytest

USERS = ["ann", "bob", "cy"]
"""The users of the tests of grants."""


def target(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return a target of ``profiles.yml`` with a new lake."""
    home = tmp_path_factory.mktemp("lake")
    return {
        "type": "quacklake",
        "threads": 4,
        "lake": f"sqlite:///{home / 'lake.db'}",
        "data_path": str(home / "data"),
    }
