"""A check on every test of shared lakes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.removal_oracle import watching


@pytest.fixture(autouse=True)
def nothing_named_is_removed() -> Iterator[None]:
    """No test removes a file that anybody names."""
    with watching():
        yield
