"""Import folders of files and tables of other formats, end imports anywhere, and go on."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import AlreadyExistsError, ConnectorError, InputError, QuacklakeError, StreamMismatchError
from tests.catalog.stock import Stock
from tests.connectors.adoption import HandMade, field
from tests.seeds import some
from tests.transfer.conftest import texts


def write(path: Path, rows: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of three tables: by hive partitions, in a schema, and on their own."""
    place = tmp_path / "in"
    for year in (2023, 2024, 2025):
        rows = pa.table({"id": pa.array(range(year, year + 100), pa.int32()), "name": [f"n{i}" for i in range(100)]})
        write(place / "orders" / f"year={year}" / "a.parquet", rows if year < 2025 else rows.drop(["name"]))
    write(place / "shop" / "items" / "old" / "1.parquet", pa.table({"sku": ["a", None]}))
    write(place / "shop" / "items" / "2.parquet", pa.table({"sku": ["b"]}))
    write(place / "alone.parquet", pa.table({"x": [1.5]}))
    (place / "orders" / "_SUCCESS").write_text("")
    return place


def counts(lake: quacklake.Lake) -> dict[str, int]:
    return {name: lake.table(name).count() for name in lake.tables()}


EXPECTED = {"main.alone": 1, "main.orders": 300, "shop.items": 3}


def test_each_folder_becomes_a_table_with_the_rows_that_duckdb_reads(
    lake: quacklake.Lake, folder: Path, stock: Stock
) -> None:
    report = lake.import_from(f"parquet:{folder}")
    assert counts(lake) == EXPECTED
    assert report.rows == 304
    with duckdb.connect() as connection:
        query = "SELECT id, name, year::VARCHAR FROM {}"
        source = f"read_parquet('{folder}/orders/*/*.parquet', union_by_name = true, hive_partitioning = true)"
        theirs = connection.execute(query.format(source)).fetchall()
    assert texts(stock.run(lake.url, query.format("l.orders"))) == texts(theirs)


def test_files_stay_in_place_where_asked(tmp_path: Path, folder: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", foreign_paths=[str(folder)]) as lake:
        lake.import_from(f"parquet:{folder}", in_place=True)
        assert counts(lake) == EXPECTED
        files = lake.table("orders").files().column("path").to_pylist()
        assert all(str(folder) in path for path in files)
        again = lake.import_from(f"parquet:{folder}", in_place=True)
        assert {table.state for table in again.tables} == {"already imported"}
        assert counts(lake) == EXPECTED


@pytest.mark.parametrize("in_place", [False, True])
def test_the_index_of_pandas_files_comes_over_as_columns(tmp_path: Path, in_place: bool) -> None:
    folder = tmp_path / "in"
    frames = {
        "texts": pd.DataFrame({"n": [1]}, index=["a"]),
        "labels": pd.DataFrame({"n": [1]}, index=[7]),
        "counted": pd.DataFrame({"n": [1]}, index=pd.RangeIndex(7, 8, name="id")),
    }
    for name, frame in frames.items():
        (folder / name).mkdir(parents=True)
        frame.to_parquet(folder / name / "1.parquet")
        frame.to_parquet(folder / name / "2.parquet")
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", foreign_paths=[str(folder)]) as lake:
        lake.import_from(f"parquet:{folder}", in_place=in_place)
        assert lake.table("texts").to_pylist() == [{"n": 1, "index": "a"}] * 2
        assert lake.table("labels").to_pylist() == [{"n": 1}] * 2
        assert lake.table("counted").to_pylist() == [{"n": 1} if in_place else {"n": 1, "id": 7}] * 2


def test_one_name_makes_one_table_of_a_folder(lake: quacklake.Lake, folder: Path) -> None:
    with pytest.raises(InputError, match="says no name"):
        lake.import_from(f"parquet:{folder}/orders")
    lake.create_schema("shop")
    lake.import_from(f"parquet:{folder}/orders", "shop.all orders")
    assert lake.table("shop.all orders").count() == 300
    assert lake.sql('SELECT year, count(*) FROM shop."all orders" GROUP BY ALL ORDER BY ALL').fetchall() == [
        (2023, 100),
        (2024, 100),
        (2025, 100),
    ]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_texts_come_over_with_the_types_of_all_files(lake: quacklake.Lake, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "in" / "t"
    place.mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT i AS a, 'x' AS b FROM range(3) r(i)) TO '{place}/1.{kind}'")
        connection.execute(f"COPY (SELECT 1.5 AS a, 'y' AS b) TO '{place}/2.{kind}'")
    lake.import_from(f"{kind}:{place.parent}")
    assert sorted(lake.table("t").to_pylist(), key=str) == [
        {"a": 0.0, "b": "x"},
        {"a": 1.0, "b": "x"},
        {"a": 1.5, "b": "y"},
        {"a": 2.0, "b": "x"},
    ]


def test_an_import_that_ends_anywhere_goes_on_and_copies_nothing_twice(tmp_path: Path, folder: Path) -> None:
    def import_once(place: Path) -> None:
        with quacklake.connect(f"sqlite:///{place}/lake.db", data_path=place / "data", duckdb_threads=1) as lake:
            lake.import_from(f"parquet:{folder}", commit_rows=1)

    (tmp_path / "0").mkdir()
    with faults.record() as points:
        import_once(tmp_path / "0")
    chosen = [at for at, point in enumerate(points, 1) if point.startswith("import.")]
    assert len(chosen) == 12, "six commits, and two points in each"
    for at in some(chosen, 4, "import deaths"):
        place = tmp_path / str(at)
        place.mkdir()
        with faults.arm(Fault(at=at)), pytest.raises(FaultInjected):
            import_once(place)
        import_once(place)
        with quacklake.connect(f"sqlite:///{place}/lake.db", data_path=place / "data") as lake:
            assert counts(lake) == EXPECTED, points[at - 1]
            assert lake.sql("SELECT count(DISTINCT (id, year)) FROM orders").fetchall() == [(300,)]
            assert lake.verify().ok


def test_a_command_that_is_killed_goes_on_where_it_was(tmp_path: Path, folder: Path) -> None:
    words = [
        "import",
        f"parquet:{folder}",
        "--commit-rows",
        "1",
        "--lake",
        f"sqlite:///{tmp_path}/lake.db",
        "--output",
        "json",
    ]
    command = [sys.executable, "-m", "quacklake.cli", *words, "--create", "--data-path", str(tmp_path / "data")]
    killed = subprocess.run(command, env=os.environ | {"QUACKLAKE_FAULT": "4:kill:import.commit.after"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    report = json.loads(done.stdout)
    assert {table["table"]: (table["rows"], table["rows_before"]) for table in report["tables"]} == {
        "main.alone": (0, 1),
        "main.orders": (0, 300),
        "shop.items": (3, 0),
    }
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as lake:
        assert counts(lake) == EXPECTED


def test_files_that_changed_in_between_are_noticed(lake: quacklake.Lake, folder: Path) -> None:
    with faults.arm(Fault(at=2, pattern="import.commit.after")), pytest.raises(FaultInjected):
        lake.import_from(f"parquet:{folder}", commit_rows=1)
    write(folder / "orders" / "year=2023" / "a.parquet", pa.table({"id": [1], "name": ["other"]}))
    before = lake.current_snapshot()
    with pytest.raises(StreamMismatchError, match=r"main\.orders has changed"):
        lake.import_from(f"parquet:{folder}", commit_rows=1)
    assert lake.current_snapshot() == before


def test_a_damaged_file_leaves_the_table_without_its_rows(lake: quacklake.Lake, folder: Path) -> None:
    (folder / "shop" / "items" / "3.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(QuacklakeError):
        lake.import_from(f"parquet:{folder}")
    assert lake.tables() == []


@pytest.mark.parametrize("source", ["", "parquet", "parquet:", "ftp:x", "postgres", "oracle://me:secret@x/y", ":"])
def test_an_address_that_is_none_is_refused_without_its_secrets(lake: quacklake.Lake, source: str) -> None:
    with pytest.raises(InputError, match="is not the source of rows") as refused:
        lake.import_from(source)
    assert "secret@" not in str(refused.value)


# -- Delta and Iceberg -------------------------------------------------------------------------------------------------


def test_a_delta_table_comes_over_as_it_was_at_a_version(lake: quacklake.Lake, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    place = str(tmp_path / "foreign" / "events")
    deltalake.write_deltalake(place, pa.table({"id": [1, 2], "day": ["mo", "tu"]}), partition_by=["day"])
    deltalake.write_deltalake(place, pa.table({"id": [3], "day": ["we"]}), mode="append")
    lake.import_from(f"delta:{place}", "old", options={"version": 0})
    report = lake.import_from(f"delta:{place}")
    assert report.tables[0].table == "main.events"
    assert sorted(lake.table("old").to_arrow().column("id").to_pylist()) == [1, 2]
    assert sorted(map(str, lake.table("events").to_pylist())) == sorted(
        map(str, deltalake.DeltaTable(place).to_pyarrow_table().select(["id", "day"]).to_pylist())
    )


def test_deleted_rows_of_a_delta_table_do_not_come_over(lake: quacklake.Lake, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    table = HandMade(tmp_path / "foreign", [field("id", "long")], features=["deletionVectors"])
    table.commit(table.file("1.parquet", pa.table({"id": [1, 2, 3]})))
    lake.import_from(f"delta:{table.folder}", "before")
    table.commit(table.file("1.parquet", pa.table({"id": [1, 2, 3]}), vector=table.vector([1])))
    with pytest.raises(ConnectorError, match="deletion vectors"):
        lake.import_from(f"delta:{table.folder}", "t")
    assert lake.tables() == ["main.before"]


def test_columns_of_a_delta_table_with_other_names_in_its_files_are_not_read_as_null(
    lake: quacklake.Lake, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake")
    configuration = {"delta.columnMapping.mode": "name"}
    fields = [field("id", "long", id_=1, physical="col-1")]
    table = HandMade(tmp_path / "foreign", fields, features=["columnMapping"], configuration=configuration)
    table.commit(table.file("1.parquet", pa.table({"col-1": [1, 2, 3]})))
    with pytest.raises(ConnectorError, match="column mapping"):
        lake.import_from(f"delta:{table.folder}", "t")
    assert lake.tables() == []


def test_an_iceberg_table_comes_over_by_its_folder(lake: quacklake.Lake, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    lake.create_table(
        "t", pa.table({"id": [1, 2], "name": ["a", None], "at": pa.array([0, 1], pa.timestamp("us", "UTC"))})
    )
    lake.export_to(f"iceberg:{tmp_path}/out", "t")
    report = lake.import_from(f"iceberg:{tmp_path}/out/main/t", "back")
    assert report.rows == 2
    assert lake.table("back").to_arrow().sort_by("id") == lake.table("t").to_arrow().sort_by("id")
    with pytest.raises(InputError, match="not the folder of an Iceberg table"):
        lake.import_from(f"iceberg:{tmp_path}/data", "x")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_of_other_formats_stay_in_place_where_asked(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", foreign_paths=[str(tmp_path / "out")]
    ) as lake:
        lake.create_table("t", [{"id": 1}])
        lake.export_to(f"{kind}:{tmp_path}/out")
        report = lake.import_from(f"{kind}:{tmp_path}/out/main/t", "adopted", in_place=True)
        assert report.rows == 1
        assert lake.table("adopted").to_pylist() == [{"id": 1}]
        with pytest.raises(AlreadyExistsError):
            lake.import_from(f"{kind}:{tmp_path}/out/main/t", "adopted", in_place=True)


def test_text_files_are_imported_as_they_are_written(tmp_path: Path, lake: quacklake.Lake) -> None:
    place = tmp_path / "in"
    place.mkdir()
    (place / "pegel.csv").write_bytes("Ort;Tag;Stand\nKöln;31.12.2024;1.234,5\nBonn;01.01.2025;n/a\n".encode("cp1252"))
    with pytest.raises(InputError, match=r"pegel\.csv as csv: line 2 is not UTF-8") as caught:
        lake.import_from(f"csv:{place}")
    assert "--encoding windows-1252" in str(caught.value.hint)
    forms = {"encoding": "cp1252", "decimal": ",", "thousands": ".", "date_format": "%d.%m.%Y"}
    options = quacklake.CsvOptions(**forms, nulls=["n/a"])
    assert lake.import_from(f"csv:{place}", csv=options).rows == 2
    assert lake.table("pegel").to_pylist() == [
        {"Ort": "Köln", "Tag": dt.date(2024, 12, 31), "Stand": 1234.5},
        {"Ort": "Bonn", "Tag": dt.date(2025, 1, 1), "Stand": None},
    ]
    assert lake.import_from(f"csv:{place}", csv=options).tables[0].state == "already imported"
    with pytest.raises(StreamMismatchError):
        lake.import_from(f"csv:{place}", csv=quacklake.CsvOptions(**forms))
    with pytest.raises(InputError, match="parquet sources take no options of files"):
        lake.import_from(f"parquet:{place}", csv=options)


def test_a_sheet_of_each_workbook_is_imported(tmp_path: Path, lake: quacklake.Lake) -> None:
    place = tmp_path / "in"
    place.mkdir()
    book = openpyxl.Workbook()
    book.active.append(("notes",))
    for row in (("id", "level"), (1, 1.5), (2, None)):
        (book["Data"] if "Data" in book.sheetnames else book.create_sheet("Data")).append(row)
    book.save(place / "dock.xlsx")
    with pytest.raises(InputError, match="several sheets"):
        lake.import_from(f"excel:{place}")
    assert lake.import_from(f"excel:{place}", csv=quacklake.CsvOptions(sheet="Data")).rows == 2
    assert lake.table("dock").to_pylist() == [{"id": 1, "level": 1.5}, {"id": 2, "level": None}]
