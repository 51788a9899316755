"""A test that uses a server bears its mark."""

from __future__ import annotations

import pytest

from tests.conftest import MARKED


@pytest.mark.parametrize("database", ["sqlite", *MARKED])
def test_a_test_bears_the_mark_of_the_server_that_its_parameter_names(
    request: pytest.FixtureRequest, database: str
) -> None:
    found = [name for name in MARKED if request.node.get_closest_marker(name) is not None]
    assert found == [name for name in MARKED if name == database]
