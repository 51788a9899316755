"""Files, folders, patterns, datasets and lazy frames as rows."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.errors import InputError, SchemaMismatchError
from quacklake.inputs.files import open_files

ROWS = [{"id": 1, "code": "007"}, {"id": 2, "code": "010"}]
CSV = "id,code\n1,007\n2,010\n"
JSON = '{"id": 1, "code": "007"}\n{"id": 2, "code": "010"}\n'
TABLE = pa.Table.from_pylist(ROWS)


pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(params=[0, 10], ids=["files", "inlined"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=request.param
    ) as lake:
        yield lake


def _stream(path: Path) -> None:
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        writer.write_table(TABLE)


WRITERS: dict[str, Callable[[Path], object]] = {
    "people.parquet": lambda path: pq.write_table(TABLE, path),
    "people.PQ": lambda path: pq.write_table(TABLE, path),
    "people.csv": lambda path: path.write_text(CSV),
    "people.tsv": lambda path: path.write_text(CSV.replace(",", "\t")),
    "people.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV.encode())),
    "people.jsonl": lambda path: path.write_text(JSON),
    "people.json": lambda path: path.write_text("[" + JSON.strip().replace("\n", ",") + "]"),
    "people.arrow": lambda path: pa.feather.write_feather(TABLE, path),
    "people.arrows": _stream,
    "pe[o]ple*?.csv": lambda path: path.write_text(CSV),
}


def by_id(table: quacklake.Table) -> list[dict[str, Any]]:
    """The rows in order: a stream is written by several threads."""
    return sorted(table.to_pylist(), key=lambda row: int(row["id"]))


@pytest.fixture
def people(lake: quacklake.Lake) -> quacklake.Table:
    return lake.create_table("people", pa.schema([("id", pa.int32()), ("code", pa.string())]))


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_appended_by_its_name(people: quacklake.Table, name: str, kind: Callable[[str], Any]) -> None:
    WRITERS[name](Path(name))
    assert people.append(kind(name)) == 2
    assert people.to_pylist() == ROWS


@pytest.mark.parametrize("name", [name for name in WRITERS if "parquet" in name or "arrow" in name])
def test_a_file_becomes_a_table(lake: quacklake.Lake, name: str) -> None:
    WRITERS[name](Path(name))
    assert lake.create_table("t", Path(name)).to_pylist() == ROWS


def test_a_csv_file_becomes_a_table_with_guessed_types(lake: quacklake.Lake) -> None:
    Path("a.csv").write_text("id,day,price,name\n1,2025-01-02,1.5,x\n")
    table = lake.create_table("t", "a.csv")
    assert [str(field.type) for field in table.schema] == ["int64", "date32[day]", "double", "string"]


def test_files_can_be_merged_and_overwrite_rows(people: quacklake.Table) -> None:
    Path("a.csv").write_text(CSV)
    Path("b.csv").write_text("id,code\n2,new\n3,003\n")
    people.append("a.csv")
    assert people.merge("b.csv", on="id") == quacklake.MergeResult(updated=1, inserted=1)
    assert sorted(people.to_pylist(), key=lambda row: int(row["id"]))[1:] == [
        {"id": 2, "code": "new"},
        {"id": 3, "code": "003"},
    ]
    assert people.overwrite(Path("a.csv")) == 2
    assert people.to_pylist() == ROWS


def test_new_keys_alone_are_taken_from_a_file(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", ROWS, primary_key="id")
    Path("b.csv").write_text("id,code\n2,no\n3,003\n")
    assert table.append("b.csv", dedup=True) == 1
    assert table.to_pylist(where="id >= 2") == [{"id": 2, "code": "010"}, {"id": 3, "code": "003"}]


def test_a_folder_a_pattern_and_a_list_name_many_files(people: quacklake.Table) -> None:
    Path("in/deep").mkdir(parents=True)
    Path("in/a.csv").write_text("id,code\n1,007\n")
    Path("in/deep/b.csv").write_text("code,id\n010,2\n")  # another order
    Path("in/_SUCCESS").write_text("")
    Path("in/.hidden.csv").write_text("nonsense")
    for form in ("in", Path("in"), "in/**/*.csv", ["in/a.csv", Path("in/deep/b.csv")]):
        assert people.overwrite(form) == 2
        assert by_id(people) == ROWS


def test_a_column_that_one_of_several_files_lacks_is_null(lake: quacklake.Lake) -> None:
    for number, format in enumerate(("csv", "json", "parquet", "arrow")):
        first, second = Path(f"{format}1.{format}"), Path(f"{format}2.{format}")
        _write(format, [{"id": 1}], first)
        _write(format, [{"id": 2, "late": "x"}], second)
        table = lake.create_table(f"t{number}", f"{format}?.{format}")
        assert by_id(table) == [{"id": 1, "late": None}, {"id": 2, "late": "x"}]


def _write(format: str, rows: list[dict[str, Any]], path: Path) -> None:
    table = pa.Table.from_pylist(rows)
    match format:
        case "csv":
            pa.csv.write_csv(table, path)
        case "json":
            path.write_text("\n".join(json.dumps(row) for row in rows))
        case "parquet":
            pq.write_table(table, path)
        case _:
            pa.feather.write_feather(table, path)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_names_of_folders_are_columns(lake: quacklake.Lake, format: str) -> None:
    for year in (2024, 2025):
        Path(f"run=1/in/year={year}").mkdir(parents=True)
        _write(format, [{"id": year}], Path(f"run=1/in/year={year}/a.{format}"))
    rows = [{"id": 2024, "year": 2024}, {"id": 2025, "year": 2025}]
    assert by_id(lake.create_table("t", "run=1/in")) == rows
    assert by_id(lake.create_table("u", f"run=1/in/*/*.{format}")) == rows
    assert lake.create_table("v", f"run=1/in/year=2024/a.{format}").to_pylist() == [{"id": 2024}]
    texts = lake.create_table("w", pa.schema([("id", pa.int64()), ("year", pa.string())]))
    texts.append("run=1/in")
    assert {row["year"] for row in texts.to_pylist()} == {"2024", "2025"}


def test_a_key_that_comes_late_in_a_json_file_is_not_lost(lake: quacklake.Lake) -> None:
    with Path("a.json").open("w") as file:
        for number in range(30_000):
            file.write(f'{{"id": {number}}}\n')
        file.write('{"id": 30000, "late": "x"}\n')
    assert lake.create_table("t", "a.json").to_pylist(where="id = 30000") == [{"id": 30_000, "late": "x"}]
    table = lake.create_table("u", pa.schema([("id", pa.int64())]))
    with pytest.raises(SchemaMismatchError, match='unknown column "late"'):
        table.append("a.json")
    assert table.append("a.json", evolve=True) == 30_001


def test_what_is_not_there_is_told(people: quacklake.Table, folder: Path) -> None:
    Path("empty").mkdir()
    Path("mixed").mkdir()
    Path("mixed/a.csv").write_text(CSV)
    Path("mixed/a.json").write_text(JSON)
    Path("odd").mkdir()
    Path("odd/a.csv").write_text(CSV)
    Path("odd/part-0").write_text(CSV)
    Path("nothing.csv").touch()
    Path("people.data").write_text(CSV)
    for given, message in {
        "missing.csv": "there is no file missing.csv",
        "*.pq": r"no file has a name like \*.pq",
        "empty": "the folder empty has no files",
        "mixed": "mixed has files of several formats: csv and json",
        "nothing.csv": "nothing.csv is empty",
        "odd": "the name of odd/part-0 does not say what is in it",
        "people.data": "the name of people.data does not say what is in it",
        "s3://bucket/a.csv": "is not a file of this machine",
    }.items():
        with pytest.raises(InputError, match=message):
            people.append(given)
    with pytest.raises(InputError) as caught:
        people.append("SELECT 1 AS id, 'x' AS code")
    assert caught.value.hint == "to use SQL, pass lake.sql(…): its rows can be appended"
    with pytest.raises(InputError, match='the format "xml" is not known'):
        open_files("people.data", "xml")
    assert people.count() == 0


def test_the_format_can_be_given(people: quacklake.Table) -> None:
    Path("people.data").write_text(CSV)
    files = quacklake.open_files("people.data", "csv")
    assert files.read(people.info.schema).read_all().to_pylist() == ROWS
    assert people.append(files) == 2
    assert people.overwrite(files) == 2
    assert people.to_pylist() == ROWS


def test_the_rows_of_parquet_files_are_known_before_they_are_read() -> None:
    WRITERS["people.parquet"](Path("people.parquet"))
    Path("people.csv").write_text(CSV)
    assert open_files("people.parquet").total == 2
    assert open_files("people.csv").total is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bad.parquet", "PAR1"),
        ("bad.csv", "id,code\n1,a\nx,b\n"),
        ("bad.json", '{"id": 1}\n{"id": \n'),
        ("bad.arrow", "ARROW1"),
        ("ragged.csv", "id,code\n1,a\n2,b,c\n"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_changes(people: quacklake.Table, name: str, content: str) -> None:
    Path(name).write_text(content)
    with pytest.raises(InputError, match=f"cannot read {name}"):
        people.append(name)
    assert people.count() == 0


def test_a_bad_value_far_down_is_told_with_its_line(people: quacklake.Table) -> None:
    Path("bad.csv").write_text("id,code\n" + "1,a\n" * 200_000 + "x,b\n")
    with pytest.raises(InputError, match=r'Line: 200002.*column "id"'):
        people.append("bad.csv")
    assert people.count() == 0


def test_an_error_of_a_stream_is_raised_as_it_is(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"id": pa.int64()})

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            yield pa.record_batch({"id": pa.array(range(10_000))})
        raise LookupError("the source went away")

    with pytest.raises(LookupError, match="the source went away"):
        table.append(pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches()))
    assert table.count() == 0


# -- frames that are not there yet -------------------------------------------------------------------------------------


def test_a_lazy_frame_is_collected_in_batches(lake: quacklake.Lake) -> None:
    lazy = pl.LazyFrame({"id": range(200_000)}).with_columns(
        name=pl.lit("x"), kind=pl.lit("a").cast(pl.Categorical), size=pl.lit("s").cast(pl.Enum(["s", "m"]))
    )
    table = lake.create_table("t", lazy)
    assert table.count() == 200_000
    assert table.append(lazy.filter(pl.col("id") < 3)) == 3
    assert table.count("kind = 'a' AND size = 's'") == 200_003
    with pytest.raises(SchemaMismatchError):
        table.append(lazy.select("id"))


def test_an_error_of_a_lazy_frame_is_the_cause_of_ours(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"id": pa.int64()})
    with pytest.raises(InputError, match="the rows cannot be read") as caught:
        table.append(pl.LazyFrame({"id": ["1", "x"]}).with_columns(pl.col("id").cast(pl.Int64)))
    assert isinstance(caught.value.__cause__, pl.exceptions.PolarsError)
    assert table.count() == 0


def test_a_dataset_is_streamed(lake: quacklake.Lake) -> None:
    pq.write_table(TABLE, "a.parquet")
    pq.write_table(TABLE.slice(1), "b.parquet")
    whole = ds.dataset(["a.parquet", "b.parquet"])
    assert by_id(lake.create_table("t", whole)) == [*ROWS, ROWS[1]]
    assert lake.table("t").append(whole.filter(ds.field("id") == 1)) == 1
    assert lake.table("t").append(whole.scanner(filter=ds.field("id") == 2)) == 2


def test_frames_that_follow_one_another_are_one_append(lake: quacklake.Lake) -> None:
    parts = [TABLE.slice(0, 1), TABLE.slice(1, 1).select(["code", "id"])]
    for number, frames in enumerate(
        (parts, (part.to_batches()[0] for part in parts), [part.to_pandas() for part in parts])
    ):
        table = lake.create_table(f"t{number}", frames)
        assert by_id(table) == ROWS
        assert table.history().num_rows == 1
    copy = lake.create_table("copy", table.to_batches())
    assert by_id(copy) == ROWS
    Path("a.csv").write_text(CSV)
    with pd.read_csv("a.csv", chunksize=1, dtype={"code": str}) as chunks:
        assert copy.append(chunks) == 2


def test_frames_with_other_columns_are_refused(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", ROWS)
    with pytest.raises(SchemaMismatchError, match="frame 2 has other columns than the first: id"):
        table.append([TABLE, TABLE.select(["id"])])
    with pytest.raises(InputError):
        table.append([TABLE, pa.table({"id": ["x"], "code": ["x"]})])
    assert table.count() == 2


def test_a_frame_of_spark_is_sent_elsewhere(lake: quacklake.Lake) -> None:
    class Frame:
        pass

    Frame.__module__ = "pyspark.sql.dataframe"
    with pytest.raises(SchemaMismatchError) as caught:
        lake.create_table("t", Frame())
    assert caught.value.hint == "quacklake.spark(lake) writes frames of Spark"


def test_files_are_read_again_after_a_lost_race(tmp_path: Path, lake: quacklake.Lake) -> None:
    table = lake.create_table("t", ROWS)
    Path("b.csv").write_text("id,code\n1,new\n")
    from quacklake.core.operations import dml

    merge = dml.merge
    lost: list[bool] = []

    def racing(*arguments: Any, **options: Any) -> Any:
        done = merge(*arguments, **options)
        if not lost:
            lost.append(True)
            with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as other:
                other.table("t").update({"code": "other"}, "id = 1")
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dml, "merge", racing)
        assert table.merge("b.csv", on="id").updated == 1
    assert lost
    assert table.to_pylist(where="id = 1") == [{"id": 1, "code": "new"}]


def test_a_home_folder_is_found(people: quacklake.Table, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", os.fspath(folder))
    Path("people.csv").write_text(CSV)
    assert people.append("~/people.csv") == 2


def test_times_of_csv_files_are_neither_cut_nor_shifted(lake: quacklake.Lake) -> None:
    zoned = "x\n2024-01-01T10:00:00+02:00\n2024-06-01T00:00:00Z\n"
    expected = [dt.datetime(2024, 1, 1, 8), dt.datetime(2024, 6, 1)]
    for name, type_ in (("local", "TIMESTAMP"), ("seconds", "TIMESTAMP_S"), ("day", "DATE")):
        lake.sql(f"CREATE TABLE {name} (x {type_})")
    Path("zoned.csv").write_text(zoned)
    for name in ("local", "seconds"):
        lake.table(name).append("zoned.csv")
        assert sorted(lake.table(name).to_arrow()["x"].to_pylist()) == expected
    for text in (zoned, "x\n2024-01-01 10:00:00\n"):
        Path("times.csv").write_text(text)
        with pytest.raises(InputError, match=r'the column "x" takes days, and has 2024-01-01 (08|10):00'):
            lake.table("day").append("times.csv")
    Path("days.csv").write_text("x\n2024-01-01 00:00:00\n2024-01-02 00:00:00\n")
    lake.table("day").append("days.csv")
    assert sorted(lake.table("day").to_arrow()["x"].to_pylist()) == [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
