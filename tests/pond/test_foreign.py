"""Other programs read the same series: stock DuckDB, pandas and the lake's own tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import quacklake
from quacklake.core.format.names import quote
from quacklake.pond import Pond
from quacklake.pond.queries import rows
from quacklake.pond.series import append_series, write_table
from tests.catalog.stock import Stock
from tests.pond.conftest import START, readings


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


_WHEN = 'SELECT epoch_us(timestamp), temp FROM pond_data."{}"{} ORDER BY 1'


def of(pond: Pond, path: str, at: int | None = None) -> list[tuple[int, float]]:
    """The rows of a series as the pond gives them."""
    with rows(pond, path, "SELECT epoch_us(timestamp) AS t, temp FROM series ORDER BY 1", at=at) as found:
        return [(row["t"], row["temp"]) for row in found.read_all().to_pylist()]


def test_stock_duckdb_reads_every_version_deletes_and_what_maintenance_left(tmp_path: Path, stock: Stock) -> None:
    with Pond.create(tmp_path / "P") as pond:
        states: dict[int, list[tuple[int, float]]] = {}
        for first in (0, 400, 200):  # the last version is older than the one before
            pond.run(["add"], lambda fs, n=first: append_series(fs, "/dock.series", readings(150, n)))
            states[pond.lake.current_snapshot()] = of(pond, "/dock.series")
        pond.lake.table('pond_data."/dock.series"').delete("temp BETWEEN 100 AND 249")
        states[pond.lake.current_snapshot()] = of(pond, "/dock.series")
        assert [len(each) for each in states.values()] == [150, 300, 450, 350]
        url = pond.lake.url
        past = [_WHEN.format("/dock.series", f" AT (VERSION => {snapshot})") for snapshot in states]
        assert stock.answers(url, *past) == list(states.values())
        assert [of(pond, "/dock.series", at) for at in states] == list(states.values())
        pond.lake.table('pond_data."/dock.series"').rewrite_data_files(delete_threshold=0)
        pond.lake.table('pond_data."/dock.series"').merge_adjacent_files()
        pond.run(["again"], lambda fs: append_series(fs, "/dock.series", readings(50, 100)))
        now = of(pond, "/dock.series")
        assert stock.answers(url, _WHEN.format("/dock.series", ""), *past) == [now, *states.values()]
        assert len(now) == 400


def test_stock_duckdb_reads_a_reduction_that_is_kept(tmp_path: Path, stock: Stock) -> None:
    """The oracle reduces the readings itself; later readings, and a late one, are in the next answer of the pond."""
    reduced = {"in_pattern": "/dock.series", "out_pattern": "dock", "time_column": "timestamp", "resolutions": ["1h"]}
    plain = (
        "SELECT epoch_us(time_bucket(INTERVAL 1 HOUR, timestamp)), avg(temp), count(temp)"
        ' FROM pond_data."/dock.series" GROUP BY 1 ORDER BY 1'
    )
    with Pond.create(tmp_path / "P") as pond:
        pond.run(["add"], lambda fs: append_series(fs, "/dock.series", readings(150)))
        pond.run(
            ["make"],
            lambda fs: fs.make_node(
                "/less", "temporal-reduce", {**reduced, "aggregations": [{"type": "avg"}, {"type": "count"}]}
            ),
        )
        for first in (150, 400, 300):
            with rows(pond, "/less/dock/res=1h.series") as found:
                ours = [tuple(row.values()) for row in found.read_all().to_pylist()]
            answer = [(int(time.timestamp() * 1_000_000), mean, count) for time, mean, count in sorted(ours)]
            (kept,) = [name for name in pond.lake.tables() if name.startswith("pond_reduced.")]
            name = quote(kept.partition(".")[2])
            table = f'SELECT epoch_us(timestamp), "temp.avg", "temp.count" FROM pond_reduced.{name} ORDER BY 1'
            assert stock.answers(pond.lake.url, plain, table) == [answer, answer]
            pond.run(["more"], lambda fs, n=first: append_series(fs, "/dock.series", readings(50, n)))


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


def test_stock_duckdb_reads_a_series_before_and_after_it_was_widened(tmp_path: Path, stock: Stock) -> None:
    """The table stays the same one: what is said about it stays, and its change feed goes on."""
    name = 'pond_data."/dock.series"'
    with Pond.create(tmp_path / "P") as pond:
        pond.run(["add"], lambda fs: append_series(fs, "/dock.series", levels(range(300))))
        table = pond.lake.table(name)
        table.set_partitioned_by("day(timestamp)", "level")
        table.set_comment("the dock")
        table.set_tags({"site": "north"})
        table.set_column_comment("level", "in cm")
        pond.lake.options.set("parquet_compression", "zstd", table=name)
        before, facts = pond.lake.current_snapshot(), facts_of(pond, name)
        pond.run(["widen"], lambda fs: append_series(fs, "/dock.series", levels([300.5])))
        after = pond.lake.current_snapshot()
        pond.run(["more"], lambda fs: append_series(fs, "/dock.series", levels([301, 302.25])))
        assert facts_of(pond, name) == facts
        assert pond.lake.verify(deep=True).ok
        table.optimize()
        changed = table.changes(after).to_arrow().column("change_type").to_pylist()
        assert (changed.count("insert"), changed.count("delete")) == (303, 300)
        url = pond.lake.url
    answers = stock.answers(
        url,
        f"SELECT typeof(level), sum(level) FROM {name} GROUP BY 1",
        f"SELECT typeof(level), sum(level) FROM {name} AT (VERSION => {before}) GROUP BY 1",
        f"SELECT count(*) FROM {name} WHERE level = 7",
    )
    assert answers == [[("DOUBLE", 44850.0 + 903.75)], [("BIGINT", 44850)], [(1,)]]


def levels(numbers: Iterable[float]) -> list[dict[str, Any]]:
    return [{"timestamp": START + dt.timedelta(minutes=int(number)), "level": number} for number in numbers]


def facts_of(pond: Pond, name: str) -> list[Any]:
    """Return everything about a table but its columns and rows."""
    table = pond.lake.table(name)
    told = table.comment, table.tags, table.column_comments, table.partitioned_by, table.sorted_by
    return [*told, table.info.uuid, pond.lake.options.get("parquet_compression", table=name)]
