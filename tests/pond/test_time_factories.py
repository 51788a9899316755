"""The factories of time series: reductions, joins, pivots and waves."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest

from quacklake.errors import ConfigError, NotFoundError
from quacklake.pond import Pond
from quacklake.pond.factories.temporal_reduce import ReducedOptions
from quacklake.pond.nodes import CONFIG
from quacklake.pond.queries import everything, relations, rows
from quacklake.pond.reduces import SCHEMA, is_current, kept, maintain
from quacklake.pond.reductions import Resolution
from quacklake.pond.series import append_series, set_temporal_bounds
from tests.pond.conftest import START, Home, readings
from tests.pond.test_factories import make, read

pytestmark = pytest.mark.daily(0.35)


def append(home: Home, name: str, given: list[dict[str, Any]]) -> None:
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/{name}", given))


def hours(count: int) -> dt.timedelta:
    return dt.timedelta(hours=count)


def reduce(home: Home, **more: Any) -> None:
    config = {"in_pattern": f"{home.path}/*.series", "out_pattern": "$0", "resolutions": ["1h", "1d"], **more}
    make(home, "reduced", "temporal-reduce", config)


def current(home: Home, name: str) -> bool:
    """Return whether readers get the rows of the materialized view."""
    with relations(home.pond) as found:
        node = found.fs.get(f"{home.path}/{name}").node
        known = kept(found.fs, ReducedOptions.of(node.attribute(CONFIG)))
        assert known is not None
        return is_current(found.tx, known)


def test_a_reduction_has_a_series_for_each_resolution(home: Home) -> None:
    append(home, "dock.series", readings(180))
    append(home, "buoy.series", readings(3))
    reduce(home)
    assert home.names("reduced/**/*") == [
        "reduced/buoy",
        "reduced/buoy/res=1d.series",
        "reduced/buoy/res=1h.series",
        "reduced/dock",
        "reduced/dock/res=1d.series",
        "reduced/dock/res=1h.series",
    ]
    found = read(home, "reduced/dock/res=1h.series")
    assert [row["timestamp"] for row in found] == [START + hours(n) for n in range(3)]
    assert found[1] == {
        "timestamp": START + hours(1),
        "temp.avg": 89.5,
        "temp.min": 60.0,
        "temp.max": 119.0,
        "temp.count": 60,
    }
    assert read(home, "reduced/buoy/res=1d.series", 'SELECT "temp.count" AS n FROM series') == [{"n": 3}]


def test_late_readings_change_their_bucket_only(home: Home) -> None:
    append(home, "dock.series", readings(300))
    reduce(home, resolutions=["1h"], aggregations=[{"type": "sum"}, {"type": "count"}])
    name = "reduced/dock/res=1h.series"
    before = read(home, name)
    assert current(home, name)
    append(home, "dock.series", [{"timestamp": START + hours(2) + dt.timedelta(seconds=1), "temp": 1000.0}])
    assert not current(home, name)
    after = read(home, name)
    assert current(home, name)
    assert [n for n in range(5) if before[n] != after[n]] == [2]
    assert after[2]["temp.count"] == 61 and after[2]["temp.sum"] == before[2]["temp.sum"] + 1000
    view = next(
        each for each in home.pond.lake.materialized_views.list().to_pylist() if f"{home.path}/dock" in each["name"]
    )
    assert view["way"] == "groups"


def test_a_reduction_that_is_behind_is_computed_for_its_readers(home: Home) -> None:
    append(home, "dock.series", readings(60))
    reduce(home, resolutions=["1h"])
    assert len(read(home, "reduced/dock/res=1h.series")) == 1
    append(home, "dock.series", readings(60, 60))
    with everything(home.pond) as found:  # which refreshes nothing
        path = f"{home.path}/reduced/dock/res=1h.series"
        assert found.query(f'SELECT count(*) AS n FROM "{path}"').read_all().to_pylist() == [{"n": 2}]
    assert not current(home, "reduced/dock/res=1h.series")


def test_a_query_looks_only_at_the_computed_nodes_that_it_names(home: Home) -> None:
    make(home, "broken", "sql-derived-table", {"patterns": {"source": f"{home.path}/none"}})
    with everything(home.pond, sql="SELECT 1 AS n") as found:
        assert found.query("SELECT 1 AS n").read_all().to_pylist() == [{"n": 1}]
    sql = f'SELECT * FROM "{home.path.upper()}/broken"'
    with pytest.raises(NotFoundError, match="no table or series"), everything(home.pond, sql=sql):
        pass


@pytest.mark.daily(0.25)
def test_a_reduction_follows_each_write_when_it_shall(home: Home) -> None:
    append(home, "dock.series", readings(60))
    reduce(home, resolutions=["1h"], refresh="on commit")
    read(home, "reduced/dock/res=1h.series")
    append(home, "dock.series", readings(60, 60))
    assert current(home, "reduced/dock/res=1h.series")


@pytest.mark.daily(0.25)
def test_upkeep_brings_reductions_up_to_date_and_drops_those_that_nobody_needs() -> None:
    with Pond.memory() as pond:
        home = Home(pond, "")
        pond.run(["test"], lambda fs: append_series(fs, "/dock.series", readings(120)))
        config = {"in_pattern": "/*.series", "resolutions": ["1h", "1d"]}
        make(home, "reduced", "temporal-reduce", config)
        assert maintain(pond).refreshed == 2
        assert maintain(pond).current == 2
        make(home, "reduced", "temporal-reduce", {**config, "resolutions": ["1d"]}, replace=True)
        report = maintain(pond)
        assert (report.current, report.refreshed, report.dropped) == (1, 0, 1)
        assert len(pond.lake.tables(SCHEMA)) == 1
        assert not pond.lake.verify().errors


@pytest.mark.daily(0.25)
def test_a_reduction_keeps_to_the_bounds_and_columns_of_its_series(home: Home) -> None:
    append(home, "dock.series", readings(180, note="x"))
    reduce(home, resolutions=["1h"], aggregations=[{"type": "max", "columns": ["t*"]}])
    home.change(lambda wd: set_temporal_bounds(wd.fs, f"{wd.path}/dock.series", START + hours(1), None))
    assert read(home, "reduced/dock/res=1h.series") == [
        {"timestamp": START + hours(1), "temp.max": 119.0},
        {"timestamp": START + hours(2), "temp.max": 179.0},
    ]


@pytest.mark.daily(0.25)
def test_waves_are_reduced_as_they_are_expected(home: Home) -> None:
    points = [
        {"name": "temperature", "components": [{"type": "sine", "amplitude": 10, "period": "24h", "offset": 20}]},
        {"name": "pressure", "components": [{"type": "line", "offset": 1013}]},
    ]
    config = {"start": "2024-01-01", "end": "2024-01-02", "interval": "1m", "points": points}
    make(home, "waves.series", "synthetic-timeseries", config)
    found = read(home, "waves.series")
    assert len(found) == 1441
    assert found[360]["temperature"] == pytest.approx(30) and found[1080]["temperature"] == pytest.approx(10)
    reduce(home, resolutions=["1h"], aggregations=["avg"])
    by_hour = read(home, "reduced/waves/res=1h.series")
    assert len(by_hour) == 25  # the last reading is the first of the next day
    assert {row["pressure.avg"] for row in by_hour} == {1013.0}


@pytest.mark.daily(0.25)
def test_dates_of_yaml_are_times(home: Home) -> None:
    config = {"start": dt.date(2024, 1, 1), "end": dt.datetime(2024, 1, 1, 1, tzinfo=dt.UTC), "interval": "1h"}
    make(home, "w", "synthetic-timeseries", {**config, "points": [{"name": "a", "components": [{"type": "line"}]}]})
    assert [row["timestamp"] for row in read(home, "w")] == [START, START + hours(1)]


@pytest.mark.daily(0.25)
def test_waves_have_their_shapes_and_a_seed_makes_noise_repeatable(home: Home) -> None:
    def wave(kind: str, **more: Any) -> dict[str, Any]:
        return {"name": kind, "components": [{"type": kind, **more}]}

    points = [wave("triangle", period="4s"), wave("square", period="4s"), wave("noise", amplitude=2)]
    points.append({"name": "sum", "components": [{"type": "line", "slope": 1}, {"type": "sine", "period": "4s"}]})
    config = {"start": "2024-01-01", "end": "2024-01-01T00:00:04Z", "interval": "1s", "points": points}
    make(home, "w", "synthetic-timeseries", {**config, "seed": 7})
    found = read(home, "w")
    assert [row["triangle"] for row in found] == [0, 1, 0, -1, 0]
    assert [row["square"] for row in found] == [1, 1, -1, -1, 1]
    assert [row["sum"] for row in found] == pytest.approx([0, 2, 2, 2, 4])
    noise = [row["noise"] for row in found]
    assert all(-2 <= each <= 2 for each in noise) and len(set(noise)) == 5
    make(home, "v", "synthetic-timeseries", {**config, "seed": 8})
    assert noise == [row["noise"] for row in read(home, "w")] != [row["noise"] for row in read(home, "v")]
    assert not any(math.isnan(each) for each in noise)


def test_a_join_has_a_row_for_each_time_and_a_prefix_for_each_scope(home: Home) -> None:
    append(home, "old.series", readings(2))
    append(home, "new.series", readings(2, 2))
    append(home, "air.series", [{"ts": START + dt.timedelta(minutes=n), "temp": 9.0} for n in (1, 5)])
    inputs = [
        {"pattern": f"{home.path}/old.series", "scope": "water", "range": {"end": "2024-01-01T00:00:30Z"}},
        {"pattern": f"{home.path}/new.series", "scope": "water"},
        {"pattern": f"{home.path}/air.series", "scope": "air"},
    ]
    make(home, "joined", "timeseries-join", {"inputs": inputs})
    assert [tuple(row.values()) for row in read(home, "joined")] == [
        (START, 0.0, None),
        (START + dt.timedelta(minutes=1), None, 9.0),
        (START + dt.timedelta(minutes=2), 2.0, None),
        (START + dt.timedelta(minutes=3), 3.0, None),
        (START + dt.timedelta(minutes=5), None, 9.0),
    ]
    assert list(read(home, "joined")[0]) == ["timestamp", "water.temp", "air.temp"]


@pytest.mark.daily(0.25)
def test_a_join_says_which_column_two_inputs_have(home: Home) -> None:
    append(home, "a.series", readings(1))
    make(
        home,
        "j",
        "timeseries-join",
        {"inputs": [{"pattern": f"{home.path}/a.series"}] * 2 + [{"pattern": f"{home.path}/a.series", "scope": ""}]},
    )
    assert len(read(home, "j")) == 3  # inputs of one scope are one series
    make(
        home,
        "k",
        "timeseries-join",
        {"inputs": [{"pattern": f"{home.path}/a.series"}, {"pattern": f"{home.path}/j", "scope": "x"}]},
    )
    assert list(read(home, "k")[0]) == ["timestamp", "temp", "x.temp"]


@pytest.mark.daily(0.25)
def test_a_pivot_puts_series_side_by_side(home: Home) -> None:
    append(home, "dock.series", readings(2))
    append(home, "buoy.series", [{**row, "depth": 5.0} for row in readings(2, 1)])
    make(home, "p", "timeseries-pivot", {"pattern": f"{home.path}/*.series", "columns": ["temp", "depth"]})
    found = read(home, "p")
    assert list(found[0]) == ["timestamp", "buoy.temp", "buoy.depth", "dock.temp", "dock.depth"]
    assert [tuple(row.values())[1:] for row in found] == [
        (None, None, 0.0, None),
        (1.0, 5.0, 1.0, None),
        (2.0, 5.0, None, None),
    ]


@pytest.mark.daily(0.22)
@pytest.mark.parametrize(
    ("factory", "config", "words"),
    [
        ("temporal-reduce", {"in_pattern": "/a"}, "no resolutions"),
        ("temporal-reduce", {"in_pattern": "/a", "resolutions": ["1x"]}, "not a resolution"),
        ("temporal-reduce", {"in_pattern": "/a", "resolutions": ["0s"]}, "zero"),
        ("temporal-reduce", {"in_pattern": "/a", "resolutions": ["1h"], "aggregations": ["mean"]}, "no aggregation"),
        ("temporal-reduce", {"in_pattern": "/a", "resolutions": ["1h"], "out_pattern": "a/b"}, "not a path"),
        ("temporal-reduce", {"in_pattern": "/*", "resolutions": ["1h"], "out_pattern": "$1"}, "has 1 wildcards"),
        ("temporal-reduce", {"in_pattern": "/a", "resolutions": ["1h"], "refresh": "never"}, "refresh cannot be"),
        ("timeseries-join", {"inputs": [{"pattern": "/a"}]}, "two inputs"),
        ("timeseries-pivot", {"pattern": "/a"}, "no columns"),
        ("synthetic-timeseries", {"start": "2024-01-02", "end": "2024-01-01", "interval": "1s"}, "0 readings"),
        ("synthetic-timeseries", {"start": "2024-01-01", "end": "2024-01-02", "interval": "1s"}, "no points"),
        ("synthetic-timeseries", {"start": "2024-01-01", "end": "2024-01-02", "interval": "1s", "points": [{"name": "a", "components": [{"type": "sin", "period": "1h"}]}]}, "no component"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(home: Home, factory: str, config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(home, "bad", factory, config)
    assert home.names() == []


def test_resolutions_can_be_months() -> None:
    assert Resolution.parse("3 months").bucket("t") == "time_bucket(INTERVAL '3 months', \"t\")"
    assert Resolution.parse("2y").months == 24


@pytest.mark.daily(0.25)
def test_rows_of_a_reduction_can_be_asked_for_in_a_range_and_of_a_past_state(home: Home) -> None:
    append(home, "dock.series", readings(120))
    reduce(home, resolutions=["1h"])
    before = home.pond.lake.current_snapshot()
    append(home, "dock.series", readings(60, 120))
    path = f"{home.path}/reduced/dock/res=1h.series"
    with rows(home.pond, path, first=START + hours(1)) as found:
        assert found.read_all().num_rows == 2
    with rows(home.pond, path, at=before) as found:
        assert found.read_all().num_rows == 2


def test_columns_are_renamed_before_they_are_reduced_or_joined(home: Home) -> None:
    """A transform is a rule, or the path of a column-rename node; the rows are those of plain SQL."""
    append(home, "dock.series", [{**row, "note": str(n)} for n, row in enumerate(readings(120))])
    rules = [{"type": "pattern", "pattern": "temp(.*)", "replacement": r"Temperature\1"}]
    make(home, "names", "column-rename", {"in_pattern": f"{home.path}/dock.series", "rules": rules})
    number = {"type": "direct", "from": "note", "to": "count", "cast": "DOUBLE"}
    transforms = [f"{home.path}/names", number]
    aggregations = [{"type": "max", "columns": ["T*", "count"]}, "count"]
    reduce(
        home, transforms=transforms, aggregations=aggregations, in_pattern=f"{home.path}/dock.series", out_pattern="r"
    )
    found = read(home, "reduced/r/res=1h.series")
    assert found[1] == {
        "timestamp": START + hours(1),
        "Temperature.max": 119.0,
        "Temperature.count": 60,
        "count.max": 119.0,
        "count.count": 60,
    }
    assert current(home, "reduced/r/res=1h.series")
    inputs = [
        {"pattern": f"{home.path}/dock.series", "scope": "a", "transforms": transforms},
        {"pattern": f"{home.path}/dock.series", "scope": "b"},
    ]
    make(home, "joined", "timeseries-join", {"inputs": inputs})
    assert read(home, "joined")[5] == {
        "timestamp": START + dt.timedelta(minutes=5),
        "a.Temperature": 5.0,
        "a.count": 5.0,
        "b.temp": 5.0,
        "b.note": "5",
    }
    config = {"patterns": {"source": f"{home.path}/dock.series"}, "query": "SELECT max(count) AS m FROM source"}
    make(home, "derived", "sql-derived-table", {**config, "transforms": transforms})
    assert read(home, "derived") == [{"m": 119.0}]
    twice = [{"type": "direct", "from": "note", "to": "temp"}]
    make(home, "twice", "sql-derived-table", {**config, "transforms": twice})
    with pytest.raises(ConfigError, match="'temp' and 'note' would both be called 'temp'"):
        read(home, "twice")
    make(home, "other", "sql-derived-table", {**config, "transforms": [f"{home.path}/derived"]})
    with pytest.raises(ConfigError, match="is not a column-rename node"):
        read(home, "other")


@pytest.mark.parametrize("transforms", ["/a", [1], [{"type": "direct", "from": "a"}], [{"type": "else"}]])
def test_wrong_transforms_are_refused(home: Home, transforms: Any) -> None:
    with pytest.raises(ConfigError):
        reduce(home, transforms=transforms)
    with pytest.raises(ConfigError):
        make(home, "j", "timeseries-join", {"inputs": [{"pattern": "/a", "transforms": transforms}, {"pattern": "/b"}]})


def test_an_engine_is_chosen_by_name(home: Home) -> None:
    append(home, "dock.series", readings(120))
    reduce(home, engine="duckdb")
    assert len(read(home, "reduced/dock/res=1h.series")) == 2
    with pytest.raises(ConfigError, match="engine cannot be 'flink'"):
        reduce(home, engine="flink")


@pytest.mark.parametrize("when", ["on read", "on commit"])
def test_a_reduction_follows_a_series_that_is_widened(home: Home, when: str) -> None:
    times = [reading["timestamp"] for reading in readings(3)]
    append(home, "dock.series", [{"timestamp": times[0], "temp": 1}, {"timestamp": times[1], "temp": 2}])
    reduce(home, resolutions=["1h"], refresh=when)
    maintain(home.pond)
    assert current(home, "reduced/dock/res=1h.series")
    append(home, "dock.series", [{"timestamp": times[2], "temp": 4.5}])
    assert read(home, "reduced/dock/res=1h.series")[0]["temp.avg"] == 2.5
    maintain(home.pond)
    assert current(home, "reduced/dock/res=1h.series")
    assert read(home, "reduced/dock/res=1h.series")[0]["temp.avg"] == 2.5
