"""The history of a lake tells in words what each snapshot did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake import telemetry
from quacklake.core.catalog.reading import tables
from quacklake.core.format.snapshots import Operation, operations_of
from quacklake.errors import SqlError
from tests.catalog.stock import Stock
from tests.layout import plain_only
from tests.seeds import some

MERGE = (
    "MERGE INTO books USING (SELECT 1 AS id, 'q' AS title) s ON books.id = s.id"
    " WHEN MATCHED THEN UPDATE SET title = s.title WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.title)"
)
ROW = [{"id": 1, "title": "Emma"}]
#: Operations on a lake with the table main.books, and the words of the history for each.
STEPS: dict[str, tuple[Callable[[quacklake.Lake], Any], str, str]] = {
    "append": (lambda lake: lake.table("books").append(ROW), "INSERT", "inserted rows into main.books"),
    "update": (lambda lake: lake.table("books").update({"title": "x"}), "UPDATE", "updated rows of main.books"),
    "merge": (lambda lake: lake.table("books").merge(ROW, on="id"), "MERGE", "merged rows into main.books"),
    "overwrite": (lambda lake: lake.table("books").overwrite(ROW), "OVERWRITE", "replaced rows of main.books"),
    "delete": (lambda lake: lake.table("books").delete("id = 1"), "DELETE", "deleted rows from main.books"),
    "insert in SQL": (
        lambda lake: lake.sql("INSERT INTO books VALUES (5, 'x')"),
        "INSERT",
        "inserted rows into main.books",
    ),
    "update in SQL": (lambda lake: lake.sql("UPDATE books SET id = 1"), "UPDATE", "updated rows of main.books"),
    "merge in SQL": (lambda lake: lake.sql(MERGE), "MERGE", "merged rows into main.books"),
    "delete in SQL": (
        lambda lake: lake.sql("DELETE FROM books WHERE id = 1"),
        "DELETE",
        "deleted rows from main.books",
    ),
    "restore": (lambda lake: lake.table("books").restore(2), "RESTORE", "restored rows of main.books"),
    "alter": (lambda lake: lake.table("books").add_column("n", int), "ALTER TABLE", "altered table main.books"),
    "flush": (
        lambda lake: lake.table("books").flush_inlined_data(),
        "FLUSH",
        "moved rows of main.books from the catalog into files",
    ),
    "rename": (
        lambda lake: lake.rename_table("books", "novels"),
        "ALTER TABLE",
        "renamed table main.books to main.novels",
    ),
    "drop": (lambda lake: lake.drop_table("novels"), "DROP TABLE", "dropped table main.novels"),
    "undrop": (lambda lake: lake.undrop("novels"), "UNDROP", "brought back table main.novels"),
    "create as": (
        lambda lake: lake.sql("CREATE TABLE c AS SELECT 1 AS x"),
        "CREATE TABLE AS",
        "created table main.c, inserted rows into main.c",
    ),
    "transaction": (
        lambda lake: lake.sql("BEGIN; UPDATE novels SET id = 9; DELETE FROM c; COMMIT"),
        "DELETE, UPDATE",
        "changed rows of main.novels, deleted rows from main.c",
    ),
    "schema": (lambda lake: lake.create_schema("s"), "CREATE SCHEMA", "created schema s"),
    "view": (lambda lake: lake.create_view("v", "SELECT * FROM c"), "CREATE VIEW", "created view main.v"),
    "drop view": (lambda lake: lake.drop_view("v"), "DROP VIEW", "dropped view main.v"),
    "rollback": (
        lambda lake: lake.rollback(2),
        "ROLLBACK",
        "",
    ),
}


@pytest.fixture(params=some(["sqlite", "duckdb", "postgres", "mysql"], 2, "databases of histories", always=["sqlite"]))
def lake(request: pytest.FixtureRequest, new_url: Callable[[str], str], tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(new_url(request.param), data_path=tmp_path / "data") as lake:
        yield lake


def test_every_snapshot_says_what_was_asked_and_what_it_did(lake: quacklake.Lake) -> None:
    lake.create_table("books", {"id": int, "title": str})
    for name, (act, operation, description) in STEPS.items():
        if name in ("delete", "delete in SQL", "restore"):
            lake.table("books").merge(ROW, on="id")
        act(lake)
        newest = lake.snapshots().to_pylist()[-1]
        assert newest["operation"] == operation, name
        assert newest["description"] == description or not description, (name, newest)


def test_a_part_of_the_history_is_read_alone(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_PAGE", 3)
    table, other = lake.create_table("books", {"id": int}), lake.create_table("others", {"id": int})
    for number in range(4):
        table.append([{"id": number}])
        other.append([{"id": number}])
    lake.expire_snapshots(versions=[3, 4])
    whole = lake.snapshots().to_pylist()
    assert [row["snapshot_id"] for row in whole] == [0, 1, 2, 5, 6, 7, 8, 9, 10]
    for before in (None, 0, 1, 4, 5, 10, 11, 99):
        earlier = [row for row in whole if before is None or row["snapshot_id"] < before]
        for limit in (None, 1, 2, 99):
            assert lake.snapshots(limit, before=before).to_pylist() == earlier[-limit if limit else 0 :]
    mine = table.history().to_pylist()
    assert [row["snapshot_id"] for row in mine] == [9, 7, 5, 1]
    for limit in (1, 3, 4, 99):
        assert table.history(limit).to_pylist() == mine[:limit]
    for wrong in (0, -1, True, "1"):
        with pytest.raises(quacklake.errors.InputError, match="at least 1"):
            lake.snapshots(wrong)  # type: ignore[arg-type]
        with pytest.raises(quacklake.errors.InputError, match="at least 1"):
            table.history(wrong)  # type: ignore[arg-type]


def test_the_history_of_a_table_is_told_in_sql(lake: quacklake.Lake) -> None:
    table = lake.create_table("books", ROW)
    table.update({"title": "x"})
    result = lake.sql("DESCRIBE HISTORY books")
    assert result.columns == table.history().column_names
    assert [row[-2] for row in result.fetchall()] == ["UPDATE", "CREATE TABLE AS"]
    lake.create_table("history", {"a": int})
    assert lake.sql("DESCRIBE history").fetchall()[0][0] == "a"
    with pytest.raises(quacklake.errors.NotFoundError):
        lake.sql("DESCRIBE HISTORY bocks")
    with pytest.raises(SqlError):
        lake.sql("DESCRIBE HISTORY books and more")


def test_nothing_more_is_written_for_it(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("books", ROW)
        table.append(ROW)
        telemetry.reset()
        table.append(ROW)
        assert telemetry.snapshot().counters["catalog.statements"] <= 12
        with lake._context.catalog.read() as reader:
            tokens = [str(row[0]) for row in reader.run("t", reader.meta.own["commits"].select())]
    assert {operations_of(token) for token in tokens} == {Operation.INSERT}


def test_a_backup_remembers_what_was_asked(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.create_table("books", ROW).merge(ROW, on="id")
        told = lake.snapshots().select(["operation", "description"])
        lake.backup(tmp_path / "copies")
    with quacklake.restore_backup(
        tmp_path / "copies", f"duckdb:///{tmp_path}/other.db", data_path=tmp_path / "other"
    ) as other:
        assert other.snapshots().select(["operation", "description"]).slice(0, told.num_rows).equals(told)


def test_the_commits_of_other_clients_are_told_by_their_codes(tmp_path: Path, stock: Stock) -> None:
    plain_only("stock DuckDB opens the lake")
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", {"id": int})
    for statement in (
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET id = 2",
        "DELETE FROM t",
        "CREATE TABLE u AS SELECT 1 x",
    ):
        stock.run(url, statement)
    with quacklake.connect(url) as lake:
        told = lake.snapshots().select(["operation", "description"]).to_pylist()[2:]
    assert [row["operation"] for row in told] == ["INSERT", "UPDATE or MERGE", "DELETE", "CREATE TABLE AS"]
    assert [row["description"] for row in told] == [
        "inserted rows into main.t",
        "changed rows of main.t",
        "deleted rows from main.t",
        "created table main.u, inserted rows into main.u",
    ]
