"""Statements of strangers reach the rows of the attached lakes, and nothing else."""

from __future__ import annotations

import re
import traceback
from collections import Counter

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quacklake
from quacklake.errors import NotFoundError, NotPermittedError, QuacklakeError, SqlError
from tests.sql.safety.conftest import CANARY, Place, corpus

ESCAPES = corpus("escapes")
HONEST = corpus("honest")
_QUERY = re.compile(r"(SELECT|FROM|WITH|VALUES)\b(?!.*;)", re.DOTALL)


def test_the_corpora_are_large_and_say_nothing_twice() -> None:
    assert len(ESCAPES) >= 250
    assert len(HONEST) >= 60
    assert [text for text, count in Counter(text for _, text in ESCAPES + HONEST).items() if count > 1] == []


def _refused(session: quacklake.Session, statement: str) -> QuacklakeError:
    """The error of a statement that must be refused; Python's variables are near."""
    frame = pa.table({"id": [1], "word": [CANARY]})
    with pytest.raises(QuacklakeError) as caught:
        print(statement, session.sql(statement).fetchall(), frame.num_rows)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    return caught.value


@pytest.mark.parametrize("kind", dict(ESCAPES))
def test_a_safe_session_refuses_every_way_out(
    safe: quacklake.Session, lake: quacklake.Lake, place: Place, kind: str
) -> None:
    _refuses_all(safe, lake, place, kind)


@pytest.mark.parametrize("kind", [kind for kind in dict(ESCAPES) if kind != "changes"])
def test_a_safe_session_that_may_change_rows_refuses_all_else(
    writing: quacklake.Session, lake: quacklake.Lake, place: Place, kind: str
) -> None:
    _refuses_all(writing, lake, place, kind)


def _is_misspelt(statement: str) -> bool:
    """Return True for RESET ALL where DuckDB does not parse it, as from 2.0 on."""
    if statement != "RESET ALL":
        return False
    with duckdb.connect() as connection, pytest.raises(duckdb.Error) as caught:
        connection.execute(statement)
    return caught.type is duckdb.ParserException


def _refuses_all(safe: quacklake.Session, lake: quacklake.Lake, place: Place, kind: str) -> None:
    before = place.state()
    snapshot = lake.current_snapshot()
    passed = []
    for statement in [place.filled(text) for name, text in ESCAPES if name == kind]:
        error = _refused(safe, statement)
        expected = SqlError if _is_misspelt(statement) else NotPermittedError
        if not kind.startswith(("broken", "absent")) and type(error) is not expected:
            passed.append((statement, error))
        if safe.work.explicit:
            safe.sql("ROLLBACK")
    assert passed == []
    assert place.state() == before
    assert lake.current_snapshot() == snapshot
    assert place.connections == []
    assert safe.sql("SELECT count(*) FROM t").fetchone() == (22,)


@pytest.mark.parametrize("kind", dict(HONEST))
def test_a_safe_session_answers_honest_queries_as_any_other(
    safe: quacklake.Session, open_session: quacklake.Session, place: Place, kind: str
) -> None:
    for statement in [place.filled(text) for name, text in HONEST if name == kind]:
        found, wanted = safe.sql(statement), open_session.sql(statement)
        assert found.types == wanted.types, statement
        rows = [found.fetchall(), wanted.fetchall()]
        if "ORDER BY" not in statement.upper():  # then they come in any order
            rows = [sorted(part, key=repr) for part in rows]
        assert rows[0] == rows[1], statement
    for session in (safe, open_session):
        session.sql("USE lake.main")
        if session.work.explicit:
            session.sql("ROLLBACK")


# -- mutations ---------------------------------------------------------------------------------------------------------

_BLANKS = (" ", "\n", "\t", "  ", " /* x */ ", " -- x\n", "/**/")
_NESTINGS = (
    "SELECT * FROM ({})",
    "WITH z AS ({}) SELECT * FROM z",
    "SELECT 1 WHERE EXISTS ({})",
    "SELECT (SELECT count(*) FROM ({}))",
    "SELECT 1 FROM t JOIN ({}) ON true",
    "EXPLAIN {}",
    "EXPLAIN ANALYZE {}",
    "DESCRIBE {}",
    "SUMMARIZE {}",
    "PREPARE z AS {}; EXECUTE z",
    "SELECT 1; {}",
    "({})",
    "SELECT * FROM (SELECT * FROM t, LATERAL ({}))",
)
_QUOTED = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")""")


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """A hostile statement in another case, with other blanks, inside another."""
    text = draw(st.sampled_from([text for kind, text in ESCAPES if not kind.startswith("broken")]))
    change = draw(st.sampled_from([str.lower, str.upper, str.swapcase, str.title, str]))
    blank = draw(st.sampled_from(_BLANKS))
    parts = _QUOTED.split(text)
    for place in range(0, len(parts), 2):
        words = re.split(r"(\{\w+\})", parts[place])
        parts[place] = "".join(word if word.startswith("{") else change(word).replace(" ", blank) for word in words)
    text = "".join(parts)
    if _QUERY.match(text.upper()):
        for nesting in draw(st.lists(st.sampled_from(_NESTINGS[:5]), max_size=2)):
            text = nesting.replace("{}", text)
        text = draw(st.sampled_from(("{}", *_NESTINGS))).replace("{}", text)
    return text


@given(mutations())
def test_no_mutation_of_a_hostile_statement_gets_through(safe: quacklake.Session, place: Place, statement: str) -> None:
    error = _refused(safe, place.filled(statement))
    if safe.work.explicit:
        safe.sql("ROLLBACK")
    # a change inside a query is none that DuckDB's parser knows
    is_text = isinstance(error, SqlError) and re.search("Parser Error|syntax error", str(error))
    assert is_text or isinstance(error, NotPermittedError | NotFoundError), f"{statement}: {error!r}"
