"""Sinks that someone dropped or replaced, and lakes that are older than their sinks: nothing is missing in silence."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core.faults import Fault, FaultInjected, arm
from quacklake.errors import StreamMismatchError
from quacklake.pipelines import Pipeline
from quacklake.pipelines.checkpoints import Manifest
from tests.connectors.sinks import FORMATS
from tests.pipelines.tables import KINDS, connect, definition, end_lease, rows
from tests.seeds import LONG, SEED, chance


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with connect(tmp_path) as opened:
        opened.sql("CREATE TABLE orders (id BIGINT, v BIGINT)")
        yield opened


def add(lake: quacklake.Lake, first: int, end: int) -> None:
    lake.table("orders").append(pa.table({"id": range(first, end), "v": range(first, end)}))


def doubled(first: int, end: int) -> Counter[tuple[Any, ...]]:
    return Counter((n, n * 2) for n in range(first, end))


def run(lake: quacklake.Lake, path: Path, kind: str, **options: bool) -> int:
    return Pipeline(lake, definition(path, (kind,))).run(until_caught_up=True, **options).rows


def drop(lake: quacklake.Lake, path: Path, kind: str) -> None:
    """Drop the table of a sink, as its own tools do."""
    if kind == "lake":
        lake.drop_table("copied")
    elif kind == "iceberg":
        FORMATS[kind].catalog(path / kind).drop_table(("n", "t"))  # type: ignore[attr-defined]
    else:
        shutil.rmtree(path / kind / "t")


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_was_dropped_is_missed(lake: quacklake.Lake, tmp_path: Path, kind: str) -> None:
    add(lake, 0, 5)
    run(lake, tmp_path, kind)
    drop(lake, tmp_path, kind)
    add(lake, 5, 8)
    for _ in range(2):
        with pytest.raises(StreamMismatchError, match=r"was dropped.*rows up to checkpoint 0 would be missing") as said:
            run(lake, tmp_path, kind)
        assert "restart begins again" in str(said.value.hint)
    assert run(lake, tmp_path, kind, restart=True) == 8
    assert rows(kind, tmp_path, lake) == doubled(0, 8)
    drop(lake, tmp_path, kind)
    add(lake, 8, 9)
    assert run(lake, tmp_path, kind, accept=True) == 1
    add(lake, 9, 10)
    assert run(lake, tmp_path, kind) == 1
    assert rows(kind, tmp_path, lake) == doubled(8, 10)


def test_another_table_in_the_place_of_a_sink_is_not_taken_for_it(lake: quacklake.Lake, tmp_path: Path) -> None:
    add(lake, 0, 5)
    run(lake, tmp_path, "lake")
    lake.rename_table("copied", "kept")
    add(lake, 5, 6)
    with pytest.raises(StreamMismatchError, match="dropped or renamed"):
        run(lake, tmp_path, "lake")
    lake.create_table("copied", {"id": pa.int64(), "v": pa.int64()})
    with pytest.raises(StreamMismatchError, match="another one is in its place"):
        run(lake, tmp_path, "lake")
    lake.drop_table("copied")
    lake.rename_table("kept", "copied")
    assert run(lake, tmp_path, "lake") == 1
    assert rows("lake", tmp_path, lake) == doubled(0, 6)


def test_checkpoints_of_an_older_version_miss_their_table_too(
    lake: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("quacklake.pipelines.sinks.Sinks.table_ids", lambda _: {})
        add(lake, 0, 5)
        run(lake, tmp_path, "lake")
    manifest = Manifest(3, "{}")
    assert Manifest.from_json(manifest.to_json()) == manifest and "tables" not in manifest.to_json()
    lake.drop_table("copied")
    add(lake, 5, 6)
    with pytest.raises(StreamMismatchError, match="dropped or renamed"):
        run(lake, tmp_path, "lake")


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_a_lake_that_is_older_than_its_sink_does_not_pass_its_rows_off_as_written(
    lake: quacklake.Lake, tmp_path: Path, kind: str
) -> None:
    add(lake, 0, 5)
    run(lake, tmp_path, kind)
    shutil.copy(tmp_path / "lake.db", tmp_path / "backup.db")
    add(lake, 5, 8)
    run(lake, tmp_path, kind)
    lake.close()
    shutil.copy(tmp_path / "backup.db", tmp_path / "lake.db")
    with connect(tmp_path) as restored:
        add(restored, 100, 104)
        for accept in (False, True):
            with pytest.raises(StreamMismatchError, match="has checkpoint 1, and the lake only 0"):
                run(restored, tmp_path, kind, accept=accept)
        assert rows(kind, tmp_path, restored) == doubled(0, 8)


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_a_first_checkpoint_that_was_confirmed_and_not_shown_is_no_lost_table(
    lake: quacklake.Lake, tmp_path: Path, kind: str
) -> None:
    add(lake, 0, 5)
    for point in ("pipeline.confirm.after", "pipeline.finalize.after", "pipeline.finalize.before"):
        with arm(Fault(pattern=point)), pytest.raises(FaultInjected):
            run(lake, tmp_path, kind)
        end_lease(lake)
        add(lake, lake.table("orders").count(), lake.table("orders").count() + 1)
    run(lake, tmp_path, kind)
    assert rows(kind, tmp_path, lake) == doubled(0, lake.table("orders").count())


@pytest.mark.parametrize("number", range(10 if LONG else 1))
def test_whatever_happens_to_lake_and_sink_rows_are_there_once_or_it_is_said(tmp_path: Path, number: int) -> None:
    """Drops, renames, backups that come back, and deaths, in any order."""
    dice = chance("lost sinks", SEED, number)
    kind = dice.choice(KINDS)
    lake = connect(tmp_path)
    lake.sql("CREATE TABLE orders (id BIGINT, v BIGINT)")
    refused = caught_up = 0
    for step in range(40 if LONG else 10):
        # ids that no other step has, also after the lake has forgotten this one
        add(lake, 100 * step, 100 * step + dice.randint(1, 3))
        happens = dice.choice(("nothing", "nothing", "drop", "backup", "restore"))
        backup = tmp_path / "backup.db"
        if happens == "drop" and caught_up:
            drop(lake, tmp_path, kind)
        elif happens == "backup":
            shutil.copy(tmp_path / "lake.db", backup)
        elif happens == "restore" and backup.exists():
            lake.close()
            shutil.copy(backup, tmp_path / "lake.db")
            lake = connect(tmp_path)
            add(lake, 100 * step + 50, 100 * step + 51)
        try:
            if dice.random() < 0.3:
                with arm(Fault(at=dice.randint(1, 30), pattern="pipeline.*")):
                    run(lake, tmp_path, kind)
            else:
                run(lake, tmp_path, kind)
        except FaultInjected:
            end_lease(lake)
            continue
        except StreamMismatchError:
            refused += 1
            if kind == "lake":
                run(lake, tmp_path, kind, restart=True)
            else:  # as the hint says: with an empty sink
                shutil.rmtree(tmp_path / kind)
                (tmp_path / kind).mkdir()
                run(lake, tmp_path, kind, restart=True)
        caught_up += 1
        expected = Counter((id_, v * 2) for id_, v in lake.sql("SELECT id, v FROM orders").fetchall())
        assert rows(kind, tmp_path, lake) == expected, f"{kind}, seed {SEED}, step {step}: after {happens}"
    assert caught_up
    lake.close()
