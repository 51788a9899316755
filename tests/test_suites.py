"""The outcomes of the suites of dbt and SQLAlchemy, as runs print them and guides quote them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.suites import Outcome

GUIDES = Path(__file__).resolve().parents[1] / "docs" / "guides"


def test_a_share_is_of_the_tests_that_were_not_left_out() -> None:
    outcome = Outcome("a suite", {"passed": 9, "skipped": 5, "failed": 1}, ["one"], "")
    assert outcome.line == "a suite: 9 of 10 tests pass (90.0%), 5 are left out with a reason"
    assert Outcome("none", {}, [], "").line == "none: 0 of 0 tests pass (none), 0 are left out with a reason"


@pytest.mark.parametrize(("name", "guide"), [("dbt's suite", "dbt.md"), ("SQLAlchemy's suite", "dbapi.md")])
def test_guides_quote_a_run_in_the_words_that_it_prints(name: str, guide: str) -> None:
    printed = Outcome(name, {"passed": 1, "skipped": 1}, [], "").line
    shape = re.sub(r"\d+(?:\\\.\d+)?", r"([\\d.]+)", re.escape(printed))
    found = re.search(shape, " ".join((GUIDES / guide).read_text(encoding="utf-8").split()))
    assert found is not None, f"{guide} quotes no line such as: {printed}"
    passed, run, share, _ = map(float, found.groups())
    assert f"{passed / run:.1%}" == f"{share}%"
