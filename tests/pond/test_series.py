"""Tables and series: versions, columns, times, and what foreign readers see of them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quacklake.errors import AlreadyExistsError, InputError, SchemaMismatchError
from quacklake.inputs.files import open_files
from quacklake.pond import WD, ImportOptions
from quacklake.pond.copying import copy_in, targets
from quacklake.pond.inputs import parse_host
from quacklake.pond.paths import table_of
from quacklake.pond.queries import everything, instances, rows
from quacklake.pond.series import append_series, overlaps, set_temporal_bounds, write_table
from quacklake.pond.widening import widen_column
from tests.pond.conftest import START, Home, csv, readings

pytestmark = pytest.mark.daily(0.25)


def minute(number: int) -> dt.datetime:
    return START + dt.timedelta(minutes=number)


def test_each_append_makes_the_next_version(home: Home) -> None:
    """1, 2, 3 … for each node by itself."""
    for number in range(3):
        done = home.change(lambda wd, n=number: append_series(wd.fs, f"{wd.path}/s", readings(5, 5 * n)))
        assert done.version == number + 1
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/other", readings(1)))
    assert home.wd.get("other").node.version == 1
    assert [row.version for row in home.wd.get("s").versions] == [1, 2, 3]
    assert [row.min_event_time for row in home.wd.get("s").versions] == [minute(0), minute(5), minute(10)]


def test_the_index_of_pandas_is_the_time_of_a_series(home: Home, tmp_path: Path) -> None:
    frame = pd.DataFrame({"temp": [1.0, 2.0]}, pd.DatetimeIndex([minute(0), minute(1)], name="timestamp"))
    later = frame.set_axis(frame.index + pd.Timedelta("1h")).rename_axis(None)
    later.to_parquet(tmp_path / "later.parquet")
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", frame))
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/t", later, ImportOptions(timestamp_column="index")))
    files = open_files(tmp_path / "later.parquet")
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/u", files, ImportOptions(timestamp_column="index")))
    assert [home.wd.get(name).node.min_event_time for name in "stu"] == [minute(0), minute(60), minute(60)]


def test_versions_read_as_one_table(home: Home) -> None:
    """All rows, once, in the order of time, whatever the order of versions."""
    for first in (10, 0, 5):
        home.change(lambda wd, n=first: append_series(wd.fs, f"{wd.path}/s", readings(5, n)))
    with rows(home.pond, f"{home.path}/s") as found:
        assert found.read_all().column("temp").to_pylist() == [float(n) for n in range(15)]
    assert home.wd.get("s").rows == 15


@dataclass(frozen=True)
class Sample:
    timestamp: Annotated[dt.datetime, "TIMESTAMPTZ"]
    temp: float
    state: Literal["ok", "off"] = "ok"


def test_dataclasses_go_into_a_series_and_come_back(home: Home) -> None:
    """P54: every version is of instances, read as one."""
    samples = [Sample(minute(number), number / 2, "off" if number % 3 else "ok") for number in range(20)]
    for first in (10, 0):
        path = f"{home.path}/s"
        home.change(lambda wd, n=first: append_series(wd.fs, f"{wd.path}/s", iter(samples[n : n + 10])))
    assert home.wd.get("s").node.version == 2
    assert home.wd.get("s").node.min_event_time == minute(0)
    assert list(instances(home.pond, path, Sample)) == samples
    assert list(instances(home.pond, path, Sample, first=minute(5), last=minute(6))) == samples[5:7]
    assert list(instances(home.pond, path, Sample, "FROM series WHERE state = 'ok' ORDER BY temp")) == samples[::3]
    home.change(lambda wd: write_table(wd.fs, f"{wd.path}/t", samples))
    assert list(instances(home.pond, f"{home.path}/t", Sample)) == samples
    with pytest.raises(SchemaMismatchError, match=r'"Sample\.temp" holds str, not float'):
        wrong = [replace(samples[0], timestamp=minute(50), temp="warm")]  # type: ignore[arg-type]
        home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", wrong))
    assert home.wd.get("s").node.version == 2


def test_multiple_series(home: Home) -> None:
    for name in ("a", "b", "c"):
        home.change(lambda wd, n=name: append_series(wd.fs, f"{wd.path}/{n}.series", readings(3, ord(n))))
    assert [each.node.version for each in home.wd.glob("*.series")] == [1, 1, 1]
    with everything(home.pond) as relations:
        text = " UNION ALL ".join(f'SELECT min(temp) AS m FROM "{home.path}/{n}.series"' for n in "abc")
        assert sorted(relations.query(text).read_all().column("m").to_pylist()) == [97.0, 98.0, 99.0]


def test_a_new_column_is_added_and_a_type_widened(home: Home) -> None:
    home.change(
        lambda wd: append_series(wd.fs, f"{wd.path}/s", pa.table({"ts": [minute(0)], "v": pa.array([1], pa.int32())}))
    )
    more = pa.table({"ts": [minute(1)], "v": pa.array([1 << 40]), "w": ["x"]})
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", more))
    with rows(home.pond, f"{home.path}/s") as found:
        assert found.read_all().select(["v", "w"]).to_pylist() == [{"v": 1, "w": None}, {"v": 1 << 40, "w": "x"}]


def values(home: Home, name: str = "s") -> list[object]:
    with rows(home.pond, f"{home.path}/{name}") as found:
        table: pa.Table = found.read_all()
    return [str(table.schema.field("v").type), *table.column("v").to_pylist()]


def test_whole_numbers_take_decimals(home: Home, tmp_path: Path) -> None:
    """From rows and from files, in the same transaction, too; the rows that were there stay the same."""
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", [{"ts": minute(0), "v": 1, "w": "a"}]))
    before, order = home.pond.lake.current_snapshot(), home.pond.lake.table(table_of(f"{home.path}/s")).sorted_by
    whole, decimal = tmp_path / "whole.csv", tmp_path / "decimal.csv"
    whole.write_text("ts,v,w\n2024-01-01T00:01:00Z,2.0,b\n")
    decimal.write_text("ts,v,w\n2024-01-01T00:02:00Z,2.5,c\n2024-01-01T00:00:00Z,1,a\n")
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", open_files(whole)))
    assert values(home) == ["int64", 1, 2], "2.0 is whole"

    def both(wd: WD) -> int:
        append_series(wd.fs, f"{wd.path}/s", [{"ts": minute(5), "v": 7, "w": "z"}])
        return append_series(wd.fs, f"{wd.path}/s", open_files(decimal)).repeated

    assert home.change(both) == 1
    assert values(home) == ["double", 1.0, 2.0, 2.5, 7.0]
    assert home.pond.lake.table(table_of(f"{home.path}/s")).sorted_by == order
    with rows(home.pond, f"{home.path}/s", "SELECT v FROM series", at=before) as found:
        assert found.read_all().to_pylist() == [{"v": 1}]
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", [{"ts": minute(6), "v": 8, "w": "z"}]))
    assert values(home)[-1] == 8.0
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/t", pa.table({"ts": [minute(0)], "v": [1]})))
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/t", pa.table({"ts": [minute(1)], "v": [0.5]})))
    assert values(home, "t") == ["double", 1.0, 0.5]


def test_a_large_file_gives_decimals(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quacklake.pond.bulk.LARGE", 1)
    for name, number in (("a", "1"), ("b", "2.5"), ("c", "3")):
        file = tmp_path / f"{name}.csv"
        file.write_text(f"ts,v\n2024-01-01T00:0{number[0]}:00Z,{number}\n")
        home.change(lambda wd, file=file: append_series(wd.fs, f"{wd.path}/s", open_files(file)))
    assert values(home) == ["double", 1.0, 2.5, 3.0]


def test_numbers_that_a_double_would_round_are_not_widened(home: Home) -> None:
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", [{"ts": minute(0), "v": 2**53 + 1}]))
    with pytest.raises(SchemaMismatchError, match="has 9007199254740993, which DOUBLE cannot hold exactly") as caught:
        home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", [{"ts": minute(1), "v": 0.5}]))
    assert f"`pond widen {home.path}/s" in str(caught.value.hint)
    assert values(home) == ["int64", 2**53 + 1]
    home.change(lambda wd: widen_column(wd.fs, f"{wd.path}/s", "v", "DECIMAL(38,6)"))
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", pa.table({"ts": [minute(1)], "v": [Decimal("0.5")]})))
    assert values(home) == ["decimal128(38, 6)", 2**53 + 1, Decimal("0.5")]


def test_other_types_are_refused_with_the_command_that_widens(home: Home, tmp_path: Path) -> None:
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", [{"ts": minute(0), "v": 1}]))
    text = tmp_path / "text.csv"
    text.write_text("ts,v\n2024-01-01T00:01:00Z,off\n")
    for given in ([{"ts": minute(1), "v": "off"}], open_files(text)):
        with pytest.raises(InputError) as caught:
            home.change(lambda wd, given=given: append_series(wd.fs, f"{wd.path}/s", given))
        assert f"`pond widen {home.path}/s v VARCHAR`" in str(caught.value.hint)
    home.change(lambda wd: widen_column(wd.fs, f"{wd.path}/s", "V", "VARCHAR"))
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", open_files(text)))
    assert values(home) == ["string", "1", "off"]
    for column, type_ in (("v", "INTEGER"), ("ts", "VARCHAR"), ("v", "INTEGER[]")):
        with pytest.raises(InputError):
            home.change(lambda wd, column=column, type_=type_: widen_column(wd.fs, f"{wd.path}/s", column, type_))


def test_the_pond_as_it_was_can_be_read(home: Home) -> None:
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", readings(5)))
    before = home.pond.lake.current_snapshot()
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", readings(5, 5)))
    with rows(home.pond, f"{home.path}/s", "SELECT count(*) AS n FROM series", at=before) as found:
        assert found.read_all().to_pylist() == [{"n": 5}]


def test_times_select_rows(home: Home) -> None:
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", readings(10)))
    with rows(home.pond, f"{home.path}/s", first=minute(3), last=minute(5)) as found:
        assert found.read_all().column("temp").to_pylist() == [3.0, 4.0, 5.0]


def test_complex_sql_queries(home: Home) -> None:
    """COUNT, AVG, GROUP BY, joins and windows over tables, by both names."""
    home.change(lambda wd: write_table(wd.fs, f"{wd.path}/t", [{"site": s, "v": v} for s in "ab" for v in range(10)]))
    path = f"{home.path}/t"
    for name in ("series", "source"):
        with rows(
            home.pond, path, f"SELECT site, count(*) AS n, avg(v) AS m FROM {name} GROUP BY site ORDER BY 1"
        ) as found:
            assert found.read_all().to_pylist() == [{"site": "a", "n": 10, "m": 4.5}, {"site": "b", "n": 10, "m": 4.5}]
    windowed = "WITH x AS (SELECT *, lag(v) OVER (PARTITION BY site ORDER BY v) AS l FROM source) SELECT sum(v - l) AS d FROM x JOIN source USING (site, v)"
    with rows(home.pond, path, windowed) as found:
        assert found.read_all().to_pylist() == [{"d": 18}]


def test_a_query_changes_nothing(home: Home) -> None:
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", readings(3)))
    before = home.pond.lake.current_snapshot()
    for text in ("DELETE FROM series", "DROP TABLE series", "SELECT 1; SELECT 2", "CREATE TABLE x AS SELECT 1"):
        with pytest.raises(InputError), rows(home.pond, f"{home.path}/s", text) as found:
            found.read_all()
    assert home.pond.lake.current_snapshot() == before


def test_sql_over_the_tree_and_the_log(home: Home) -> None:
    """One interface for the tree and the log, and for the data."""
    home.change(lambda wd: (wd.make_directory("d"), wd.write_file("d/f", b"12345")))
    with everything(home.pond) as relations:
        found = relations.query(f"SELECT name, size FROM nodes WHERE path LIKE '{home.path}/d/%'").read_all()
        assert found.to_pylist() == [{"name": "f", "size": 5}]
        states = relations.query("SELECT DISTINCT record_kind FROM txns ORDER BY 1").read_all()
        assert "completed" in states.column(0).to_pylist()


def test_csv_to_file_table_keeps_types_and_rows(home: Home, tmp_path: Path) -> None:
    Path("t.csv").write_text("id,name,born\n1,Ann,1990-01-02\n2,Bob,1985-11-30\n")
    home.change_fs(
        lambda fs: copy_in(fs, *targets(fs, [parse_host("t.csv")], f"{home.path}/t", "table"), ImportOptions())
    )
    table = home.pond.lake.table(f'pond_data."{home.path}/t"')
    assert [str(field.type) for field in table.schema] == ["int64", "string", "date32[day]"]
    assert table.count() == 2


def test_csv_to_file_table_edge_cases(home: Home) -> None:
    """Quotes, empty fields, a header alone, one column."""
    files = {
        "quoted": 'a,b\n"x, y","line\nbreak"\n"say ""hi""",\n',
        "header": "a,b\n",
        "one": "only\n1\n2\n",
    }
    for name, text in files.items():
        Path(f"{name}.csv").write_text(text)
    home.change_fs(
        lambda fs: [
            copy_in(fs, *targets(fs, [parse_host(f"{name}.csv")], f"{home.path}/{name}", "table"), ImportOptions())
            for name in files
        ]
    )
    lake = home.pond.lake
    assert lake.table(f'pond_data."{home.path}/quoted"').to_pylist()[0] == {"a": "x, y", "b": "line\nbreak"}
    assert lake.table(f'pond_data."{home.path}/header"').count() == 0
    assert lake.table(f'pond_data."{home.path}/one"').to_pylist() == [{"only": 1}, {"only": 2}]


@pytest.mark.parametrize("kind", ["csv", "parquet", "json", "jsonl.gz", "arrow"])
def test_files_of_every_kind_become_series(home: Home, kind: str) -> None:
    table = pa.Table.from_pylist(readings(4))
    if kind == "csv":
        Path("in.csv").write_text(csv(4))
    elif kind == "parquet":
        pq.write_table(table, "in.parquet")
    elif kind == "arrow":
        with pa.ipc.new_file("in.arrow", table.schema) as writer:
            writer.write_table(table)
    else:
        import gzip

        text = "\n".join(f'{{"timestamp": "{r["timestamp"].isoformat()}", "temp": {r["temp"]}}}' for r in readings(4))
        Path(f"in.{kind}").write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    done = home.change_fs(
        lambda fs: copy_in(fs, *targets(fs, [parse_host(f"in.{kind}")], f"{home.path}/s.series"), ImportOptions())
    )
    assert (done.rows, str(done.entry_type)) == (4, "file:series")
    with rows(home.pond, done.path) as found:
        assert found.read_all().column("timestamp").to_pylist() == [minute(n) for n in range(4)]


_REPORT = """<html><body><table id="isi-report"><tr><td>Location</td><td>Dock</td></tr>
<tr class="dataHeader"><th>Date Time</th><th>Temperature (C)</th><th>Depth (m)</th></tr>
<tr class="data"><td>2024-01-01 00:00:00</td><td>1.5</td><td>&lt;b&gt;</td></tr>
<tr isi-data-row="1"><td>2024-01-01 00:15:00</td><td>2.5</td><td></td></tr>
</table></body></html>"""


def test_a_report_that_is_called_excel_becomes_a_series(home: Home) -> None:
    Path("report.xls").write_text(_REPORT)
    done = home.change_fs(
        lambda fs: copy_in(
            fs,
            *targets(fs, [parse_host("report.xls")], f"{home.path}/r.series"),
            ImportOptions(timezone="America/New_York"),
        )
    )
    assert done.rows == 2
    with rows(home.pond, done.path) as found:
        table = found.read_all()
    assert table.column_names == ["Date Time", "Temperature (C)", "Depth (m)"]
    assert table.column(0).to_pylist()[0] == dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC)
    assert table.column(2).to_pylist() == ["<b>", None]


@pytest.mark.parametrize(
    ("numbers", "unit"),
    [((1704067200,), "s"), ((1704067200000,), "ms"), ((1704067200000000,), "us"), ((1704067200000000000,), "ns")],
)
def test_numbers_count_from_1970(home: Home, numbers: tuple[int, ...], unit: str) -> None:
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", [{"time": n, "v": 1.0} for n in numbers]))
    assert home.wd.get("s").node.min_event_time == START


@pytest.mark.parametrize("name", ["timestamp", "Timestamp", "time", "EVENT_TIME", "ts", "datetime"], ids=range(6))
def test_the_time_column_is_found_by_its_name(home: Home, name: str) -> None:
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s", [{"a": 1, name: START}]))
    assert home.wd.get("s").node.attribute("timestamp_column") == name


def test_versions_that_cover_the_same_time_are_found(home: Home) -> None:
    for first, count in ((0, 10), (20, 5), (5, 2)):
        home.change(lambda wd, f=first, c=count: append_series(wd.fs, f"{wd.path}/s", readings(c, f, sensor=str(f))))
    (found,) = overlaps(home.wd.get("s"))
    assert (found.first_version, found.second_version, found.begin, found.end) == (1, 3, minute(5), minute(6))


def test_bounds_hide_rows_until_they_are_lifted(home: Home) -> None:
    path = f"{home.path}/s"
    home.change_fs(lambda fs: append_series(fs, path, readings(10)))
    home.change_fs(lambda fs: set_temporal_bounds(fs, path, minute(2), minute(4)))
    with rows(home.pond, path, "SELECT count(*) AS n FROM series") as found:
        assert found.read_all().to_pylist() == [{"n": 3}]
    home.change_fs(lambda fs: append_series(fs, path, readings(1, 10)))
    with rows(home.pond, path, "SELECT count(*) AS n FROM series") as found:
        assert found.read_all().to_pylist() == [{"n": 3}]
    home.change_fs(lambda fs: set_temporal_bounds(fs, path, None, None))
    with rows(home.pond, path, "SELECT count(*) AS n FROM series") as found:
        assert found.read_all().to_pylist() == [{"n": 11}]


def test_two_names_that_sql_cannot_tell_apart_are_refused(home: Home) -> None:
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/Dock", readings(1)))
    with pytest.raises(AlreadyExistsError, match="differ by case only"):
        home.change(lambda wd: append_series(wd.fs, f"{wd.path}/dock", readings(1)))
    home.change_fs(lambda fs: fs.move(f"{home.path}/Dock", f"{home.path}/dock"))
    assert home.pond.lake.table(f'pond_data."{home.path}/dock"').count() == 1


def test_rows_in_batches_are_never_whole_in_memory(home: Home) -> None:
    """A reader of batches goes in, a reader of batches comes out."""
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.float64())])
    base = int(START.timestamp() * 1e6)

    def batches():  # type: ignore[no-untyped-def]
        for n in range(40):
            times = pa.array(range(base + n * 5_000, base + (n + 1) * 5_000), pa.int64()).cast(schema.field(0).type)
            yield pa.record_batch([times, pa.array([float(n)] * 5_000)], schema=schema)

    done = home.change(
        lambda wd: append_series(wd.fs, f"{wd.path}/s", pa.RecordBatchReader.from_batches(schema, batches()))
    )
    assert (done.rows, done.sorted) == (200_000, False)
    with rows(home.pond, done.path) as found:
        assert sum(batch.num_rows for batch in found) == 200_000
