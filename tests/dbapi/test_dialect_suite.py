"""SQLAlchemy's own suite for dialects, on a lake."""

from __future__ import annotations

import pytest

from tests import seeds
from tests.dbapi.dialect.exceptions import EXCEPTIONS
from tests.suites import run_sqlalchemy

_CLASSES = 8


@pytest.mark.timeout(7200 if seeds.LONG else 1200)
@pytest.mark.daily(0.5)
def test_sqlalchemys_suite_passes_but_for_what_is_listed() -> None:
    outcome = run_sqlalchemy(0 if seeds.LONG else _CLASSES)
    print(outcome.line)
    assert [test for test in outcome.failed if not test.startswith(tuple(EXCEPTIONS))] == [], outcome.text[-5000:]
    assert outcome.counts.get("passed", 0) > 0, outcome.text[-5000:]
    if seeds.LONG:
        assert [name for name in EXCEPTIONS if not any(test.startswith(name) for test in outcome.failed)] == []
