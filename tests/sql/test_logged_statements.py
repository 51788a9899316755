"""Statements in the log: their shape at INFO, their values at DEBUG only."""

from __future__ import annotations

import logging
import random
import re
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake.core.sql.failures import Shown
from quacklake.core.sql.words import without_literals
from tests.seeds import SEED

CANARY, NUMBER = "Gänsehaut", "987654321"
_LITERALS = (
    f"'{CANARY}'", f"'it''s {CANARY}'", f"E'\\'{CANARY}'", f"$${CANARY}$$", f"$tag${CANARY} $$ ' $tag$", NUMBER, f".{NUMBER}",
    f"{NUMBER}.5e3", f"1_{NUMBER}", f"'--{CANARY}'", f"'/*' || '{CANARY}*/'", f"['{CANARY}', {NUMBER}]", f"{{'a': {NUMBER}}}",
    f"DATE '{CANARY}'", f"/* {CANARY} /* {NUMBER} */ */ 'x'", f"-- {CANARY}\n {NUMBER}",
)  # fmt: skip
_SHAPES = (
    "SELECT a, {} FROM t WHERE b = {} AND c IN ({}, {})",
    "INSERT INTO t VALUES ({}, {}), ({}, {})",
    'UPDATE "odd name" SET a = {} WHERE b > {} -- {} {}',
    "MERGE INTO t USING (SELECT {} AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = {} RETURNING {}, {}",
    "COPY (SELECT {}, {}) TO {} /* {} */",
)


def _statement(rng: random.Random) -> str:
    return rng.choice(_SHAPES).format(*rng.choices(_LITERALS, k=4))


@pytest.mark.parametrize("number", range(40))
def test_no_value_is_in_the_shape_of_a_statement(number: int) -> None:
    sql = _statement(random.Random(f"{SEED}-{number}"))
    shown = without_literals(sql)
    assert CANARY not in shown and NUMBER not in shown and "\n" not in shown, (sql, shown)
    assert "?" in shown and sql.split()[0] == shown.split()[0]
    for end in range(len(sql)):  # also when a limit cuts it anywhere
        cut = without_literals(sql[:end])
        assert CANARY[:4] not in cut and NUMBER[:4] not in cut, (sql[:end], cut)


def test_the_shape_has_the_keywords_and_names_that_duckdb_sees() -> None:
    """Whatever DuckDB calls an identifier, a keyword or an operator is still there, in order."""
    rng = random.Random(SEED)
    wanted = {duckdb.token_type.identifier, duckdb.token_type.keyword}
    for _ in range(60):
        text = _statement(rng)
        sql, shown, at = text.encode(), without_literals(text), 0
        for start, kind in duckdb.tokenize(text):
            name = re.match(rb'\w+|"[^"]*"', sql[start:])
            if kind in wanted and name is not None:
                found = shown.find(name[0].decode(), at)
                assert found >= 0, (name[0], text, shown)
                at = found + len(name[0])


def test_a_giant_statement_is_shown_in_short() -> None:
    sql = f"INSERT INTO t VALUES {', '.join(['(1)'] * 1_000_000)}"
    assert len(str(Shown(sql))) < 5_000


def test_values_are_logged_at_debug_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("quacklake").propagate = True  # commands that ran before have turned it off
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.create_table("t", {"k": "VARCHAR", "n": "BIGINT"}, partition_by=["k"])
        for level in (logging.INFO, logging.DEBUG):
            with caplog.at_level(level, "quacklake"):
                caplog.clear()
                lake.sql(f"INSERT INTO t SELECT '{CANARY}', {NUMBER} FROM range(2000)")
                lake.sql("SELECT count(*) FROM t WHERE k = ?", [CANARY]).fetchall()
                with pytest.raises(quacklake.QuacklakeError):
                    lake.sql(f"SELECT '{CANARY}'::INTEGER, {NUMBER} FROM t")
                told = [record for record in caplog.records if record.name == "quacklake.sql"]
                assert any("INSERT INTO t SELECT ?, ? FROM range(?)" in record.getMessage() for record in told)
                texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
                assert not any(CANARY in text or NUMBER in text for text in texts), texts
                whole = any(CANARY in record.getMessage() for record in told if record.levelno == logging.DEBUG)
                assert whole is (level == logging.DEBUG)
