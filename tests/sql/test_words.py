"""The words of a statement, against DuckDB's own lexer."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quacklake.cli.shell import is_whole
from quacklake.core.sql.words import split, words_of
from quacklake.errors import SqlError
from quacklake.spark.runtime.words import SparkCursor
from quacklake.spark.sql.parsing import only_statement

_gaps = st.lists(
    st.sampled_from(
        [" ", "\n", "\t", "/*;*/", "/* /* ; */ ' */", "/*/**/$$;*/", "--;'\n", "-- /*\r", '/*"*/', "/*--*/"]
    ),
    min_size=1,
    max_size=3,
).map("".join)
_values = st.sampled_from(
    ["1", "1_000", ".5", "1.", "1e5", "1.5e-3", "0x1F", "'a;b'", "'it''s;'", "E'\\';'", "x'3B'", "$$;'$$", "$é$;$$;$é$",
     '";"', '"a"";"', "é", "😀", "a$b", "_a1", "$1", "$2", "[1, 2]", "{'a': 1}", "a->>'b'", "a::INT", "-1", "a//b",
     "a<>b", "f(x := 1)", "'a' || ';'", "\u2028x", "٣"]
)  # fmt: skip
_statements = st.lists(st.tuples(_values, _gaps), min_size=1, max_size=6).map(
    lambda parts: "SELECT" + ",".join(gap + value + gap for value, gap in parts)
)
_texts = st.lists(st.tuples(_gaps, _statements, _gaps), max_size=4).map(lambda parts: ";".join(map("".join, parts)))


@settings(max_examples=150)
@given(_texts)
def test_statements_and_words_begin_where_duckdb_has_them(text: str) -> None:
    assert len(split(text)) == len(duckdb.extract_statements(text))
    for statement in split(text):
        assert len(duckdb.extract_statements(statement)) == 1
    words = words_of(text)
    starts = {word.start for word in words} | {word.start + 1 for word in words if word.kind == "parameter"}
    for offset, kind in duckdb.tokenize(text):
        place = len(text.encode()[:offset].decode())
        if kind.name != "comment" and (text[place].isalnum() or text[place] in "'\"_"):
            assert place in starts
    assert all(text[word.start : word.end] == word.text for word in words)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1 /* a /* b */; DROP TABLE t */", ["SELECT 1"]),
        ("SELECT 1 -- one\r, 2", ["SELECT 1 -- one\r, 2"]),
        ("\ufeffSELECT 1;\u00a0SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT $1$;SELECT 2", ["SELECT $1$", "SELECT 2"]),
        ("SELECT $a$;$a$", ["SELECT $a$;$a$"]),
    ],
)
def test_a_text_is_cut_between_statements(text: str, statements: list[str]) -> None:
    assert split(text) == statements


@pytest.mark.parametrize(
    "text", ["SELECT 1 /* ;", "/* /* */ SELECT 1;", "SELECT $$;", "SELECT $a$;$$;", "SELECT ';", 'SELECT ";']
)
def test_what_has_no_end_is_refused(text: str) -> None:
    with pytest.raises(SqlError, match="unterminated"):
        split(text)
    assert not is_whole(text)


def test_a_dollar_quoted_text_is_read_without_its_tags() -> None:
    assert [word.value for word in words_of("$$a$b$$ $é$x$$y$é$")] == ["a$b", "x$$y"]


def test_comments_of_spark_stand_in_comments() -> None:
    assert only_statement("SELECT 1 /* a /* b */; SELECT 2 */") == "SELECT 1"
    assert [word.text for word in SparkCursor("SELECT 1 -- one\\\n two\r, 2").words] == ["SELECT", "1", ",", "2"]
    with pytest.raises(SqlError, match="unterminated"):
        only_statement("SELECT 1 /* a")
