"""Errors speak of the text and the names that the user wrote."""

from __future__ import annotations

import pytest

import quacklake
from quacklake.core.duckdb_versions import IS_2
from quacklake.core.sql.failures import in_own_words
from quacklake.core.sql.words import width_of
from tests.sql.conftest import Run

WRONG = (
    "selct 1",
    "SELECT zz FROM t",
    "SELECT * FROM nosuch",
    "SELECT * FROM qls",
    "SELECT * FROM t WHERE id = [1]",
    "DELETE FROM t WHERE zz = 1",
    "DELETE FROM t RETURNING zz",
    "UPDATE t SET id = 1 WHERE zz",
    "UPDATE t SET id = ql_row_id",
    "UPDATE t SET id = 1 RETURNING zz",
    "INSERT INTO t SELECT zz, name FROM t",
    "INSERT INTO t VALUES (1, 'a') RETURNING zz",
    "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = zz",
    "CREATE VIEW v AS SELECT zz FROM t",
    "CREATE TABLE u AS SELECT zz FROM t",
    "CREATE TABLE u (i NOSUCH)",
    "CREATE TABLE u (x INT DEFAULT nosuch())",
    "ALTER TABLE t ADD COLUMN c NOSUCH",
    "ALTER TABLE t ALTER id SET DATA TYPE NOSUCH",
    "EXPLAIN SELECT zz FROM t",
    "COPY (SELECT zz FROM t) TO 'x.csv'",
    "PIVOT t ON zz USING sum(id)",
    "EXECUTE wrong",
)


@pytest.mark.parametrize("statement", WRONG)
def test_no_error_shows_a_name_that_the_user_has_not_written(run: Run, statement: str) -> None:
    run("CREATE TABLE t (id INTEGER, name VARCHAR); INSERT INTO t VALUES (1, 'a')")
    run("PREPARE wrong AS DELETE FROM t WHERE zz = 1")
    with pytest.raises(quacklake.QuacklakeError) as caught:
        run(statement)
    text = str(caught.value)
    assert not any(name in text for name in ("qls_", "_ql_", "temp.main", '"temp".main', "source column c")), text


@pytest.mark.parametrize(
    ("statement", "line", "word"),
    [
        pytest.param(
            *("DELETE FROM t\nWHERE zz = 1", "LINE 2: WHERE zz = 1", "zz"),
            marks=pytest.mark.skipif(IS_2, reason="DuckDB 2.0 tells no place in what was made of a tree"),
        ),
        ("CREATE TABLE u (i NOSUCH)", "LINE 1: CREATE TABLE u (i NOSUCH)", "NOSUCH"),
        ("EXPLAIN SELECT zz FROM t", "LINE 1: EXPLAIN SELECT zz FROM t", "zz"),
    ],
)
def test_the_place_is_shown_in_the_text_of_the_user(run: Run, statement: str, line: str, word: str) -> None:
    run("CREATE TABLE t (id INTEGER)")
    with pytest.raises(quacklake.errors.SqlError) as caught:
        run(statement)
    shown, caret = caught.value.message.splitlines()[-2:]
    assert shown == line
    assert shown[caret.index("^") :].startswith(word)


@pytest.mark.parametrize("text", ["'ü'", "'日本'", "'a\t\U0001f986'", "'é',\n '日'"])
@pytest.mark.parametrize("mistake", ["id extra words FROM t", "id FROM t WHERE id ) 3"])
def test_the_place_is_right_behind_letters_of_several_bytes(run: Run, text: str, mistake: str) -> None:
    run("CREATE TABLE t (id INTEGER)")
    with pytest.raises(quacklake.errors.SqlError, match="at or near") as caught:
        run(f"SELECT {text}, {mistake}")
    shown, caret = caught.value.message.splitlines()[-2:]
    word = caught.value.message.split('near "')[1].split('"')[0]
    ahead = caret.index("^")
    starts = [index for index in range(len(shown)) if width_of(shown[:index]) == ahead]
    assert any(shown.startswith(word, index) for index in starts)


def test_names_of_the_user_stay_as_they_are() -> None:
    assert in_own_words('no table "qls_1"', "FROM qls_1") == 'no table "qls_1"'
    assert in_own_words("bad when casting from source column c1", "SELECT c1") == (
        "bad when casting from source column c1"
    )
    assert in_own_words('x\nCandidate bindings: "_ql_row_id", "row"', "SELECT r") == 'x\nCandidate bindings: "row"'
