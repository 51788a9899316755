"""Values at the edges of every Arrow type: stored exactly, for both clients, or refused with nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import NotFoundError, QuacklakeError
from tests import seeds
from tests.layout import LAYOUT

from .arrow_edges import EDGES, meaning
from .clients import reference_duckdb

_ALWAYS = (
    "timestamp[ns]/-9223372036854775806",
    "timestamp[s]/4611686018427387904",
    "timestamp[us]/-9223372036854775808",
    "timestamp[ns, tz=UTC]/1",
    "time32[ms]/-1",
    "time64[us]/86400000001",
    "date32/-2147483648",
    "date64/86400001",
    "duration[us]/1",
    "duration[us]/9223372036854775807",
    "interval/1,2,3000",
    "interval/0,0,4320000000000000",
    "halffloat",
    "decimal256(38, 2)",
    "decimal128(5, -2)",
    "dictionary of structs",
    "list of halves",
    "list of intervals",
    "broken json",
    "struct of broken json",
    "map with a key twice",
    "map in a list",
)


def _append(lake: quacklake.Lake, name: str, rows: pa.Table) -> None:
    lake.create_table(name, rows.schema).append(rows)


def _stream(lake: quacklake.Lake, name: str, rows: pa.Table) -> None:
    table = lake.create_table(name, rows.schema)
    lake.options.set("data_inlining_row_limit", 0, table=name)
    table.append(rows.to_reader())


def _merge(lake: quacklake.Lake, name: str, rows: pa.Table) -> None:
    table = lake.create_table(name, rows.schema)
    table.merge(rows, on="k")


def _flush(lake: quacklake.Lake, name: str, rows: pa.Table) -> None:
    lake.create_table(name, rows).flush_inlined_data()


@pytest.mark.parametrize("write", [_append, _stream, _merge, _flush])
def test_values_are_stored_exactly_or_refused(
    write: Callable[[quacklake.Lake, str, pa.Table], None], tmp_path: Path
) -> None:
    cases = seeds.some(EDGES, 32, "edge values", write.__name__, always=_ALWAYS)
    texts: dict[str, list[tuple[str | None]]] = {}
    stored = 0
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        for number, case in enumerate(cases):
            name, values = f"t{number}", EDGES[case]
            rows = pa.table({"k": pa.array(range(len(values)), pa.int64()), "v": values})
            try:
                write(lake, name, rows)
            except QuacklakeError:
                _check_unchanged(lake, name, values, flushed=write is _flush)
                continue
            found = lake.table(name).to_arrow().sort_by("k").column("v")
            assert list(map(meaning, found)) == list(map(meaning, values)), case
            texts[name] = lake.sql(f"SELECT v::VARCHAR FROM {name} ORDER BY k").fetchall()
            stored += 1
        assert stored >= (len(cases) // 4 if seeds.LONG else 1)
    if LAYOUT == "shared":
        return
    with reference_duckdb() as stock:
        stock.execute(f"ATTACH 'ducklake:sqlite:{tmp_path}/l.db' AS l")
        found_by_stock = {
            name: stock.execute(f"SELECT v::VARCHAR FROM l.{name} ORDER BY k").fetchall() for name in texts
        }
        stock.execute("DETACH l")
    assert found_by_stock == texts


def _check_unchanged(lake: quacklake.Lake, name: str, values: pa.Array, *, flushed: bool) -> None:
    """Assert that there is no table, no row or, if rows cannot go into a file, all of them unchanged."""
    try:
        rows = lake.table(name).to_arrow().sort_by("k")
    except NotFoundError:
        return
    if flushed and rows.num_rows:
        assert list(map(meaning, rows.column("v"))) == list(map(meaning, values))
    else:
        assert rows.num_rows == 0


def test_the_engine_lives_on_after_values_that_it_cannot_read(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", [{"k": 1}])
        for case in ("time32[ms]/-1", "decimal128(5, -2)", "time64[us]/86400000001", "date32/-2147483648"):
            with pytest.raises(QuacklakeError):
                lake.register("bad", pa.table({"v": EDGES[case]}))
        lake.register("pairs", pa.table({"v": EDGES["dictionary of structs"]}))
        assert lake.sql("SELECT v.a FROM pairs").fetchall() == [(1,), (1,), (None,)]
        assert table.count("k = 1") == 1


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        (EDGES["timestamp[ns, tz=UTC]/1"], "floor"),
        (EDGES["date64/86400001"], "time of the day"),
        (EDGES["timestamp[ns]/-9223372036854775806"], "1677-09-22"),
    ],
)
def test_the_error_names_the_column_and_what_to_do(values: pa.Array, hint: str, tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        with pytest.raises(QuacklakeError, match='"v"') as caught:
            lake.create_table("t", pa.table({"v": values}))
        assert hint in (caught.value.hint or "")
        assert lake.current_snapshot() == 0
