"""Random grants, filters, masks and queries. The oracle is plain DuckDB over a table without what is hidden."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake import Lake
from quacklake.errors import QuacklakeError
from tests.seeds import chance, some

TYPES = {"id": "BIGINT", "grp": "VARCHAR", "num": "DOUBLE", "txt": "VARCHAR", "day": "DATE"}
ROWS = 200
FILTERS = (
    "grp = 'a'",
    "grp IN ('a', 'b') AND id % 2 = 0",
    "num > 50 OR txt IS NULL",
    "day >= DATE '2024-03-01'",
    "length(txt) > 3",
    "CAST(txt AS INTEGER) > 5",
    "grp = left(current_principal(), 1)",
    "has_role('team') AND id < 100",
    "false",
    "true",
    "NOT (id BETWEEN 20 AND 150)",
    "grp IS NOT DISTINCT FROM NULL",
)
MASKS = {
    "id": ("0", "id % 10", "NULL"),
    "grp": ("'?'", "upper(grp)"),
    "num": ("round(num, -1)", "-1"),
    "txt": ("left(txt, 1) || '…'", "md5(txt)", "CAST(length(txt) AS VARCHAR)"),
    "day": ("date_trunc('year', day)", "DATE '2000-01-01'"),
}
CONDITIONS = (
    "true",
    "id > 40",
    "id BETWEEN 10 AND 120 AND grp <> 'c'",
    "num < 30 OR grp = 'a'",
    "txt LIKE '1%'",
    "TRY_CAST(txt AS INTEGER) > 3",
    "day < DATE '2024-06-01'",
    "grp IS NULL",
    "hash(txt) % 3 = 0",
    "id IN (SELECT max(id) FROM t GROUP BY grp)",
)
QUERIES = (
    "SELECT count(*) FROM t WHERE {}",
    "SELECT {columns} FROM t WHERE {}",
    "SELECT grp, count(*), sum(id), min(txt), max(num), max(day) FROM t WHERE {} GROUP BY grp",
    "SELECT min(id), max(id), count(DISTINCT txt) FROM t",
    "SELECT count(*) FROM t",
    "WITH c AS (SELECT * FROM t WHERE {}) SELECT count(*), max(id) FROM c JOIN t USING (grp)",
    "SELECT a.id, b.txt FROM t a LEFT JOIN t b ON a.id = b.id + 1 WHERE a.{first}",
    "SELECT DISTINCT grp, txt FROM t WHERE {} ORDER BY ALL",
    "SELECT id, row_number() OVER (PARTITION BY grp ORDER BY id, num, txt, day) FROM t WHERE {}",
    "SELECT * FROM (SELECT * FROM t LIMIT 1000) WHERE {}",
    "SELECT count(*) FILTER ({}) FROM t",
    "SELECT id FROM t WHERE {} EXCEPT SELECT id + 1 FROM t",
    "SELECT EXISTS (FROM t WHERE {})",
    "SELECT id FROM t AT (VERSION => {version}) WHERE {}",
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("random")
    with quacklake.connect(f"sqlite:///{folder / 'lake.db'}", data_path=str(folder / "data")) as found:
        numbers = random.Random(7)
        found.create_table("t", TYPES)
        for start in range(0, ROWS, 40):
            found.table("t").append([_row(numbers, i) for i in range(start, start + 40)])
        found.table("t").append([_row(numbers, ROWS + i) for i in range(3)])
        found.table("t").delete("id % 17 = 3")
        found.access.create_role("team")
        yield found


def _row(numbers: random.Random, i: int) -> dict[str, object]:
    text = numbers.choice([None, str(numbers.randint(0, 30)), f"secret {i}", "abc"])
    day = numbers.choice([None, f"2024-{numbers.randint(1, 9):02}-{numbers.randint(1, 28):02}"])
    import datetime as dt

    return {
        "id": i,
        "grp": numbers.choice(["a", "b", "c", None]),
        "num": numbers.choice([None, round(numbers.random() * 100, 2)]),
        "txt": text,
        "day": None if day is None else dt.date.fromisoformat(day),
    }


def _visible(oracle: duckdb.DuckDBPyConnection, user: str, roles: set[str], case: Case, version: str = "whole") -> None:
    """Create ``t`` in plain DuckDB: the visible rows and values of the whole table."""
    mine = [text for text, to in case.filters if to is None or to in roles]
    known = [_said(text, user, roles) for text in mine]
    keeps = " OR ".join(f"coalesce(TRY({text}), false)" for text in known) or "false"
    where = f" WHERE {keeps}" if case.filters else ""
    select = []
    for name, type_ in TYPES.items():
        if name in case.columns:
            masks = [text for column, text, to in case.masks if column == name and (to is None or to in roles)]
            value = name if not masks else masks[0] if len(masks) == 1 else "NULL"
            select.append(f"TRY(CAST({value} AS {type_})) AS {name}")
    # the condition looks at true values, and the masks are of true values
    oracle.execute(f"CREATE OR REPLACE TABLE t AS SELECT {', '.join(select)} FROM (SELECT * FROM {version}{where})")


def _said(text: str, user: str, roles: set[str]) -> str:
    return text.replace("current_principal()", f"'{user}'").replace("has_role('team')", str("team" in roles).lower())


class Case:
    """Random rules of one user."""

    def __init__(self, numbers: random.Random) -> None:
        self.filters = [
            (numbers.choice(FILTERS), numbers.choice([None, None, "team"])) for _ in range(numbers.choice([0, 1, 1, 2]))
        ]
        self.masks: list[tuple[str, str, str | None]] = []
        for name, values in MASKS.items():
            for to in (None, "team"):
                if numbers.random() < 0.2:
                    self.masks.append((name, numbers.choice(values), to))
        self.columns = list(TYPES)
        if numbers.random() < 0.3:
            self.columns = sorted(numbers.sample(list(TYPES), numbers.randint(1, 4)), key=list(TYPES).index)
        self.roles = {"team"} if numbers.random() < 0.5 else set()


@pytest.mark.parametrize("number", some(range(40), 5, "random policies"))
def test_a_query_answers_as_if_hidden_rows_and_values_were_not_there(lake: Lake, number: int, tmp_path: Path) -> None:
    numbers = chance("random policies", number)
    case = Case(numbers)
    access, user = lake.access, f"a{number}"
    for policy in access.policies():
        if policy.kind == "filter":
            access.drop_policy(policy.name, "t")
        else:
            access.drop_mask("t", str(policy.column_name), to=policy.role)
    access.create_user(user, case.roles)
    access.grant("SELECT", user, table="t", columns=None if len(case.columns) == len(TYPES) else case.columns)
    for at, (text, to) in enumerate(case.filters):
        access.create_policy(f"p{at}", "t", text, to=to)
    for column, text, to in case.masks:
        access.create_mask("t", column, text, to=to)
    principal = lake.as_principal(user)
    version = numbers.randint(2, lake.current_snapshot())
    with duckdb.connect() as oracle:
        for name, rows in (("whole", lake.table("t").to_arrow()), ("past", lake.at(version).table("t").to_arrow())):
            oracle.register("rows", rows)
            oracle.execute(f"CREATE TABLE {name} AS FROM rows")
        _visible(oracle, user, case.roles, case)
        assert sorted(map(str, principal.table("t").to_pylist())) == sorted(
            map(str, oracle.sql("FROM t").to_arrow_table().to_pylist())
        )
        assert principal.table("t").count() == oracle.sql("FROM t").count("*").fetchall()[0][0]
        for _ in range(8):
            condition = numbers.choice(CONDITIONS)
            form = numbers.choice(QUERIES)
            past = "AT (VERSION" in form
            sql = form.format(
                condition,
                columns=", ".join(case.columns),
                first=condition if condition.startswith(("id", "num", "txt")) and "OR" not in condition else "id > 3",
                version=version,
            )
            _visible(oracle, user, case.roles, case, "past" if past else "whole")
            plain = sql.replace(f" AT (VERSION => {version})", "")
            if past and "SELECT max(id) FROM t" in plain:
                continue  # the subquery is over the newest rows
            _compare(principal, oracle, sql, plain)
        if "id" in case.columns:
            _visible(oracle, user, case.roles, case)
            for where in ("id > 40", "grp = 'a'", "txt LIKE '1%'"):
                if where.split()[0] in case.columns:
                    wanted = oracle.sql(f"SELECT count(*) FROM t WHERE {where}").fetchall()[0][0]
                    assert principal.table("t").count(where) == wanted
                    assert principal.table("t").to_arrow(columns=["id"], where=where).num_rows == wanted


def _compare(principal: Lake, oracle: duckdb.DuckDBPyConnection, sql: str, plain: str) -> None:
    try:
        wanted = sorted(map(repr, oracle.sql(plain).fetchall()))
    except duckdb.Error:
        with pytest.raises(QuacklakeError):
            principal.sql(sql).fetchall()
        return
    assert sorted(map(repr, principal.sql(sql).fetchall())) == wanted, sql
