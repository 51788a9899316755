"""Hudi tables as sources: what Hudi wrote through Spark, read without it and compared with what Spark reads."""

from __future__ import annotations

import json
import random
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quacklake.connectors import Source, SourceCheckpoint, connector
from quacklake.errors import (
    ConfigError,
    ConnectorError,
    NotFoundError,
    SnapshotExpiredError,
    StreamMismatchError,
    UnsupportedFeatureError,
)
from tests.seeds import SEED

pytest.importorskip("hudi", reason="the package hudi is not installed")

ARCHIVE = Path(__file__).with_name("hudi_tables.zip")
TABLES = ("copy_on_write", "merge_on_read", "old_layout", "wider")
Rows = list[tuple[int, str]]


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, list[tuple[int, str, str]]]]:
    """The rows that Spark reads from each table at each commit: the id, the text and the commit of each row."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        found = json.loads(archive.read("expected.json"))
    return {
        name: {instant: [tuple(row) for row in rows] for instant, rows in commits.items()}
        for name, commits in found.items()
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the tables, to do with as one likes."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def new(table: Path, **options: Any) -> Source:
    made: Source = connector("hudi", "source")({"location": str(table), "poll_interval": "1 ms", **options})
    return made


def drain(source: Source) -> Iterator[pa.RecordBatch]:
    while (batch := source.poll_next()) is not None:
        yield batch


def rows(source: Source) -> Rows:
    return sorted((row["id"], row["s"]) for batch in drain(source) for row in batch.to_pylist())


def read(table: Path, **options: Any) -> Rows:
    source = new(table, **options)
    source.start()
    return rows(source)


def timeline(table: Path) -> list[Path]:
    """The files of completed commits, in the order of their completion."""
    found = [*table.glob(".hoodie/*"), *table.glob(".hoodie/timeline/*")]
    return sorted(
        (file for file in found if file.suffix in (".commit", ".deltacommit", ".replacecommit")),
        key=lambda file: file.stem.rpartition("_")[2],
    )


def instant(file: Path) -> int:
    return int(file.name[:17])


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_at_each_commit_as_spark_reads_it(place: Path, expected: dict[str, Any], name: str) -> None:
    for version, known in expected[name].items():
        wanted = [row[:2] for row in known]
        assert read(place / name, mode="snapshot", version=version, batch_rows=4) == wanted, version
    assert read(place / name) == wanted
    assert new(place / name).schema().names == ["id", "part", "s", "t", *(["more"] if name == "wider" else [])]


def test_a_column_that_a_file_does_not_have_yet_is_null(place: Path) -> None:
    source = new(place / "wider")
    source.start()
    found = {row["id"]: row["more"] for batch in drain(source) for row in batch.to_pylist()}
    assert found == {n: 2 * n if n >= 5 else None for n in range(10)}


@pytest.mark.parametrize("name", TABLES)
def test_each_commit_has_the_rows_that_it_wrote(place: Path, expected: dict[str, Any], name: str) -> None:
    before = 0
    for version, known in expected[name].items():
        source = new(place / name, mode="incremental", version=before, on_change="rows", batch_rows=3)
        source.start()
        seen: Rows = []
        while source.current_checkpoint().table_version in (before, -1) and (batch := source.poll_next()):
            behind = source.current_checkpoint()
            whole = behind.table_version == int(version) and not behind.files_processed and "rows" not in behind.offsets
            if whole or behind.table_version in (before, -1):
                seen += [(row["id"], row["s"]) for row in batch.to_pylist()]
        assert sorted(seen) == [row[:2] for row in known if row[2] == version], version
        before = int(version)


def test_the_modes_that_end_read_what_they_say(place: Path) -> None:
    table = place / "old_layout"
    first, second, third = (instant(file) for file in timeline(table))
    then = datetime.strptime(f"{second}000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)

    def numbers(**options: Any) -> list[int]:
        return [row[0] for row in read(table, **options)]

    assert numbers(mode="snapshot", timestamp=then.isoformat()) == list(range(20))
    assert numbers(mode="snapshot", timestamp=(then - timedelta(milliseconds=1)).isoformat()) == list(range(10))
    assert numbers(mode="incremental", version=first) == list(range(10, 30))
    assert numbers(mode="incremental", version=third) == []
    with pytest.raises(NotFoundError):
        read(table, mode="snapshot", timestamp="2020-01-01T00:00:00")
    with pytest.raises(SnapshotExpiredError, match="no commit"):
        read(table, mode="incremental", version=second + 1)


def test_a_time_means_the_completion_of_commits(place: Path) -> None:
    table = place / "copy_on_write"
    files = timeline(table)
    done = datetime.strptime(f"{files[1].stem[18:]}000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    assert len(read(table, mode="snapshot", timestamp=done.isoformat())) == 20
    early = done - timedelta(milliseconds=1)
    assert len(read(table, mode="snapshot", timestamp=early.isoformat())) == 10


def hidden(table: Path) -> Callable[[], bool]:
    """Hide all commits but the first; each call shows one more, until none is left."""
    aside = table.parent / f"{table.name}-aside"
    aside.mkdir()
    left = [(file, shutil.move(file, aside / file.name)) for file in timeline(table)[1:]]

    def show() -> bool:
        if left:
            shutil.move(*reversed(left.pop(0)))
        return bool(left)

    return show


@pytest.mark.parametrize("name", TABLES)
def test_a_source_that_ends_anywhere_goes_on_behind_its_checkpoint(
    place: Path, expected: dict[str, Any], name: str
) -> None:
    """Random deaths while commits come: what was returned before a checkpoint and after it is everything, once."""
    dice = random.Random(SEED)
    show = hidden(place / name)
    seen: Counter[tuple[int, str]] = Counter()
    checkpoint: SourceCheckpoint | None = None
    begun, more = 0, True
    while more:
        source = new(place / name, mode="continuous", on_change="rows", batch_rows=dice.randint(1, 6))
        source.start(checkpoint)
        for _ in range(dice.randint(0, 9)):
            if (batch := source.poll_next()) is not None:
                seen.update((row["id"], row["s"]) for row in batch.to_pylist())
                begun = begun or source.current_checkpoint().offsets["state"]
        checkpoint = SourceCheckpoint.from_json(source.current_checkpoint().to_json())
        if dice.random() < 0.4:
            more = show()
    source = new(place / name, mode="continuous", on_change="rows")
    source.start(checkpoint)
    seen.update(rows(source))
    # the commit whose state was read first, then what each later one wrote
    first = begun or instant(timeline(place / name)[-1])
    wanted = Counter(row[:2] for row in expected[name][str(first)])
    for version, known in expected[name].items():
        if int(version) > first:
            wanted.update(row[:2] for row in known if row[2] == version)
    assert seen == wanted


def test_logs_that_come_later_do_not_move_a_position(place: Path) -> None:
    """A merge sorts rows, so the source must return the rows of a file without logs in that order too."""
    table = place / "merge_on_read"
    show = hidden(table)
    source = new(table, mode="continuous", on_change="rows", batch_rows=4)
    source.start()
    first = source.poll_next()
    assert first is not None
    show()
    again = new(table, mode="continuous", on_change="rows", batch_rows=4)
    again.start(source.current_checkpoint())
    found = Counter([*first.column("s").to_pylist(), *(row[1] for row in rows(again))])
    assert found == Counter([*(f"s{n}" for n in range(10)), *(f"u{n}" for n in range(5, 10))])


def test_changed_rows_are_an_error_or_what_the_option_says(place: Path) -> None:
    for name in ("copy_on_write", "merge_on_read"):
        first = instant(timeline(place / name)[0])
        with pytest.raises(ConnectorError, match="changed or removed rows"):
            read(place / name, mode="incremental", version=first)
    first = instant(timeline(place / "copy_on_write")[0])
    found = read(place / "copy_on_write", mode="incremental", version=first, on_change="skip")
    assert [row[0] for row in found] == [*range(10, 30), *range(40, 45)]


def test_a_commit_that_is_completed_late_is_read_when_it_is(place: Path) -> None:
    table = place / "copy_on_write"
    files = timeline(table)
    for file in files[3:]:
        file.unlink()
    late = files[1]
    source = new(table, mode="continuous")
    late.rename(place / "late")
    source.start()
    assert len(rows(source)) == 20
    whole = new(table, mode="continuous", batch_rows=5)
    whole.start()
    assert whole.poll_next() is not None
    middle = whole.current_checkpoint()
    completed = datetime.strptime(files[2].stem[18:] + "000", "%Y%m%d%H%M%S%f") + timedelta(seconds=1)
    (place / "late").rename(late.with_name(f"{late.stem[:17]}_{completed:%Y%m%d%H%M%S%f}"[:-3] + ".commit"))
    assert [row[0] for row in rows(source)] == list(range(10, 20))
    again = new(table, mode="continuous")
    again.start(middle)
    assert len(rows(again)) == 25


def test_a_table_of_the_old_layout_waits_for_commits_that_began_earlier(place: Path) -> None:
    table = place / "old_layout"
    files = timeline(table)
    files[1].unlink()
    assert [row[0] for row in read(table)] == list(range(10))
    files[1].with_name(f"{files[1].name}.requested").unlink()
    files[1].with_suffix(".inflight").unlink()
    assert [row[0] for row in read(table)] == [*range(10), *range(20, 30)]


def test_files_that_hudi_has_cleaned_are_an_error_and_not_fewer_rows(place: Path) -> None:
    table = place / "copy_on_write"
    files = timeline(table)
    rewritten = next(table.glob(f"part=1/*_{instant(files[0])}.parquet"))
    rewritten.unlink()
    for options in ({"mode": "snapshot", "version": instant(files[1])}, {"mode": "incremental", "version": 0}):
        with pytest.raises(SnapshotExpiredError, match="removed files"):
            read(table, **options)
    assert len(read(table)) == 5
    table = place / "merge_on_read"
    files = timeline(table)
    next(table.glob(f".*_{instant(files[1])}.log.*")).unlink()
    with pytest.raises(SnapshotExpiredError, match="removed files"):
        read(table, mode="incremental", version=instant(files[0]), on_change="rows")


def test_a_position_in_the_archive_is_an_error(place: Path) -> None:
    table = place / "copy_on_write"
    source = new(table, mode="snapshot", version=instant(timeline(table)[0]))
    source.start()
    rows(source)
    for file in timeline(table)[:2]:
        file.unlink()
    with pytest.raises(StreamMismatchError):
        new(table, mode="continuous").start(source.current_checkpoint())
    (table / ".hoodie/timeline/history").mkdir()
    (table / ".hoodie/timeline/history/manifest_1").write_text("")
    with pytest.raises(SnapshotExpiredError):
        new(table, mode="continuous").start(source.current_checkpoint())
    with pytest.raises(SnapshotExpiredError, match="archived"):
        read(table, mode="incremental", version=0)
    assert len(read(table)) == 5


def test_another_table_in_the_place_of_the_first_is_an_error(place: Path) -> None:
    source = new(place / "copy_on_write", mode="continuous")
    source.start()
    rows(source)
    shutil.rmtree(place / "copy_on_write")
    shutil.move(place / "old_layout", place / "copy_on_write")
    with pytest.raises(StreamMismatchError):
        new(place / "copy_on_write", mode="continuous").start(source.current_checkpoint())


@pytest.mark.parametrize(
    "setting", ["hoodie.populate.meta.fields=false", "hoodie.datasource.write.drop.partition.columns=true"]
)
def test_a_table_that_cannot_be_read_is_refused(place: Path, setting: str) -> None:
    properties = place / "copy_on_write/.hoodie/hoodie.properties"
    name = setting.partition("=")[0]
    text = re.sub(rf"^{re.escape(name)}=.*$", setting, properties.read_text(), flags=re.MULTILINE)
    properties.write_text(text)
    with pytest.raises((UnsupportedFeatureError, ConnectorError), match=name):
        new(place / "copy_on_write").start()


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "snapshot"},
        {"change_data_feed": True, "mode": "continuous"},
        {"pol_interval": "1s"},
        {"on_change": "?"},
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        new(tmp_path, **options)


def test_a_place_without_a_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="cannot be opened"):
        new(tmp_path).start()


def test_a_table_is_found_by_a_relative_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.parent)
    source = new(Path(place.name) / "copy_on_write")
    source.start()
    assert source.poll_next() is not None
