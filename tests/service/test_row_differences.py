"""The rows that differ between two snapshots of a table, beside what each snapshot says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from tests.seeds import SEED
from tests.service.serving import Served, is_problem, served

DICE = random.Random(f"{SEED}rows")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A table with a key and one without, both changed at random, with a column that comes later."""
    folder: Path = tmp_path_factory.mktemp("changed")
    lake = quacklake.connect(f"sqlite:///{folder}/lake.db", folder / "data", create=True)
    lake.sql("CREATE TABLE keyed (id BIGINT PRIMARY KEY, x DOUBLE, name VARCHAR)")
    lake.sql("CREATE TABLE plain (id BIGINT, x DOUBLE, name VARCHAR)")
    for step in range(14):
        for table in ("keyed", "plain"):
            have = [row["id"] for row in lake.sql(f"SELECT id FROM {table}").to_arrow().to_pylist()]
            some = DICE.sample(have, min(len(have), DICE.randrange(4)))
            ids = f"({', '.join(map(str, [*some, -1]))})"
            kind = DICE.choice(["insert", "insert", "update", "delete", "again"])
            if kind == "update":
                lake.sql(f"UPDATE {table} SET x = CASE WHEN x > 3 THEN 'nan' ELSE x + 1 END WHERE id IN {ids}")
            elif kind == "delete":
                lake.sql(f"DELETE FROM {table} WHERE id IN {ids}")
            elif kind == "again":  # the same key in a new row
                with lake.transaction() as tx:
                    tx.sql(f"DELETE FROM {table} WHERE id IN {ids}")
                    for each in some:
                        tx.sql(f"INSERT INTO {table} (id, x, name) VALUES ({each}, {DICE.randrange(3)}, 'again')")
            else:
                new = DICE.sample([n for n in range(40) if n not in have], 3)
                values = ", ".join(f"({n}, {DICE.randrange(5)}, {DICE.choice(['NULL', chr(39) + 'b' + chr(39)])})" for n in new)  # fmt: skip
                lake.sql(f"INSERT INTO {table} (id, x, name) VALUES {values}")
        if step == 7:
            lake.sql("ALTER TABLE keyed ADD COLUMN later VARCHAR DEFAULT 'z'")
    with served(lake) as found:
        yield found


def rows(served: Served, table: str, version: int, key: str) -> dict[int, dict[str, str | None]]:
    """Return the rows of a snapshot by their key, all values as texts."""
    at = served.lake.at(version=version)
    if f"main.{table}" not in at.tables():
        return {}
    columns = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name in at.table(table).columns)
    found = at.sql(f"SELECT {key} AS place, {columns} FROM {table}").to_arrow().to_pylist()
    return {row.pop("place"): row for row in found}


def test_differences_are_those_of_the_two_states(changed: Served) -> None:
    newest = changed.lake.current_snapshot()
    for _ in range(12):
        table, key = DICE.choice([("keyed", "id"), ("plain", "rowid")])
        first, last = sorted(DICE.choices(range(2, newest + 1), k=2))
        before, after = (rows(changed, table, version, key) for version in (first, last))
        for row in before.values():  # rows that were there have the default of the new column
            row.update({"later": "z"} if any("later" in each for each in after.values()) else {})
        expected = {
            "added": sorted(str(after[n]) for n in after.keys() - before.keys()),
            "removed": sorted(str(before[n]) for n in before.keys() - after.keys()),
            "changed": sorted(
                str((before[n], after[n])) for n in before.keys() & after.keys() if before[n] != after[n]
            ),
        }
        found: dict[str, list[str]] = {"added": [], "removed": [], "changed": []}
        following: int | None = 0
        while following is not None:
            params = {"from": first, "to": last, "limit": 3, "after": following}
            answer = changed.reader.get(f"/api/v1/tables/{table}/diff", params=params)
            assert answer.status_code == 200, answer.text
            page: dict[str, Any] = answer.json()
            for each in page["rows"]:
                pair = {"added": each["after"], "removed": each["before"], "changed": (each["before"], each["after"])}
                found[each["change"]].append(str(pair[each["change"]]))
            following = page["next"]
        assert page["counts"] == {kind: len(each) for kind, each in expected.items()}
        assert {kind: sorted(each) for kind, each in found.items()} == expected, (table, first, last)
        assert page["key"] == (["id"] if table == "keyed" and first != last else [])


def test_columns_that_came_are_told_and_a_range_that_is_none_is_refused(changed: Served) -> None:
    newest = changed.lake.current_snapshot()
    found = changed.reader.get("/api/v1/tables/keyed/diff", params={"from": 2}).json()
    assert [(each["column"], each["change"]) for each in found["columns"]] == [("later", "added")]
    same = changed.reader.get("/api/v1/tables/keyed/diff", params={"from": newest}).json()
    assert (same["rows"], same["counts"]) == ([], {"added": 0, "changed": 0, "removed": 0})
    is_problem(changed.reader.get("/api/v1/tables/keyed/diff", params={"from": 5, "to": 3}), 400, "input")
    is_problem(changed.reader.get("/api/v1/tables/none/diff", params={"from": 1}), 404, "not_found")
