"""Two phases into Hudi tables, as the library hudi reads them. Spark writes them in one JVM for all tests."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("hudi", reason="the package hudi is not installed")

from hudi import HudiTable

from quacklake.connectors import PreparedCommit, WrittenFile, connector
from quacklake.connectors.hudi.session import writing
from quacklake.core.faults import Fault, FaultInjected, arm
from quacklake.errors import (
    CommitUnknown,
    ConfigError,
    ConnectorError,
    SchemaMismatchError,
    UnsupportedVersionError,
)
from tests.connectors.hudi_spark import Unreachable, hudi_jvm
from tests.connectors.hudi_writer import QUICK, SCHEMA, new, rows
from tests.pipelines.tables import connect, definition
from tests.seeds import LONG, SEED, some

ARCHIVE = Path(__file__).with_name("hudi_tables.zip")
Write = Callable[..., list[int]]


@pytest.fixture(scope="module")
def jvm() -> Iterator[dict[str, str]]:
    """The environment of processes that write."""
    try:
        with hudi_jvm() as environment:
            yield environment
    except Unreachable as error:
        pytest.skip(str(error))  # also where a missing server fails: the jar comes from Maven


def job(path: Path, *steps: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"options": {"location": str(path / "t"), **options}, "steps": steps, "kept": str(path / "prepared")}


def process(environment: dict[str, str], asked: dict[str, Any], fault: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.connectors.hudi_writer", json.dumps(asked)]
    armed = {"QUACKLAKE_FAULT": fault} if fault else {}
    return subprocess.run(command, env={**environment, **armed}, capture_output=True, text=True, timeout=240)


@pytest.fixture
def write(jvm: dict[str, str], tmp_path: Path) -> Write:
    """Take steps in another process, and return the versions that it finalized."""

    def write(*steps: dict[str, Any], **options: Any) -> list[int]:
        done = process(jvm, job(tmp_path, *steps, **options))
        assert done.returncode == 0, done.stderr
        versions: list[int] = json.loads(done.stdout.splitlines()[-1])
        return versions

    return write


def step(checkpoint: int, *batches: tuple[int, int] | tuple[int, int, str], **options: Any) -> dict[str, Any]:
    return {"checkpoint": checkpoint, "batches": batches, "options": options}


AGAIN: dict[str, Any] = {}
"""The step that finalizes once more what was prepared last."""


def table(path: Path) -> pa.Table:
    return pa.Table.from_batches(HudiTable(str(path / "t")).read()).sort_by("id")


def ids(path: Path) -> list[int]:
    found: list[int] = table(path).column("id").to_pylist()
    return found


def commits(path: Path) -> int:
    return sum(
        file.suffix in (".commit", ".deltacommit", ".replacecommit") for file in path.glob("t/.hoodie/timeline/*")
    )


def staged(path: Path) -> list[Path]:
    return list(path.glob("t/.quacklake/staged/*"))


def test_a_checkpoint_is_written_once_and_each_writer_counts_for_itself(write: Write, tmp_path: Path) -> None:
    options = {"key": "id", "partition_by": "part", "writer_id": "one"}
    versions = write(
        step(0, (0, 10), (10, 20)),
        AGAIN,
        step(1, (20, 25)),
        AGAIN,
        step(1, (70, 75)),
        step(0, (30, 32), writer_id="two", key="", partition_by=""),
        step(2),
        step(2, (80, 85)),
        **options,
    )
    assert ids(tmp_path) == [*range(25), 30, 31]
    assert versions[0] == versions[1] < versions[2] == versions[3] == versions[4] < versions[5]
    assert commits(tmp_path) == 3
    assert staged(tmp_path) == []
    wanted = pa.Table.from_batches([rows(0, 25), rows(30, 32)])
    found = table(tmp_path).select(SCHEMA.names)
    assert found.schema.field("part").type == pa.int32()
    assert str(found.cast(SCHEMA).to_pylist()) == str(wanted.to_pylist())  # NaN is not equal to itself
    assert (tmp_path / "t/part=__HIVE_DEFAULT_PARTITION__").is_dir()

    source = connector("hudi", "source")(
        {"location": str(tmp_path / "t"), "mode": "incremental", "version": versions[0]}
    )
    source.start()
    seen = []
    while (batch := source.poll_next()) is not None:
        seen += batch.column("id").to_pylist()
    assert sorted(seen) == [*range(20, 25), 30, 31]

    other = SCHEMA.set(0, pa.field("id", pa.string()))
    place = {"location": str(tmp_path / "t")}
    for schema, word in ((other, '"id"'), (SCHEMA.append(pa.field("x", pa.int32())), '"x"'), (SCHEMA.remove(2), '"s"')):
        with pytest.raises(SchemaMismatchError, match=word):
            new(place).initialize(schema)
    for changed in ({"key": "s"}, {"partition_by": "s"}, {"table_type": "merge_on_read"}):
        with pytest.raises(ConfigError, match=next(iter(changed))):
            new({**place, **changed}).initialize(SCHEMA)
    again = new(place)
    again.initialize(SCHEMA)
    again.write_batch(rows(90, 95))
    prepared = again.prepare_commit(0)
    assert len(staged(tmp_path)) == 1 and ids(tmp_path) == [*range(25), 30, 31]
    new(place).abort(prepared)
    assert staged(tmp_path) == []


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_an_upsert_changes_rows_by_their_key(write: Write, tmp_path: Path, table_type: str) -> None:
    options = {"mode": "upsert", "record_key": "id", "precombine": "t", "table_type": table_type}
    versions = write(step(0, (0, 10, "a")), step(1, (5, 8, "b")), AGAIN, **options)
    assert versions[1] == versions[2]
    assert table(tmp_path).column("s").to_pylist() == [f"{'b' if 5 <= n < 8 else 'a'}{n}" for n in range(10)]
    assert bool(list(tmp_path.glob("t/.*.log.*"))) == (table_type == "merge_on_read")


@pytest.mark.daily(0.25)
def test_an_overwrite_leaves_the_rows_of_the_last_checkpoint(write: Write, tmp_path: Path) -> None:
    options = {"mode": "overwrite", "partition_by": "part"}
    write(step(0), step(1, (0, 5)), step(2, (8, 9)), AGAIN, **options)
    assert ids(tmp_path) == [8]
    write(step(3), **options)
    assert HudiTable(str(tmp_path / "t")).read() == []


@pytest.mark.crash
@pytest.mark.daily(0.25)
@pytest.mark.parametrize("point", ["commit.before", "commit.after", "kept.after"])
def test_a_death_at_any_point_is_made_good_by_the_next_process(
    jvm: dict[str, str], write: Write, tmp_path: Path, point: str
) -> None:
    done = process(jvm, job(tmp_path, step(0, (0, 20))), f"1:kill:connector.hudi.{point}")
    assert done.returncode == -signal.SIGKILL, done.stderr
    if point == "commit.before":
        write(AGAIN)
    else:  # nothing is left to write: it works without Spark
        new({"location": str(tmp_path / "t")}).finalize_commit(
            PreparedCommit.from_json((tmp_path / "prepared").read_text())
        )
    assert (ids(tmp_path), commits(tmp_path), staged(tmp_path)) == (list(range(20)), 1, [])


@pytest.mark.daily(0.25)
def test_a_write_that_fails_in_the_middle_is_repeated(jvm: dict[str, str], write: Write, tmp_path: Path) -> None:
    write(step(0, (0, 3)))
    sink = new({"location": str(tmp_path / "t")})
    sink.initialize(SCHEMA)
    sink.write_batch(rows(3, 9))
    (tmp_path / "prepared").write_text(sink.prepare_commit(1).to_json())
    (file,) = staged(tmp_path)
    good = file.read_bytes()
    file.write_bytes(good[:4] + bytes(200) + good[204:])
    done = process(jvm, job(tmp_path, AGAIN))
    assert "the commit to the Hudi table failed: org.apache" in done.stderr and ids(tmp_path) == [0, 1, 2]
    file.write_bytes(good)
    write(AGAIN)
    assert (ids(tmp_path), commits(tmp_path)) == (list(range(9)), 2)


@pytest.mark.crash
@pytest.mark.timeout(900)
@pytest.mark.daily(0)
def test_a_spark_that_is_killed_while_it_writes_leaves_each_row_once(
    jvm: dict[str, str], write: Write, tmp_path: Path
) -> None:
    """The process dies with its JVM, at any time of the commit."""
    dice = random.Random(SEED)
    write(step(0, (0, 10)))
    command = [sys.executable, "-m", "tests.connectors.hudi_writer"]
    environment = {key: value for key, value in jvm.items() if not key.startswith("PYSPARK_GATEWAY")}
    for number in range(1, 9 if LONG else 3):
        (tmp_path / "prepared").unlink()
        asked = json.dumps({**job(tmp_path, step(number, (number * 10, number * 10 + 10))), "own": True})
        child = subprocess.Popen([*command, asked], env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
        while not (tmp_path / "prepared").exists():
            assert child.poll() is None
            time.sleep(0.05)
        time.sleep(dice.uniform(0, 8))
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        write(AGAIN)
        assert ids(tmp_path) == list(range(number * 10 + 10))


def test_what_was_prepared_before_a_crash_is_aborted_by_a_new_sink(tmp_path: Path) -> None:
    place = {"location": str(tmp_path / "t"), "target_file_size": "1kB"}
    for point in ("prepare.before", "prepare.after"):
        sink = new(place)
        sink.initialize(SCHEMA)
        sink.write_batch(rows(0, 5))
        with arm(Fault(pattern=f"connector.hudi.{point}")), pytest.raises(FaultInjected):
            sink.prepare_commit(0)
        sink.close()
        sink.close()
    sink = new(place)
    sink.initialize(SCHEMA)
    for first in range(0, 400, 100):
        sink.write_batch(rows(first, first + 100))
    prepared = sink.prepare_commit(0)
    assert (prepared.records_written, len(prepared.data_files)) == (400, 4)
    kept = {tmp_path / "t" / file.path for file in prepared.data_files}
    assert prepared.bytes_written == sum(file.stat().st_size for file in kept)
    again = new(place)
    again.abort(prepared)
    again.abort(prepared)
    again.abort(None)
    assert kept.isdisjoint(staged(tmp_path))


def test_a_checkpoint_that_was_archived_is_not_written_again(tmp_path: Path) -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    place = tmp_path / "copy_on_write"
    files = sorted(place.glob(".hoodie/timeline/*.commit"))
    newest = int(files[0].name[:17])
    prepared = PreparedCommit(3, (WrittenFile(".quacklake/staged/x", 1, 1),), 1, 1, {"newest": newest})
    files[0].unlink()
    (place / ".hoodie/timeline/history").mkdir()
    (place / ".hoodie/timeline/history/manifest_1").write_text("")
    sink = new({"location": str(place), "writer_id": "a/b"})
    with pytest.raises(CommitUnknown, match="archived"):
        sink.finalize_commit(prepared)
    (place / ".quacklake/writers").mkdir(parents=True)
    (place / ".quacklake/writers/a%2Fb.json").write_text(json.dumps({"checkpoint": 3, "version": newest}))
    assert sink.finalize_commit(prepared).version == newest


def test_a_checkpoint_is_found_behind_a_commit_that_another_writer_has_not_completed(tmp_path: Path) -> None:
    """A source waits for such a commit in a table of the old layout. A sink that did would write its rows again."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    _, under_way, ours = sorted((tmp_path / "old_layout").glob(".hoodie/*.commit"))
    under_way.unlink()
    metadata = json.loads(ours.read_text())
    metadata["extraMetadata"] |= {"quacklake.writer": "quacklake", "quacklake.checkpoint": "7"}
    ours.write_text(json.dumps(metadata))
    prepared = PreparedCommit(7, (WrittenFile(".quacklake/staged/x", 1, 1),), 1, 1, {"newest": -1})
    assert new({"location": str(tmp_path / "old_layout")}).finalize_commit(prepared).version == int(ours.stem)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "upsert"}, ConfigError),
        ({"partition_by": "nothing"}, SchemaMismatchError),
        ({"mode": "upsert", "key": "nothing"}, SchemaMismatchError),
        ({"order_by": "nothing"}, SchemaMismatchError),
        ({"target_file_size": "12"}, ConfigError),
        ({"table_type": "merge"}, ConfigError),
        ({"locaton": "x"}, ConfigError),
        ({"hoodie.datasource.write.operation": "delete"}, ConfigError),
    ],
)
def test_bad_options_are_refused_and_nothing_is_made(
    tmp_path: Path, options: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        new({"location": str(tmp_path / "t"), **options}).initialize(SCHEMA)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.uint64(), pa.time64("us"), pa.null(), pa.float16()])
def test_a_type_that_hudi_does_not_have_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match='"x"'):
        new({"location": str(tmp_path / "t")}).initialize(pa.schema([("id", pa.int64()), ("x", kind)]))


def test_a_spark_that_hudi_has_no_jar_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="the package pyspark is not installed")
    monkeypatch.setattr("quacklake.connectors.hudi.session.installed_version", lambda: (4, 3))
    with pytest.raises(UnsupportedVersionError, match=r"4\.3") as caught, writing():
        from pyspark.errors import AnalysisException

        raise AnalysisException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: hudi.")
    assert "3.5" in str(caught.value)


def test_a_process_without_a_spark_session_for_hudi_is_told_what_it_needs(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the package pyspark is not installed")
    from pyspark.errors import AnalysisException

    sink = new({"location": str(tmp_path / "t")})
    with pytest.raises(ConnectorError, match="initialize"):
        sink.write_batch(rows(0, 1))
    sink.initialize(SCHEMA)
    sink.write_batch(rows(0, 1))
    prepared = sink.prepare_commit(0)
    # another test of this process may have left a session, which has no jar of Hudi
    with pytest.raises(ConfigError, match="Spark session") as caught:
        sink.finalize_commit(prepared)
    assert "spark.jars.packages=org.apache.hudi:hudi-spark" in str(caught.value)
    with pytest.raises(ConfigError, match="no jar of Hudi"), writing():
        raise AnalysisException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: hudi.")
    with pytest.raises(ConnectorError, match="out of luck"), writing():
        raise AnalysisException("out of luck\nand more")
    assert staged(tmp_path)


PIPELINE_POINTS = [
    "pipeline.prepare.before",
    "connector.hudi.prepare.before",
    "connector.hudi.prepare.after",
    "pipeline.confirm.before",
    "pipeline.confirm.after",
    "connector.hudi.commit.before",
    "connector.hudi.commit.after",
    "connector.hudi.kept.after",
    "pipeline.finalize.after",
    "pipeline.finish.after",
]


@pytest.mark.daily(0.22)
@pytest.mark.crash
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_killed_pipeline_neither_loses_nor_doubles_a_row(jvm: dict[str, str], tmp_path: Path, mode: str) -> None:
    key = {"mode": mode, "key": "id"} if mode == "upsert" else {}
    hudi = {"type": "hudi", "location": str(tmp_path / "t"), "key": "id", **QUICK, **key}
    given = definition(tmp_path, sinks=[hudi, {"type": "lake", "table": "copied", **key}], engine="local")
    (tmp_path / "definition.json").write_text(json.dumps(given))
    with connect(tmp_path) as lake:
        lake.sql("CREATE TABLE orders (id BIGINT, v BIGINT)")
    end = 0
    for point in ["", *some(PIPELINE_POINTS, 1, "kills of a pipeline into Hudi", mode), ""]:
        begun, end = end, end + 5
        command = [sys.executable, "-m", "tests.pipelines.run_pipeline", str(tmp_path), str(begun), str(end)]
        armed = {"QUACKLAKE_FAULT": f"1:kill:{point}"} if point else {}
        ended = subprocess.run(command, env=jvm | armed, capture_output=True, text=True, timeout=240)
        assert ended.returncode == (-9 if point else 0), f"{point}: {ended.stderr[-3000:]}"
    seen = table(tmp_path)
    pairs = sorted(zip(seen.column("id").to_pylist(), seen.column("v").to_pylist(), strict=True))
    with connect(tmp_path) as lake:
        assert pairs == sorted(lake.sql("SELECT id, v FROM copied").fetchall()) == [(n, n * 2) for n in range(end)]
    # a process that dies between a file and the checkpoint that would name it leaves that file, which nobody reads
    assert len(staged(tmp_path)) <= end // 5 - 2
