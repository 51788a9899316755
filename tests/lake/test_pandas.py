"""Frames of pandas: their index, their names, and every Arrow type there and back without a copy."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.errors import ConstraintError, InputError, InvalidNameError, SchemaMismatchError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    url, data, foreign = f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", [str(tmp_path / "in")]
    with quacklake.connect(url, data_path=data, foreign_paths=foreign, duckdb_threads=1) as made:
        yield made


ROWS = pa.table(
    {
        "i": pa.array([2**62 + 1, None, 3], pa.int64()),
        "s": ["a", None, ""],
        "n": pa.array([Decimal("1.10"), None, Decimal("-2.00")], pa.decimal128(10, 2)),
        "d": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
        "z": pa.array([dt.datetime(9999, 1, 1, tzinfo=dt.UTC), None, None], pa.timestamp("us", "UTC")),
        "l": pa.array([[1, None], None, []], pa.list_(pa.int32())),
        "t": pa.array([{"x": 1.5}, None, {"x": None}]),
    }
)


def test_values_keep_their_arrow_types_there_and_back(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", ROWS)
    for frame in (
        table.to_pandas(dtype_backend="pyarrow"),
        table.scan().to_pandas(dtype_backend="pyarrow"),
        lake.sql("FROM t").to_pandas(dtype_backend="pyarrow"),
    ):
        assert all(isinstance(dtype, pd.ArrowDtype) for dtype in frame.dtypes)
        assert frame["i"].tolist() == [2**62 + 1, pd.NA, 3]
        back = lake.create_table(f"back{len(lake.tables())}", table.schema)
        assert back.append(frame) == 3
        assert back.to_pylist() == table.to_pylist() == ROWS.to_pylist()
    assert table.to_pandas(["i"], "i = 3", dtype_backend="pyarrow").to_dict("records") == [{"i": 3}]


def test_a_frame_shares_the_memory_that_was_read(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = lake.create_table("t", pa.table({"i": range(1000), "x": [0.5] * 1000, "s": ["text"] * 1000})).scan()
    read = scan.to_arrow()
    monkeypatch.setattr(type(scan), "to_arrow", lambda _: read)
    frame = scan.to_pandas(dtype_backend="pyarrow")
    for name in read.column_names:
        kept, given = pa.chunked_array(frame[name].array.__arrow_array__()).chunk(0), read[name].chunk(0)
        assert [b and b.address for b in kept.buffers()] == [b and b.address for b in given.buffers()]


def test_another_kind_of_types_is_refused(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"id": 1}])
    with pytest.raises(InputError, match="numpy_nullable") as caught:
        table.to_pandas(dtype_backend="numpy_nullable")
    assert "pyarrow" in str(caught.value.hint)


def test_an_index_with_the_name_of_a_column_and_other_values_is_refused(lake: quacklake.Lake) -> None:
    frame = pd.DataFrame({"id": [1, 2], "v": [1.5, None]})
    lake.create_table("kept", frame.set_index(["id", "v"], drop=False))
    assert lake.table("kept").to_pylist() == [{"id": 1, "v": 1.5}, {"id": 2, "v": None}]
    others = (pd.Index([7, 8], name="id"), pd.MultiIndex.from_arrays([[1, 2], [5, 6]], names=["id", "v"]))
    for index in others:
        with pytest.raises(SchemaMismatchError, match="the index of the pandas frame is named like") as caught:
            lake.create_table("lost", frame.set_index(index))
        assert "rename_axis" in str(caught.value.hint)
    assert lake.tables() == ["main.kept"]


def test_sparse_columns_are_read_as_others(lake: quacklake.Lake) -> None:
    frame = pd.DataFrame({"i": pd.arrays.SparseArray([0, 0, 7]), "s": ["a", "b", "c"]})
    expected = [(0, "a"), (0, "b"), (7, "c")]
    table = lake.create_table("t", frame)
    assert lake.sql("FROM t ORDER BY s").fetchall() == expected
    assert lake.sql("FROM frame ORDER BY s").fetchall() == expected
    assert table.merge(frame, on="s").updated == 3
    table.append(frame)
    assert table.count() == 6


SALES = pd.DataFrame({"region": ["a", "b", "a", "c"], "qty": [1, 2, 3, 4]})
LEFT = SALES[SALES["qty"].isin([1, 2, 4])]
"""Rows that are left of others: their index is whole numbers without a name."""
INDEXED = {
    "named": (SALES.groupby("region").sum(), ["qty", "region"]),
    "several names": (SALES.groupby(["region", "qty"]).size().to_frame("n"), ["n", "region", "qty"]),
    "a range with a name": (SALES.rename_axis("id"), ["region", "qty", "id"]),
    "texts without a name": (SALES.set_axis(list("wxyz")), ["region", "qty", "index"]),
    "texts beside a column index": (
        SALES.rename(columns={"qty": "Index"}).set_axis(list("wxyz")),
        ["region", "Index", "level_0"],
    ),
    "times": (SALES.set_axis(pd.date_range("2026-01-01", periods=4, tz="UTC")), ["region", "qty", "index"]),
    "levels without names": (pd.concat([LEFT, LEFT], keys=["u", "v"]), ["region", "qty", "level_0", "level_1"]),
    "levels with some names": (
        pd.concat([LEFT, LEFT], keys=["u", "v"], names=["part", None]),
        ["region", "qty", "part", "level_1"],
    ),
    "a range": (SALES, ["region", "qty"]),
    "labels of rows": (LEFT, ["region", "qty"]),
    "categories": (SALES.set_axis(pd.CategoricalIndex(list("xyxy"), name="k")), ["region", "qty", "k"]),
}


def _expected(frame: pd.DataFrame, names: list[str]) -> list[dict[str, Any]]:
    rows = frame.reset_index(names=names[len(frame.columns) :] or None, drop=len(names) == len(frame.columns))
    return rows[names].to_dict("records")


@pytest.mark.parametrize("kind", INDEXED)
def test_an_index_is_kept_as_columns_wherever_a_frame_comes_from(
    lake: quacklake.Lake, tmp_path: Path, kind: str
) -> None:
    frame, names = INDEXED[kind]
    file = tmp_path / "frame.parquet"
    frame.to_parquet(file)
    expected = _expected(frame, names)
    ways = {
        "frame": lambda: frame,
        "file": lambda: file,
        "table": lambda: pq.read_table(file),
        "list": lambda: [frame.iloc[:1], frame.iloc[1:]],
    }
    if kind != "a range with a name":  # of which a file, and so a stream, has only the bounds
        ways |= {"dataset": lambda: ds.dataset(file), "reader": lambda: pq.read_table(file).to_reader()}
    for way, make in ways.items():
        table = lake.create_table(way, make())
        assert (table.columns, table.to_pylist()) == (names, expected), way
        assert table.append(make()) == len(frame), way
        plain = lake.create_table(f"{way} alone", make(), index=False)
        assert plain.columns == list(frame.columns), way
        assert plain.append(make(), index=False) == len(frame), way
    if kind != "a range with a name":
        place = tmp_path / "in" / "1.parquet"
        place.parent.mkdir()
        frame.to_parquet(place)
        added = lake.create_table("added", frame)
        assert added.add_files(place) == len(frame)
        assert added.to_pylist() == expected * 2


def test_an_index_is_a_key_like_other_columns(lake: quacklake.Lake, tmp_path: Path) -> None:
    totals = SALES.groupby("region").sum()
    table = lake.create_table("totals", totals, primary_key="region")
    totals.to_parquet(tmp_path / "totals.parquet")
    for given in (totals, tmp_path / "totals.parquet"):
        assert table.merge(given).updated == 3
    assert table.append(totals * 2, dedup=True) == 0
    assert table.merge_builder(totals).when_matched_update_all().execute().updated == 3
    assert table.overwrite(totals, "region = 'a'") == 3
    with lake.transaction() as tx:
        assert tx.create_table("again", totals).columns == ["qty", "region"]
        assert tx.table("again").append(totals) == 3


def test_labels_of_rows_are_no_columns(lake: quacklake.Lake, tmp_path: Path) -> None:
    table = lake.create_table("t", SALES)
    LEFT.to_parquet(tmp_path / "left.parquet")
    frames = (LEFT, LEFT.sort_values("qty", ascending=False), pd.concat([LEFT, SALES]), LEFT.convert_dtypes())
    assert [table.append(frame) for frame in frames] == [3, 3, 7, 3]
    assert table.append(tmp_path / "left.parquet") == 3
    assert table.merge(LEFT.drop_duplicates("region"), on=["region", "qty"]).inserted == 0
    assert lake.create_table("empty", SALES[:0]).columns == ["region", "qty"]
    assert lake.create_table("other", pd.DataFrame({"x": []}, index=pd.Index([], dtype=object))).columns == ["x"]


def test_an_index_that_a_table_has_no_column_for_is_refused_with_the_switch(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", SALES)
    named = SALES.set_axis(list("wxyz")).rename_axis("label")
    for write in (table.append, lambda frame: table.merge(frame, on="qty"), table.overwrite):
        with pytest.raises(SchemaMismatchError, match='the index of the frame is "label"') as caught:
            write(named)
        assert "index=False" in str(caught.value.hint)
    with pytest.raises(SchemaMismatchError, match="the index"):
        table.append(pa.Table.from_pandas(named))
    assert table.append(named, index=False) == 4
    assert table.append(named, evolve=True) == 4
    assert table.to_pylist(["label"], "label IS NOT NULL") == [{"label": text} for text in "wxyz"]


def test_files_that_have_only_the_bounds_of_their_index(lake: quacklake.Lake, tmp_path: Path) -> None:
    for number, start in enumerate((0, 0, 5)):
        frame = pd.DataFrame({"v": [10 * number, 1]}, pd.RangeIndex(start, start + 4, 2, name="id"))
        frame.to_parquet(tmp_path / f"{number}.parquet")
    alike = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    expected = [{"v": 0, "id": 0}, {"v": 1, "id": 2}, {"v": 10, "id": 0}, {"v": 1, "id": 2}]
    assert lake.create_table("alike", alike).to_pylist() == expected
    with pytest.raises(InputError, match="each another") as caught:
        lake.create_table("others", [*alike, tmp_path / "2.parquet"])
    assert "index=False" in str(caught.value.hint)
    assert lake.create_table("others", [*alike, tmp_path / "2.parquet"], index=False).columns == ["v"]
    rows = pq.read_table(alike[0])
    assert lake.create_table("taken", rows.take([1])).columns == ["v"]  # as pandas reads it: the bounds are of others


def test_names_that_are_no_texts_are_those_of_pandas(lake: quacklake.Lake, tmp_path: Path) -> None:
    frame = SALES.pivot_table(index="region", values=["qty"], aggfunc=["min", "max"])
    frame.to_parquet(tmp_path / "pivot.parquet")
    names = ["('min', 'qty')", "('max', 'qty')", "region"]
    assert lake.create_table("pivot", frame).columns == names
    assert lake.create_table("file", tmp_path / "pivot.parquet").columns == names
    given = pd.DataFrame([[1, 2, 3]], columns=pd.Index([0, pd.Timestamp("2026-01-01"), (7, b"x")], tupleize_cols=False))
    assert lake.create_table("labels", given).columns == ["0", "2026-01-01 00:00:00", "('7', 'x')"]
    assert lake.create_table("rows", [{1: "a"}, {1: "b"}]).to_pylist() == [{"1": "a"}, {"1": "b"}]
    assert lake.create_table("columns", {2: [1]}).columns == ["2"]


@pytest.mark.parametrize(
    ("labels", "said"),
    [(["a", "a"], '"a" twice'), ([1, "1"], '"1" twice'), ([None, "x"], "column 1"), (["x", ""], "column 2")],
)
def test_names_that_are_no_names_are_refused(lake: quacklake.Lake, labels: list[Any], said: str) -> None:
    with pytest.raises(InvalidNameError, match=said) as caught:
        lake.create_table("t", pd.DataFrame([[1, 2]], columns=labels))
    assert "df.columns" in str(caught.value.hint)
    assert lake.tables() == []


def test_an_index_with_the_name_of_another_level_is_refused(lake: quacklake.Lake) -> None:
    with pytest.raises(InvalidNameError, match='"k" twice'):
        lake.create_table("t", SALES.set_axis(pd.MultiIndex.from_product([[1, 2], [3, 4]], names=["k", "k"])))
    with pytest.raises(InvalidNameError):
        lake.create_table("t", [{"a": 1, None: 2}])


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        (pd.period_range("2026", periods=2, freq="M"), "to_timestamp"),
        (pd.interval_range(0, 2), "astype"),
        (pd.Categorical(pd.interval_range(0, 2)), "astype"),
        ([1 + 2j, 0j], "astype"),
        ([1, "a"], "astype"),
        ([2**70, 1], "Decimal"),
        (pd.Series(["\ud800", "a"], dtype=object), "astype"),
        ([object(), None], "astype"),
    ],
)
def test_values_that_cannot_be_stored_are_refused_with_their_column(
    lake: quacklake.Lake, values: Any, hint: str
) -> None:
    frame = pd.DataFrame({"fine": [1, 2], "odd one": values})
    for given in (frame, frame.set_index("odd one")):
        with pytest.raises(InputError, match="odd one") as caught:
            lake.create_table("t", given)
        assert hint in str(caught.value.hint)
    assert lake.tables() == []


def test_objects_and_wide_numbers_of_polars_are_refused_with_their_column(lake: quacklake.Lake) -> None:
    objects = pl.DataFrame({"fine": [1], "odd": [object()]}, schema={"fine": pl.Int64, "odd": pl.Object})
    wide = pl.DataFrame({"odd": [[2**70]]}, schema={"odd": pl.List(pl.Int128)})
    for frame in (objects, wide, wide.lazy()):
        with pytest.raises(SchemaMismatchError, match='"odd"'):
            lake.create_table("t", frame)
    assert lake.create_table("t", wide.select(pl.col("odd").cast(pl.List(pl.Decimal(38, 0))))).count() == 1


@pytest.mark.parametrize("series", [pd.Series([1], name="v"), pl.Series("v", [1])], ids=["pandas", "polars"])
def test_a_series_is_refused_with_what_to_do(lake: quacklake.Lake, series: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="series") as caught:
        lake.create_table("t", series)
    assert "to_frame" in str(caught.value.hint)


SPANS = [pd.Timedelta("90 days 01:00:00"), None, pd.Timedelta(0), pd.Timedelta("26h")]


@pytest.mark.parametrize("limit", [0, 10], ids=["files", "inlined"])
def test_spans_of_time_come_back_as_such(tmp_path: Path, limit: int) -> None:
    frame = pd.DataFrame({"i": range(4), "d": pd.Series(SPANS, dtype="timedelta64[us]")})
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=limit
    ) as lake:
        for name, given in {
            "pandas": frame,
            "s": frame.astype({"d": "timedelta64[s]"}),
            "ns": frame.astype({"d": "timedelta64[ns]"}),
            "categories": frame.astype({"d": "category"}),
            "polars": pl.from_pandas(frame),
            "arrow": pa.Table.from_pandas(frame),
        }.items():
            table = lake.create_table(name, given)
            assert table.info.schema.columns[1].type == "interval"
            for back in (
                table.to_pandas(),
                lake.sql(f"FROM {name}").df(),
                table.scan(["d", "i"]).to_pandas()[["i", "d"]],
            ):
                pd.testing.assert_frame_equal(back, frame)
            assert table.to_pandas(dtype_backend="pyarrow").dtypes["d"] == pd.ArrowDtype(pa.duration("us"))
            for polars in (table.to_polars(), table.scan_polars().filter(pl.col("d") >= dt.timedelta()).collect()):
                assert polars.schema["d"] == pl.Duration("us")
                assert polars["d"].drop_nulls().to_list() == [
                    span.to_pytimedelta() for span in SPANS if span is not None
                ]
            assert table.schema.field("d").type == pa.month_day_nano_interval()
        assert lake.table("pandas").merge(frame.assign(i=7), on="d").updated == 3


def test_spans_of_months_are_no_durations(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t AS SELECT INTERVAL '1 month' AS d UNION ALL SELECT INTERVAL '1 day'")
    table = lake.table("t")
    expected = [pd.DateOffset(months=1, days=0, nanoseconds=0), pd.DateOffset(months=0, days=1, nanoseconds=0)]
    assert table.to_pandas()["d"].tolist() == expected
    for read in (table.to_polars, lambda: table.scan_polars().collect()):
        with pytest.raises((InputError, pl.exceptions.ComputeError), match='"d"'):
            read()


def test_nanoseconds_of_spans_are_not_cut(lake: quacklake.Lake) -> None:
    for given in (
        pd.DataFrame({"odd": [pd.Timedelta(1, "ns")]}),
        pa.table({"odd": pa.array([(0, 0, 1)], pa.month_day_nano_interval())}),
        pa.table({"odd": pa.array([10**15], pa.duration("s"))}),
    ):
        with pytest.raises(ConstraintError, match='"odd"'):
            lake.create_table("t", given)


def test_an_index_is_kept_for_users_too(lake: quacklake.Lake) -> None:
    lake.create_table("t", SALES)
    lake.sql("CREATE USER ann")
    lake.sql("GRANT ALL ON t TO ann")
    table = lake.as_principal("ann").table("t")
    named = SALES.set_axis(pd.Index(list("wxyz"), name="label"))
    with pytest.raises(SchemaMismatchError, match="label"):
        table.append(named)
    assert table.append(named, index=False) == 4
    assert table.merge(SALES.set_index("qty"), on="qty").updated == 8
    assert table.overwrite(named, index=False) == 4
