from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quacklake.cli.sources import open_source
from quacklake.errors import InputError
from quacklake.format.schema import TableSchema, from_arrow

ROWS = [{"id": 1, "code": "007"}, {"id": 2, "code": "010"}]
CSV = "id,code\n1,007\n2,010\n"
JSON = '{"id": 1, "code": "007"}\n{"id": 2, "code": "010"}\n'


@pytest.fixture
def people() -> TableSchema:
    return from_arrow(pa.schema([("id", pa.int32()), ("code", pa.string())]))


def _parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "people.parquet": _parquet,
    "people.PQ": _parquet,
    "people.csv": lambda path: path.write_text(CSV),
    "people.tsv": lambda path: path.write_text(CSV.replace(",", "\t")),
    "people.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV.encode())),
    "people.jsonl": lambda path: path.write_text(JSON),
    "people.json": lambda path: path.write_text("[" + JSON.strip().replace("\n", ",") + "]"),
    "pe[o]ple*?.csv": lambda path: path.write_text(CSV),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_read_by_its_name(name: str, people: TableSchema) -> None:
    path = Path(name)
    WRITERS[name](path)
    with open_source(path) as source:
        rows = source.read(people).read_all()
    assert rows.to_pylist() == ROWS


def test_the_format_can_be_given(people: TableSchema) -> None:
    Path("people.data").write_text(CSV)
    with pytest.raises(InputError, match="does not say what is in it"):
        open_source(Path("people.data"))
    with open_source(Path("people.data"), "csv") as source:
        assert source.read(people).read_all().to_pylist() == ROWS


def test_text_has_the_types_of_the_table(people: TableSchema) -> None:
    Path("people.csv").write_text("code,id,more\n007,1,2\n")
    with open_source(Path("people.csv")) as source:
        schema = source.read(people).schema
    assert schema.names == ["code", "id", "more"]
    assert schema.field("code").type == pa.string()
    assert schema.field("id").type == pa.int32()


def test_a_parquet_file_knows_its_rows() -> None:
    _parquet(Path("people.parquet"))
    with open_source(Path("people.parquet")) as source:
        assert source.total == len(ROWS)


@pytest.mark.parametrize(
    ("name", "content"),
    [("bad.parquet", "PAR1"), ("bad.csv", "id,code\n1,a\nx,b\n"), ("bad.json", '{"id": 1}\n{"id": \n')],
)
def test_a_damaged_file_is_named(name: str, content: str, people: TableSchema) -> None:
    Path(name).write_text(content)
    with pytest.raises(InputError, match=f"cannot read {name}"), open_source(Path(name)) as source:
        source.read(people).read_all()


def test_the_place_of_a_bad_value_is_told(people: TableSchema) -> None:
    Path("bad.csv").write_text("id,code\n1,a\nx,b\n")
    with pytest.raises(InputError, match=r'Line: 3.*column "id"'), open_source(Path("bad.csv")) as source:
        source.read(people).read_all()


def test_a_missing_file_and_a_folder_are_told_apart() -> None:
    Path("folder.csv").mkdir()
    Path("people.csv").write_text(CSV)
    with pytest.raises(InputError, match="there is no file peple") as raised:
        open_source(Path("peple.csv"))
    assert str(raised.value.hint).startswith('did you mean "people.csv"')
    with pytest.raises(InputError, match=r"folder\.csv is a folder"):
        open_source(Path("folder.csv"))
