"""Export tables, and read them with the tools of others."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import (
    AlreadyExistsError,
    InputError,
    NotFoundError,
    PathError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from tests.transfer.conftest import in_duckdb, texts

ROWS = pa.table(
    {
        "id": pa.array(range(200), pa.int64()),
        "year": pa.array([2023 + i % 3 if i else None for i in range(200)], pa.int32()),
        "name": [f"é{i}" if i % 5 else None for i in range(200)],
        "price": pa.array([Decimal(i) / 4 for i in range(200)], pa.decimal128(12, 2)),
        "at": pa.array(
            [dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=i) for i in range(200)],
            pa.timestamp("us", "UTC"),
        ),
        "tags": pa.array([["a", None] if i % 2 else [] for i in range(200)], pa.list_(pa.string())),
    }
)


@pytest.fixture
def shop(lake: quacklake.Lake) -> quacklake.Lake:
    """A lake with two tables and a view."""
    lake.create_schema("shop")
    orders = lake.create_table("shop.orders", ROWS)
    orders.set_comment("it's ours")
    lake.create_table("notes", {"text": "VARCHAR NOT NULL", "n": "INTEGER"})
    lake.sql("ALTER TABLE notes ALTER COLUMN n SET DEFAULT 3")
    lake.create_view("shop.dear", "SELECT id FROM shop.orders WHERE price > 40")
    return lake


def read(kind: str, place: Path) -> list[dict[str, Any]]:
    """The rows of shop.orders in a target, by a tool that is not ours."""
    match kind:
        case "parquet" | "csv" | "json":
            with duckdb.connect() as connection:
                connection.execute("SET TimeZone = 'UTC'")
                query = f"FROM read_{kind}('{place}/shop/orders/**/*.{kind}', hive_partitioning = true)"
                return arrow_table(connection, query).to_pylist()
        case "duckdb":
            with duckdb.connect(str(place), read_only=True) as connection:
                connection.execute("SET TimeZone = 'UTC'")
                return arrow_table(connection, "FROM shop.orders").to_pylist()
        case "delta":
            deltalake = pytest.importorskip("deltalake")
            return deltalake.DeltaTable(str(place / "shop" / "orders")).to_pyarrow_table().to_pylist()
        case _:
            iceberg = pytest.importorskip("pyiceberg.table")
            (metadata,) = (place / "shop" / "orders" / "metadata").glob("*.metadata.json")
            return iceberg.StaticTable.from_metadata(str(metadata)).scan().to_arrow().to_pylist()


KINDS = ["parquet", "csv", "json", "duckdb", "delta", "iceberg"]


def same(kind: str, found: list[dict[str, Any]]) -> None:
    wanted = ROWS.to_pylist()
    found.sort(key=lambda row: row["id"])
    if kind not in ("csv", "json"):
        assert [row | {"at": row["at"].astimezone(dt.UTC)} for row in found] == wanted
        return
    assert [(row["id"], row["year"], row["name"], Decimal(str(row["price"]))) for row in found] == [
        (row["id"], row["year"], row["name"], row["price"]) for row in wanted
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_others_read_the_same_rows(shop: quacklake.Lake, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "out"
    report = shop.export_to(f"{kind}:{place}", include=["shop.*"])
    assert [(table.table, table.rows, table.state) for table in report.tables] == [("shop.orders", 200, "exported")]
    assert report.snapshot_id == shop.current_snapshot()
    assert (report.views, len(report.left_out)) == ((("shop.dear",), 0) if kind == "duckdb" else ((), 1))
    same(kind, read(kind, place))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "lake.db", "out"]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_partitions_are_folders(shop: quacklake.Lake, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "out"
    shop.export_to(f"{kind}:{place}", include=["shop.*"], partition_by="year")
    folders = {path.parent.name for path in place.rglob("*.parquet")}
    assert {"year=2023", "year=2024", "year=2025"} < folders and len(folders) == 4
    same(kind, read(kind, place))
    if kind == "parquet":
        shop.import_from(f"parquet:{place}/shop", schema="back")
        assert texts(shop.sql("SELECT id, year, name, price FROM back.orders").fetchall()) == texts(
            shop.sql("SELECT id, year, name, price FROM shop.orders").fetchall()
        )
    with pytest.raises(InputError, match="there is no column"):
        shop.export_to(f"{kind}:{tmp_path}/other", partition_by="nothing")


def test_a_table_without_rows_is_written_too(shop: quacklake.Lake, tmp_path: Path) -> None:
    shop.export_to(f"parquet:{tmp_path}/out", "notes", partition_by="n")
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT text, n FROM '{tmp_path}/out/main/notes/*.parquet'").fetchall() == []


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_replaced_unless_told(shop: quacklake.Lake, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "out"
    shop.export_to(f"{kind}:{place}", include=["shop.*"])
    before = read(kind, place)
    shop.table("shop.orders").delete("id < 100")
    with pytest.raises(AlreadyExistsError):
        shop.export_to(f"{kind}:{place}", include=["shop.*"])
    assert texts([before]) == texts([read(kind, place)])
    if kind != "iceberg":
        shop.export_to(f"{kind}:{place}", include=["shop.*"], replace=True)
        assert len(read(kind, place)) == 100


@pytest.mark.parametrize("kind", ["parquet", "duckdb", "delta"])
@pytest.mark.parametrize("point", ["export.publish.before", "engine.*"])
def test_an_export_that_fails_leaves_what_was_there(
    shop: quacklake.Lake, tmp_path: Path, kind: str, point: str
) -> None:
    place = tmp_path / "out"
    shop.export_to(f"{kind}:{place}", include=["shop.*"])
    shop.table("shop.orders").delete("id < 100")
    with faults.record() as points:
        shop.export_to(f"{kind}:{tmp_path}/other", include=["shop.*"])
    if point not in points:
        point = "*"
    with faults.arm(Fault(pattern=point)), pytest.raises(FaultInjected):
        shop.export_to(f"{kind}:{place}", include=["shop.*"], replace=True)
    assert len(read(kind, place)) == 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "lake.db", "other", "out"]


@pytest.mark.parametrize("kind", ["parquet", "duckdb"])
def test_a_command_that_is_killed_leaves_nothing_that_looks_whole(
    shop: quacklake.Lake, tmp_path: Path, kind: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "quacklake.cli",
        "export",
        f"{kind}:{tmp_path}/out",
        "--lake",
        shop.url,
        "--output",
        "json",
    ]
    killed = subprocess.run(command, env=os.environ | {"QUACKLAKE_FAULT": "1:kill:export.publish.before"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout)["rows"] == 200


def test_an_export_is_of_one_snapshot_also_of_an_old_one(shop: quacklake.Lake, tmp_path: Path) -> None:
    old = shop.current_snapshot()
    shop.table("shop.orders").delete()
    shop.drop_table("notes")
    report = shop.at(version=old).export_to(f"duckdb:{tmp_path}/old.duckdb")
    assert {table.table: table.rows for table in report.tables} == {"main.notes": 0, "shop.orders": 200}
    assert report.snapshot_id == old
    same("duckdb", read("duckdb", tmp_path / "old.duckdb"))


def test_a_duckdb_file_has_comments_defaults_and_required_columns(shop: quacklake.Lake, tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    shop.export_to(f"duckdb:{path}")
    assert in_duckdb(path, "SELECT comment FROM duckdb_tables() WHERE table_name = 'orders'") == [("it's ours",)]
    assert in_duckdb(path, "SELECT count(*) FROM shop.dear") == [(39,)]
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO notes (text) VALUES ('x')")
        assert connection.execute("FROM notes").fetchall() == [("x", 3)]
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("INSERT INTO notes VALUES (NULL, 1)")


def test_types_that_a_target_lacks_keep_their_values_and_are_told(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE t (big UHUGEINT, span INTERVAL, daily TIMETZ, u UUID, j JSON, n UBIGINT)")
    row = (
        "340282366920938463463374607431768211455",
        "1 year 2000000:00:00",
        "12:00:00+02",
        "9b5e598b-1e2d-4f82-9123-37f0493f49ac",
        '{"a": 1}',
        "18446744073709551615",
    )
    lake.sql(
        "INSERT INTO t VALUES (340282366920938463463374607431768211455, INTERVAL 1 YEAR + to_hours(2000000), '12:00:00+02', $1, $2, 18446744073709551615)",
        list(row[3:5]),
    )
    query = "SELECT big::VARCHAR, span::VARCHAR, daily::VARCHAR, u::VARCHAR, j::VARCHAR, n::VARCHAR FROM {}"
    lake.export_to(f"duckdb:{tmp_path}/out.duckdb")
    assert in_duckdb(tmp_path / "out.duckdb", query.format("t")) == [row]
    lake.sql("UPDATE t SET big = 5")
    report = lake.export_to(f"parquet:{tmp_path}/out")
    with duckdb.connect() as connection:
        found = connection.execute(query.format(f"'{tmp_path}/out/main/t/*.parquet'")).fetchall()
    assert found == [("5", *row[1:])]
    assert {part.what for part in report.left_out} == {"main.t.big", "main.t.span", "main.t.daily"}
    deltalake = pytest.importorskip("deltalake")
    lake.export_to(f"delta:{tmp_path}/delta", "t")
    (found_row,) = deltalake.DeltaTable(str(tmp_path / "delta")).to_pyarrow_table().to_pylist()
    assert tuple(map(str, found_row.values())) == ("5", *row[1:])


def test_what_cannot_be_exported_is_refused_before_anything_is_written(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.create_table("fine", [{"a": 1}])
    lake.sql("CREATE TABLE v (a VARIANT)")
    lake.sql('CREATE SCHEMA "../up"')
    lake.sql('CREATE TABLE "../up".t AS SELECT 1 AS a')
    lake.sql("CREATE TABLE ns (a TIMESTAMP_NS)")
    with pytest.raises(UnsupportedFeatureError, match="VARIANT"):
        lake.export_to(f"parquet:{tmp_path}/out", include=["v"])
    for kind in ("parquet", "delta", "iceberg"):
        with pytest.raises(InputError, match="cannot be the name of a folder"):
            lake.export_to(f"{kind}:{tmp_path}/out", exclude=["v", "ns"])
    for kind in ("delta", "iceberg"):
        with pytest.raises((InputError, SchemaMismatchError)):
            lake.export_to(f"{kind}:{tmp_path}/out", include=["ns"])
    with pytest.raises(NotFoundError, match="nothing"):
        lake.export_to(f"parquet:{tmp_path}/out", "nothing")
    with pytest.raises(InputError, match="no table"):
        lake.export_to(f"parquet:{tmp_path}/out", include=["zzz"])
    with pytest.raises(InputError, match="does not exist"):
        lake.export_to(f"parquet:{tmp_path}/no/such/out", "fine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "lake.db"]


@pytest.mark.parametrize("place", ["data", "data/below", "", "lake.db"])
def test_an_export_does_not_go_where_the_lake_is(shop: quacklake.Lake, tmp_path: Path, place: str) -> None:
    for kind in ("parquet", "duckdb", "delta"):
        with pytest.raises(PathError, match="where a lake has its files"):
            shop.export_to(f"{kind}:{tmp_path}/{place}", replace=True)
    assert shop.verify(deep=True).ok


def test_a_dry_run_writes_nothing(shop: quacklake.Lake, tmp_path: Path) -> None:
    report = shop.export_to(f"parquet:{tmp_path}/out", dry_run=True)
    assert {table.table: (table.rows, table.state) for table in report.tables} == {
        "main.notes": (0, "would be exported"),
        "shop.orders": (200, "would be exported"),
    }
    assert not (tmp_path / "out").exists()
