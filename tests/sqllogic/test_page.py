"""The page of the yardstick, and how its runner compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sqllogic.comparing import difference, says
from tests.sqllogic.exceptions import EXCEPTIONS
from tests.sqllogic.page import PAGE, Figures, exceptions
from tests.sqllogic.runner import Outcome, run_file


def test_the_page_has_every_exception_with_its_reason() -> None:
    assert exceptions() in PAGE.read_text(encoding="utf-8"), "run: python -m tests.sqllogic --page"


def test_errors_are_compared_by_a_part_or_a_pattern() -> None:
    assert says("Binder Error: no such thing\nLINE 1", ["no such thing"])
    assert not says("Binder Error", ["no such thing"])
    assert says("Table 7 is gone", ["<REGEX>:.*[0-9] is gone"])
    assert not says("Table 7 is gone", ["<!REGEX>:.*gone"])


@pytest.mark.parametrize(
    ("rows", "expected", "columns", "sort", "same"),
    [
        ([["1", "a"], ["2", "b"]], ["1\ta", "2\tb"], 2, "nosort", True),
        ([["2", "b"], ["1", "a"]], ["1\ta", "2\tb"], 2, "nosort", False),
        ([["2", "b"], ["1", "a"]], ["1\ta", "2\tb"], 2, "rowsort", True),
        ([["1.0"]], ["1"], 1, "nosort", True),
        ([["1", "2"]], ["1"], 1, "nosort", False),
        ([["x1"]], ["<REGEX>:x[0-9]"], 1, "nosort", True),
        ([], ["1"], 1, "nosort", False),
    ],
)
def test_rows_are_compared_as_texts(
    rows: list[list[str]], expected: list[str], columns: int, sort: str, same: bool
) -> None:
    assert (difference(rows, expected, columns, sort) is None) is same


_SCRIPT = """
require ducklake

statement ok
ATTACH 'ducklake:__TEST_DIR__/l.db' AS l (DATA_PATH '__TEST_DIR__/d')

statement ok
CREATE TABLE l.t (i INTEGER)

concurrentloop n 0 2

statement ok
INSERT INTO l.t VALUES (${n})

endloop

query I rowsort
FROM l.t
----
1
0

statement error
SELECT * FROM l.missing
----
does not exist
"""


def test_a_file_fails_by_other_rows_and_by_other_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUACKLAKE_FOREIGN_PATHS", "")
    script = tmp_path / "some.test"
    script.write_text(_SCRIPT, encoding="utf-8")
    found = run_file(tmp_path, script)
    assert found == Outcome("PASS")
    script.write_text(_SCRIPT.replace("does not exist", "words that nobody says"), encoding="utf-8")
    reworded = run_file(tmp_path, script)
    assert reworded.kind == "FAIL"
    assert "expected 'words that nobody says'" in reworded.why
    script.write_text(_SCRIPT.replace("1\n0\n", "1\n2\n"), encoding="utf-8")
    failed = run_file(tmp_path, script)
    assert failed.kind == "FAIL"
    assert "line 17" in failed.why
    purpose = next(iter(EXCEPTIONS))
    figures = Figures({"a.test": found, "b.test": failed, purpose: reworded, "c.test": Outcome("SKIP", "needs more")})
    assert figures.shown.startswith("passed 1 of 3 (33.3 %) attempted; 1 differ on purpose; passed 1 of 2 (50.0 %)")
    assert figures.unexplained == ["b.test"]
