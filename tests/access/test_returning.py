"""RETURNING shows of changed rows what their principal would see of them, and nothing else."""

from __future__ import annotations

import random
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake import Lake, QuacklakeError
from quacklake.errors import NotPermittedError
from tests.access.secrets import CANARY, MARKS, NUMBER, shown
from tests.seeds import SEED


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A table whose defaults are secret: ``token`` is masked, and rows of the default region are hidden."""
    home: Path = tmp_path_factory.mktemp("returning")
    with quacklake.connect(f"sqlite:///{home}/lake.db", data_path=home / "data") as lake:
        lake.sql(
            f"CREATE TABLE t (id BIGINT PRIMARY KEY, token VARCHAR DEFAULT '{CANARY}', region VARCHAR DEFAULT 'XX{CANARY}',"
            f" number BIGINT DEFAULT {NUMBER})"
        )
        lake.sql("INSERT INTO t VALUES (1, 'CANARY1', 'EU', 1), (2, 'CANARY2', 'EU', 2)")
        lake.sql(f"CREATE TABLE f (id BIGINT, region VARCHAR DEFAULT 'XX{CANARY}')")
        lake.sql("INSERT INTO f VALUES (1, 'EU'), (2, 'EU')")
        lake.sql(f"CREATE TABLE inbox (id BIGINT, token VARCHAR DEFAULT '{CANARY}')")
        access = lake.access
        access.create_user("wil", ["writer"])
        access.create_user("ins")
        access.create_user("root", ["admin"])
        access.grant("INSERT", "ins", table="inbox")
        for table in ("t", "f"):
            access.create_policy("europe", table, "region = 'EU'")
        access.create_mask("t", "token", "'***' || right(token, 1)")
        access.create_mask("t", "number", "0")
        yield lake


def _told(lake: Lake, user: str, sql: str) -> str:
    """Return all that a statement tells, in a transaction of its own that changes nothing."""
    mine = lake.as_principal(user)
    try:
        with mine.transaction() as tx:
            told = str(tx.sql(sql).fetchall())
            raise _Back(told)
    except _Back as back:
        return str(back)
    except QuacklakeError as error:
        return f"refused {shown(error)}"


class _Back(Exception):
    pass


def test_a_default_of_a_masked_column_is_masked(lake: Lake) -> None:
    assert _told(lake, "wil", "INSERT INTO t (id, region) VALUES (7, 'EU') RETURNING *") == "[(7, '***Y', 'EU', 0)]"
    given = "INSERT INTO t VALUES (7, 'mine', 'EU', 5) RETURNING token, number, length(token) AS n"
    assert _told(lake, "wil", given) == "[('***e', 0, 4)]"
    assert CANARY in _told(lake, "root", "INSERT INTO t (id, region) VALUES (7, 'EU') RETURNING *")


def test_new_rows_that_are_hidden_are_not_returned(lake: Lake) -> None:
    for sql in (
        "INSERT INTO t (id) VALUES (7) RETURNING region",
        "INSERT INTO f (id) VALUES (7) RETURNING *",
        "UPDATE f SET region = DEFAULT RETURNING *",
        "MERGE INTO f USING (SELECT 7 AS id) s ON f.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (7) RETURNING *",
        "MERGE INTO f USING (SELECT 1 AS id) s ON f.id = s.id WHEN MATCHED THEN UPDATE SET region = DEFAULT RETURNING *",
    ):
        assert _told(lake, "wil", sql) == "[]", sql
    with pytest.raises(NotPermittedError, match="does not satisfy its row filters"):
        lake.as_principal("wil").sql("INSERT INTO f (id) VALUES (7) RETURNING *")


def test_rows_that_were_read_are_masked_once(lake: Lake) -> None:
    assert _told(lake, "wil", "DELETE FROM t WHERE id = 2 RETURNING id, token") == "[(2, '***2')]"
    merged = (
        "MERGE INTO t USING (VALUES (2), (8)) s(id) ON t.id = s.id WHEN MATCHED THEN DELETE"
        " WHEN NOT MATCHED THEN INSERT (id, region) VALUES (s.id, 'EU') RETURNING merge_action, id, token"
    )
    assert sorted(literal_eval(_told(lake, "wil", merged))) == [("DELETE", 2, "***2"), ("INSERT", 8, "***Y")]


def test_whoever_may_not_read_a_table_gets_no_rows_of_it_back(lake: Lake) -> None:
    assert "refused" in _told(lake, "ins", "INSERT INTO inbox (id) VALUES (1) RETURNING *")
    mine = lake.as_principal("ins")
    assert mine.sql("INSERT INTO inbox (id) VALUES (1)").fetchone() == (1,)


_LISTS = (
    "*",
    "token",
    "error(token)",
    "CAST(token AS INTEGER)",
    "1 / (number - 987654321)",
    "(SELECT max(token) FROM t)",
)
_ENDS = (
    "INSERT INTO t (id, region) VALUES (7, 'EU')",
    "INSERT INTO t (id) VALUES (7)",
    "INSERT INTO t DEFAULT VALUES",
    "INSERT INTO t (id, region, token) VALUES (7, 'EU', DEFAULT)",
    "INSERT INTO t (id, region) VALUES (1, 'EU') ON CONFLICT DO NOTHING",
    "INSERT INTO t (id, region) VALUES (1, 'EU') ON CONFLICT DO UPDATE SET region = excluded.token",
    "INSERT INTO t (id, region) VALUES (1, 'EU') ON CONFLICT DO UPDATE SET region = 'EU' WHERE error(excluded.token)",
    "INSERT OR REPLACE INTO t (id, region) VALUES (1, 'EU')",
    "UPDATE t SET token = DEFAULT",
    "UPDATE t SET number = DEFAULT, region = 'EU' WHERE id = 1",
    "UPDATE t SET region = error(token)",
    "DELETE FROM t",
    "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET token = DEFAULT",
    "MERGE INTO t USING (SELECT 9 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, region) VALUES (9, 'EU')",
    "MERGE INTO t USING (SELECT 9 AS id) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE",
)


def test_no_statement_with_returning_tells_a_secret(lake: Lake) -> None:
    chosen = random.Random(SEED).sample([(end, list_) for end in _ENDS for list_ in _LISTS], 16)
    for end, list_ in chosen:
        told = _told(lake, "wil", f"{end} RETURNING {list_}")
        assert not any(mark in told.replace(list_, "") for mark in MARKS), (end, list_, told)
    assert lake.table("t").count() == 2
