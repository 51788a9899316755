"""Random statements do on a lake what they do on plain DuckDB tables, and a difference is reported: the short form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove import statements
from tests.prove.sentences import Column, Sentence, Table
from tests.prove.statements import Tally, round_of_statements
from tests.prove.twins import Twins
from tests.seeds import LONG, SEED


@pytest.mark.parametrize("catalog", ["sqlite", "duckdb"] if LONG else ["sqlite"])
def test_random_statements_do_what_they_do_in_duckdb(tmp_path: Path, catalog: str) -> None:
    tally = round_of_statements(tmp_path, f"{SEED} {catalog}", 2000 if LONG else 20, catalog)
    assert tally.shortest is None, tally.shortest
    assert tally.statements >= 20


def test_a_difference_of_rows_types_or_names_is_told(tmp_path: Path) -> None:
    twins = Twins(tmp_path)
    twins.session.sql("CREATE TABLE t (id INT, a INT); INSERT INTO t VALUES (1, 2)")
    twins.plain.execute("CREATE TABLE t (id INT, a BIGINT); INSERT INTO t VALUES (1, 3)")
    table = Table("main", "t", (Column("id", "INTEGER"), Column("a", "INTEGER")))
    for sql in ("SELECT a FROM main.t", "SELECT id + a AS n FROM main.t", "SELECT a::BIGINT AS n FROM main.t"):
        assert statements._compare(twins, Sentence(sql), [table], Tally(), keep=False) is not None
    change = Sentence("UPDATE main.t SET id = 5", changes=True)
    assert "afterwards main.t" in str(statements._compare(twins, change, [table], Tally(), keep=False))
    assert statements._compare(twins, Sentence("SELECT id FROM main.t"), [table], Tally(), keep=False) is None
    twins.close()
