"""The tree of a pond, and series for pictures, over HTTP."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from quacklake.pond import Pond
from quacklake.pond.series import append_series
from quacklake.pond.viewports import viewport
from tests.seeds import SEED
from tests.service.serving import Served, is_problem, served

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
DAYS = 20


@pytest.fixture(scope="module")
def pond() -> Iterator[Pond]:
    """Readings of some weeks, one a minute, with a day missing and a peak; reductions, and a table of the same rows."""
    minutes = [n for n in range(DAYS * 1440) if not 14_400 <= n < 15_840]
    times = pa.array([START + dt.timedelta(minutes=n) for n in minutes], pa.timestamp("us", "UTC"))
    temps = pa.array([99.0 if n == 20_000 else math.sin(n / 700) for n in minutes], pa.float64())
    rows = pa.table({"timestamp": times, "temp": temps})
    with Pond.memory() as made:
        made.run(["test"], lambda fs: fs.make_directory("/deep/er", parents=True))
        for first in (0, 10_000):
            part = rows.slice(first, 10_000 if not first else None)
            made.run(["test"], lambda fs, part=part: append_series(fs, "/dock.series", part))
        made.run(["test"], lambda fs: fs.write_file("/deep/note", b"hello"))
        config = {"in_pattern": "/*.series", "resolutions": ["10m", "1h"]}
        made.run(["test"], lambda fs: fs.make_node("/reduced", "temporal-reduce", config))
        query = {"patterns": {"s": "/dock.series"}, "query": "SELECT * FROM read_csv('/etc/passwd')"}
        made.run(["test"], lambda fs: fs.make_node("/derived.series", "sql-derived-series", query))
        made.run(["test"], lambda fs: fs.make_node("/mounted", "mount", {"pond": "/nowhere"}))
        naive = rows.set_column(0, "ts", rows.column(0).cast(pa.timestamp("us"))).append_column(
            "odd", pa.array([float("inf"), float("nan")] * (rows.num_rows // 2), pa.float64())
        )
        made.lake.create_table("plain", naive)
        yield made


@pytest.fixture(scope="module")
def service(pond: Pond) -> Iterator[Served]:
    with served(pond.lake) as found:
        yield found


def get(service: Served, path: str, /, **params: Any) -> Any:
    answer = service.reader.get(f"/api/v1{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_tree_is_listed_in_pages_and_nodes_are_described(service: Served, pond: Pond) -> None:
    found, after = [], None
    while True:
        page = get(service, "/pond/nodes", pattern="**/*", limit=2, **({} if after is None else {"after": after}))
        found += [node["path"] for node in page["nodes"]]
        after = page["next"]
        if after is None:
            break
    stored = [each.path for each in pond.fs().glob("**/*") if not each.path.startswith("/mounted")]
    assert [path for path in found if path != "/mounted"] == stored
    assert [node["path"] for node in get(service, "/pond/nodes", pattern="/deep/*")["nodes"]] == [
        "/deep/er",
        "/deep/note",
    ]
    node = get(service, "/pond/node", path="/dock.series")
    assert (node["type"], node["versions"], [each["version"] for each in node["history"]]) == ("file:series", 2, [2, 1])
    assert sum(each["rows"] for each in node["history"]) == node["rows"] == DAYS * 1440 - 1440
    before = node["snapshot"] - 3
    assert get(service, "/pond/nodes", version=1)["nodes"] == []
    assert before > 1


def test_facts_of_a_node_that_lead_outside_are_for_administrators(service: Served) -> None:
    assert "config" not in get(service, "/pond/node", path="/derived.series")
    answer = service.admin.get("/api/v1/pond/node", params={"path": "/derived.series"})
    assert "passwd" in answer.json()["config"]


@pytest.mark.parametrize("number", range(4))
def test_a_picture_is_the_one_that_the_pond_draws(service: Served, pond: Pond, number: int) -> None:
    rng = random.Random(f"{SEED}{number}")
    first = START + dt.timedelta(minutes=rng.randrange(DAYS * 1440))
    last = first + dt.timedelta(minutes=rng.randrange(DAYS * 1440))
    width = rng.choice([1, 40, 300, 3_000])
    at = pond.lake.current_snapshot()
    expected = viewport(pond, "/dock.series", first, last, width, at=at)
    answer = get(
        service, "/pond/series", path="/dock.series", width=width, to=last.isoformat(), version=at,
        **{"from": first.isoformat()},
    )  # fmt: skip
    line, wanted = answer["lines"]["temp"], expected.lines["temp"]
    kept = answer["resolution"] == expected.resolution
    if kept:
        assert (line["times"], line["values"], line["low"]) == (wanted.times, wanted.values, wanted.low)
    assert answer["resolution"] in (None, expected.resolution)
    assert len(line["times"]) <= 3 * width + 20


def test_a_reduction_is_read_once_it_is_kept_and_the_peak_and_the_gap_stay(service: Served, pond: Pond) -> None:
    viewport(pond, "/dock.series", width=50)  # makes the view of the reduction
    answer = get(service, "/pond/series", path="/dock.series", width=50)
    assert answer["resolution"] == "1h"
    line = answer["lines"]["temp"]
    assert max(value for value in line["high"] if value is not None) == 99.0
    assert line["values"].count(None) == 1
    late = [{"timestamp": START + dt.timedelta(seconds=30), "temp": -50.0}]
    pond.run(["test"], lambda fs: append_series(fs, "/dock.series", late))
    fresh = get(service, "/pond/series", path="/dock.series", width=50)
    assert fresh["resolution"] is None  # the reduction is behind: the readings themselves are drawn
    assert min(value for value in fresh["lines"]["temp"]["values"] if value is not None) == -50.0


def test_a_table_with_times_is_drawn_with_its_peak_and_its_gap(service: Served) -> None:
    answer = get(service, "/tables/plain/series", width=100)
    assert (answer["time"], sorted(answer["lines"])) == ("ts", ["odd", "temp"])
    line = answer["lines"]["temp"]
    assert max(value for value in line["values"] if value is not None) == 99.0
    assert line["values"].count(None) == 1
    begin = START + dt.timedelta(days=2)
    few = get(
        service, "/tables/plain/series", columns="temp", width=500,
        to=(begin + dt.timedelta(minutes=9)).isoformat(), **{"from": begin.isoformat()},
    )  # fmt: skip
    assert few["lines"]["temp"]["values"] == [math.sin(n / 700) for n in range(2880, 2890)]


@pytest.mark.parametrize(
    ("path", "params", "code"),
    [
        ("/pond/node", {"path": "/none"}, "not_found"),
        ("/pond/node", {"path": "/../../etc/passwd"}, "storage.path"),
        ("/pond/series", {"path": "/deep/note"}, "input"),
        ("/pond/series", {"path": "/deep"}, "input"),
        ("/pond/series", {"path": "/derived.series"}, "unsupported"),
        ("/pond/series", {"path": "/mounted/x.series"}, "not_found"),
        ("/pond/series", {"path": "/dock.series", "columns": "none"}, "not_found"),
        ("/pond/series", {"path": "/dock.series", "from": "noon"}, "input"),
        ("/pond/series", {"path": "/dock.series", "from": "2024-02-01", "to": "2024-01-01"}, "input"),
        ("/tables/plain/series", {"time": "temp"}, "input"),
        ("/tables/plain/series", {"time": "none"}, "input.schema_mismatch"),
        ("/tables/none/series", {}, "not_found"),
    ],
)
def test_what_cannot_be_drawn_is_told(service: Served, path: str, params: dict[str, str], code: str) -> None:
    answer = service.reader.get(f"/api/v1{path}", params=params)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["code"].startswith(code), answer.text


@pytest.mark.parametrize(
    "extreme", ["0001-01-01T00:00:00", "9999-12-31T23:59:59", "-62135596800000", "253402300799999"]
)
def test_the_ends_of_time_are_times(service: Served, extreme: str) -> None:
    for params in ({"from": extreme}, {"to": extreme}):
        for path in ("/pond/series?path=/dock.series", "/tables/plain/series?columns=temp"):
            answer = service.reader.get(
                f"/api/v1{path}", params={**dict([path.partition("?")[2].split("=")]), **params}
            )
            assert answer.status_code in (200, 400), answer.text


def test_a_lake_that_is_no_pond_says_so(tmp_path: Any) -> None:
    from tests.service.serving import sample_lake

    with served(sample_lake(tmp_path)) as found:
        is_problem(found.reader.get("/api/v1/pond/nodes"), 404, "not_found")
