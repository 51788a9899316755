"""Other programs read the same series: stock DuckDB, pandas and the lake's own tables."""

from __future__ import annotations

from pathlib import Path

import quacklake
from quacklake.pond import Pond
from quacklake.pond.queries import rows
from quacklake.pond.series import append_series, write_table
from tests.catalog.stock import Stock
from tests.pond.conftest import readings


def test_stock_duckdb_reads_the_same_series_tables_and_tree(tmp_path: Path, stock: Stock) -> None:
    with Pond.create(tmp_path / "P") as pond:
        with pond.transaction(["fill"]) as fs:
            fs.make_directory("/sensors")
            append_series(fs, "/sensors/dock.series", readings(500))
            write_table(fs, "/sensors/sites", [{"site": "dock", "depth": 3.5}])
            fs.write_file("/readme", b"hello")
        pond.run(["more"], lambda fs: append_series(fs, "/sensors/dock.series", readings(5, 500, extra="x")))
        pond.run(["move"], lambda fs: fs.move("/sensors", "/s"))
        with rows(pond, "/s/dock.series") as found:
            ours = found.read_all()
        url = pond.lake.url
    answers = stock.answers(
        url,
        'SELECT epoch_us(timestamp), temp, extra FROM pond_data."/s/dock.series" ORDER BY 1',
        'SELECT * FROM pond_data."/s/sites"',
        "SELECT name, CAST(content AS VARCHAR) FROM pond.nodes WHERE file_type = 'file:data'",
        'SELECT count(*) FROM pond_data."/sensors/dock.series" AT (VERSION => 2)',
    )
    times = [int(each.timestamp() * 1_000_000) for each in ours.column("timestamp").to_pylist()]
    expected = list(zip(times, ours.column("temp").to_pylist(), ours.column("extra").to_pylist(), strict=True))
    assert answers == [expected, [("dock", 3.5)], [("readme", "hello")], [(500,)]]
    assert len(expected) == 505


def test_stock_duckdb_may_add_rows_to_a_series(tmp_path: Path, stock: Stock) -> None:
    with Pond.create(tmp_path / "P") as pond:
        pond.run(["fill"], lambda fs: append_series(fs, "/dock.series", readings(3)))
        url = pond.lake.url
    stock.run(url, "INSERT INTO pond_data.\"/dock.series\" VALUES ('2024-02-01 00:00:00+00', 9)")
    with Pond.open(tmp_path / "P") as pond:
        with rows(pond, "/dock.series", "SELECT count(*) AS n, max(temp) AS m FROM series") as found:
            assert found.read_all().to_pylist() == [{"n": 4, "m": 9.0}]
        pond.run(["next"], lambda fs: append_series(fs, "/dock.series", readings(1, 50)))
        assert pond.fs().get("/dock.series").node.version == 2


def test_pandas_and_the_library_see_an_ordinary_table(tmp_path: Path) -> None:
    with Pond.create(tmp_path / "P") as pond:
        pond.run(["fill"], lambda fs: append_series(fs, "/dock.series", readings(20)))
        url = pond.lake.url
    with quacklake.connect(url, create=False, catalog="") as lake:
        frame = lake.table('pond_data."/dock.series"').to_pandas(where="temp >= 15")
        assert list(frame["temp"]) == [15.0, 16.0, 17.0, 18.0, 19.0]
        assert lake.table('pond_data."/dock.series"').sorted_by == ['"timestamp" ASC NULLS LAST']
