"""From Arrow files to the lake: nothing lost, nothing twice, and nothing taken on trust."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import random
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.config import resolve
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.errors import CatalogError, InputError, MemoryLimitError, NotFoundError, StorageError, StreamFencedError
from quacklake.lake.lake import Lake
from quacklake_ekko.migration import (
    ArrowFolder,
    DualWriter,
    TransactionReader,
    backfill,
    compare,
    comparison,
    load,
    retire,
    switch,
)
from quacklake_ekko.migration import folder as folder_module
from quacklake_ekko.migration.layout import SCHEMA, ArrowPath, BatchMetadata
from quacklake_ekko.simulator import Simulation
from quacklake_ekko.table import TABLE
from quacklake_ekko.transactions import ROWS, NodeConfig, merge_newest
from services import MotoServer
from tests.ekko.arrow_files import START, changed, in_lake, open_folder, transactions
from tests.seeds import SEED

SECOND = dt.timedelta(seconds=1)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as opened:
        yield opened


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "arrow"


@pytest.fixture
def folder(place: Path) -> ArrowFolder:
    return open_folder(place)


def arrow_files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.arrow"))


# files


def test_a_batch_lies_where_the_old_writer_puts_it_and_reads_back_as_the_same_rows(
    folder: ArrowFolder, place: Path
) -> None:
    rows = transactions()
    folder.write(rows, START)
    paths = [str(path.relative_to(place)) for path in arrow_files(place)]
    assert len(paths) == 2, "one for each hour"
    assert paths[0].startswith(
        "transactions/network=Avalanche/subnet=Mainnet/vm_type=EVM/year=2023/month=11/day=14/hour=22/"
        "block_batch=0-1/transactions_20231114T220000_"
    )
    files, skipped = folder.files()
    assert skipped == []
    read = pa.concat_tables([table for file in files for table in folder.rows(file, folder.check(file))])
    assert read.sort_by("tx_hash").equals(rows.sort_by("tx_hash"))
    with pa.OSFile(str(arrow_files(place)[0])) as source:
        assert pa.ipc.open_file(source).schema.equals(SCHEMA)
    metadata = json.loads((place / f"{paths[0]}.metadata.json").read_text())
    assert list(metadata) == [field.name for field in dataclasses.fields(BatchMetadata)]
    assert metadata["file_path"] == paths[0]


def test_rows_of_the_old_writer_are_read_as_the_lake_has_them(folder: ArrowFolder, place: Path) -> None:
    path = ArrowPath("a", "b", "evm", START, 7, 7, START, "0123abcd")
    row = {
        "network": "a", "subnet": "b", "vm_type": "evm", "block_time": START, "year": 1, "month": 1, "day": 1,
        "hour": 1, "block_hash": "", "block_number": 7, "tx_hash": "0x1", "tx_index": 0, "from": "0x2", "to": "",
        "value": "0xDE0B6B3A7640000", "gas_price": "007", "gas_limit": "0", "nonce": "0x" + "f" * 64,
        "input_data": b"0xDEAD", "success": True,
    }  # fmt: skip
    target = place / str(path)
    target.parent.mkdir(parents=True)
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist([row], SCHEMA))
    file = folder.files()[0][0]
    (table,) = folder.rows(file, folder.check(file))
    read = table.to_pylist()[0]
    assert (read["to_address"], read["value"], read["gas_price"]) == (None, "1000000000000000000", "7")
    assert (read["nonce"], read["input_data"]) == (str(2**256 - 1), b"\xde\xad")
    assert (read["year"], read["hour"], read["ingested_at"]) == (2023, 22, START)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 200] = b"\xff" * 200
    path.write_bytes(bytes(data))


def edit_metadata(**changes: object) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        metadata = path.with_name(f"{path.name}.metadata.json")
        metadata.write_text(json.dumps(json.loads(metadata.read_text()) | changes))

    return edit


def rewrite(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        with pa.OSFile(str(path)) as source:
            table = change(pa.ipc.open_file(source).read_all())
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        edit_metadata(file_size=path.stat().st_size)(path)

    return edit


def link(path: Path) -> None:
    elsewhere = path.parent.parent.parent / "elsewhere.bin"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def other_names(path: Path) -> None:
    path.with_name(f"{path.name}.metadata.json").unlink()
    path.rename(path.with_name("transactions_today.arrow"))


def other_folder(path: Path) -> None:
    target = path.parent.with_name("block_batch=900-901")
    path.with_name(f"{path.name}.metadata.json").unlink()
    path.parent.rename(target)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "cannot be read"),
    "truncated": (truncate, "cannot be read|file_size"),
    "no Arrow": (lambda path: path.write_bytes(b"ARROW1\0\0" + b"x" * 500), "cannot be read|file_size"),
    "column gone": (rewrite(lambda table: table.drop_columns(["nonce"])), "'nonce'"),
    "another type": (
        rewrite(lambda table: table.set_column(10, "tx_hash", pa.array(range(len(table))))),
        "'tx_hash' has the type int64",
    ),
    "NULL": (
        rewrite(lambda table: table.set_column(9, "block_number", pa.nulls(len(table), pa.uint64()))),
        "'block_number' has NULL",
    ),
    "a number too large": (
        rewrite(lambda table: table.set_column(9, "block_number", pa.array([2**64 - 1] * len(table), pa.uint64()))),
        "'block_number' does not fit",
    ),
    "no number": (
        rewrite(lambda table: table.set_column(14, "value", pa.array(["much"] * len(table)))),
        "'value' has 'much'",
    ),
    "no rows": (rewrite(lambda table: table.slice(0, 0)), "no rows"),
    "two nodes": (
        rewrite(lambda t: t.set_column(1, "subnet", pa.array([f"s{n % 2}" for n in range(len(t))]))),
        "more than one node",
    ),
    "other count": (edit_metadata(tx_count=1000), "tx_count = 1000"),
    "other file": (edit_metadata(file_path="transactions/../../etc/passwd"), "file_path"),
    "metadata of another form": (edit_metadata(tx_count="many"), "metadata cannot be read"),
    "no JSON": (
        lambda path: path.with_name(f"{path.name}.metadata.json").write_bytes(b"[" * 100_000),
        "metadata cannot be read",
    ),
    "link": (link, "symbolic link"),
    "name": (other_names, "not that of a batch"),
    "blocks of another folder": (other_folder, "start_block = 900"),
}


def test_files_that_cannot_be_trusted_are_left_out_whole_and_reported(
    lake: Lake, folder: ArrowFolder, place: Path
) -> None:
    good = transactions(blocks=1)
    folder.write(good, START)
    for number, (spoil, _) in enumerate(HOSTILE.values()):
        folder.write(transactions(blocks=1, network=f"n{number}", seed=number + 1), START)
        (bad,) = (place / f"transactions/network=n{number}").rglob("*.arrow")
        spoil(bad)
    report = backfill(lake, folder)
    reasons = {each.path.split("/")[1].removeprefix("network="): each.reason for each in report.skipped}
    assert len(report.skipped) == len(HOSTILE)
    for number, (_, expected) in enumerate(HOSTILE.values()):
        assert re.search(expected, reasons[f"n{number}"]), reasons[f"n{number}"]
    assert report.files == 1
    assert [row["tx_hash"] for row in in_lake(lake)] == sorted(good["tx_hash"].to_pylist())
    found = compare(lake, folder)
    assert not found.equal
    assert set(found.counts.values()) == {0}
    assert found.skipped == report.skipped


def test_bytes_that_are_damaged_never_give_rows_that_are_none(lake: Lake, folder: ArrowFolder, place: Path) -> None:
    """Any damage is refused with a reason or leaves rows that are valid; nothing else is raised."""
    dice = random.Random(SEED)
    folder.write(transactions(blocks=1), START)
    path = arrow_files(place)[0]
    data = path.read_bytes()
    for _ in range(60):
        spoilt = bytearray(data)
        for _ in range(dice.randint(1, 5)):
            spoilt[dice.randrange(len(spoilt))] = dice.randrange(256)
        path.write_bytes(bytes(spoilt))
        backfill(lake, folder, dry_run=True)


# backfill


def test_a_backfill_takes_every_file_once(lake: Lake, folder: ArrowFolder) -> None:
    rows = transactions(blocks=12)
    for part in range(3):
        folder.write(rows.slice(part * 20, 20), START + part * SECOND)
    plan = backfill(lake, folder, dry_run=True)
    assert (plan.rows, plan.dry_run) == (60, True)
    assert TABLE not in lake, "a dry run makes nothing"
    done = backfill(lake, folder)
    assert (done.files, done.rows, done.inserted, done.skipped) == (plan.files, 60, 60, ())
    assert compare(lake, folder).equal
    snapshot = lake.current_snapshot()
    again = backfill(lake, folder)
    assert (again.files, again.rows) == (0, 0)
    assert lake.current_snapshot() == snapshot


def test_rows_that_the_lake_has_lost_come_back_from_the_files(lake: Lake, folder: ArrowFolder) -> None:
    folder.write(transactions(), START)
    backfill(lake, folder)
    lake.table(TABLE).delete("block_number < 2")
    assert backfill(lake, folder).files == 0
    assert backfill(lake, folder, again=True).inserted == 10
    assert compare(lake, folder).equal


def test_the_newest_row_of_a_transaction_wins_in_any_order(lake: Lake, folder: ArrowFolder) -> None:
    dice = random.Random(SEED)
    rows = transactions()
    oldest, newest, late = (changed(rows, dice) for _ in range(3))
    folder.write(oldest, START)
    folder.write(newest, START + 5 * SECOND)
    assert backfill(lake, folder).inserted == 20
    folder.write(late, START + 3 * SECOND)
    report = backfill(lake, folder)
    assert (report.files > 0, report.inserted, report.updated) == (True, 0, 0)
    assert {str(row["block_hash"]) for row in in_lake(lake)} == set(newest["block_hash"].to_pylist())
    assert compare(lake, folder).equal


def test_a_large_file_is_taken_in_parts_and_goes_on_where_it_was(
    lake: Lake, folder: ArrowFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "_KEPT_ROWS", 10)
    monkeypatch.setattr(folder_module, "_IN_MEMORY", 10)
    folder.write(transactions(blocks=2, transactions=50, seconds=1), START)
    with faults.arm(Fault(at=3, pattern="migration.backfill.before")), pytest.raises(FaultInjected):
        backfill(lake, folder, batch_rows=20)
    assert lake.table(TABLE).count() == 40
    rest = backfill(lake, folder, batch_rows=20)
    assert (rest.files, rest.rows, rest.inserted) == (1, 60, 60)
    assert compare(lake, folder).equal


def test_of_two_backfills_the_newer_goes_on(lake: Lake, folder: ArrowFolder) -> None:
    folder.write(transactions(), START)
    reached: list[str] = []

    def hook(what: str, done: int, total: int | None) -> None:
        if not reached:
            reached.append(what)
            backfill(lake, folder)

    with pytest.raises(StreamFencedError):
        backfill(lake, folder, progress=hook)
    assert compare(lake, folder).equal


# comparison


def test_a_comparison_names_what_is_missing_extra_different_and_doubled(lake: Lake, folder: ArrowFolder) -> None:
    rows = transactions()
    folder.write(rows, START)
    backfill(lake, folder)
    table = lake.table(TABLE)
    hashes = rows["tx_hash"].to_pylist()
    table.delete(f"tx_hash = '{hashes[0]}'")
    table.update({"gas_limit": "0"}, f"tx_hash = '{hashes[1]}'")
    table.append(rows.slice(2, 1))
    table.append([rows.slice(3, 1).to_pylist()[0] | {"tx_hash": "0xnew"}])
    found = compare(lake, folder)
    assert found.counts == {"missing": 1, "extra": 1, "newer": 0, "different": 1, "doubled": 1}
    assert {(each.kind, each.tx_hash) for each in found.examples} == {
        ("missing", hashes[0]),
        ("different", hashes[1]),
        ("doubled", hashes[2]),
        ("extra", "0xnew"),
    }
    assert (found.arrow_rows, found.lake_rows) == (20, 21)
    assert [hour.equal for hour in found.hours] == [False, True]
    assert found.hours[0].hour == START
    assert load(lake, folder.url).equal is False


def test_a_comparison_may_leave_out_young_blocks_and_rows_of_the_lake_alone(lake: Lake, folder: ArrowFolder) -> None:
    rows = transactions(blocks=8)
    folder.write(rows.slice(0, 20), START)
    backfill(lake, folder)
    merge_newest(lake.table(TABLE), rows)
    assert compare(lake, folder).counts == {"missing": 0, "extra": 20, "newer": 0, "different": 0, "doubled": 0}
    assert compare(lake, folder, allow_extra=True).equal
    young = rows["block_time"].to_pylist()[20]
    assert compare(lake, folder, before=young).equal
    moved = f"tx_hash = '{rows['tx_hash'][0]}'"
    lake.table(TABLE).update({"block_time": young}, moved)
    assert compare(lake, folder, before=young).counts["different"] == 1
    with pytest.raises(InputError, match="time zone"):
        compare(lake, folder, before=young.replace(tzinfo=None))


def test_a_newer_row_of_the_lake_is_told_from_one_that_differs(lake: Lake, folder: ArrowFolder) -> None:
    dice = random.Random(SEED)
    rows = transactions()
    folder.write(rows, START)
    backfill(lake, folder)
    later = pa.array([START + SECOND] * 5, ROWS.field("ingested_at").type)
    merge_newest(lake.table(TABLE), changed(rows.slice(0, 5), dice).set_column(20, "ingested_at", later))
    assert compare(lake, folder).counts == {"missing": 0, "extra": 0, "newer": 5, "different": 0, "doubled": 0}
    assert compare(lake, folder, allow_extra=True).equal
    lake.table(TABLE).update({"nonce": "x"}, f"tx_hash = '{rows['tx_hash'][9]}'")
    assert not compare(lake, folder, allow_extra=True).equal


def test_a_comparison_works_in_parts_and_says_when_memory_is_short(
    tmp_path: Path, folder: ArrowFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(SEED)
    rows = transactions()
    for second in range(3):
        folder.write(changed(rows, dice), START + second * SECOND)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as lake:
        backfill(lake, folder)
        monkeypatch.setattr(comparison, "_PART_ROWS", 7)
        found = compare(lake, folder)
        assert (found.equal, found.arrow_rows) == (True, 20)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", duckdb_memory_limit="1MB") as lake:
        with pytest.raises(MemoryLimitError, match="memory"):
            compare(lake, folder)


# both writers


def test_a_dual_writer_gives_both_sides_the_same_rows(lake: Lake, folder: ArrowFolder) -> None:
    simulation = Simulation(seed=SEED, duplicates=0.2, late=0.2, reorgs=0.3, seconds=600)
    with DualWriter(lake, folder, batch_size=50, flush_interval="1 hour") as writer:
        for body in simulation.messages(20):
            message = json.loads(body)
            writer.write_transaction(message, message)
        writer.flush()
        assert writer.arrow.rows == writer.lake_side.rows > 300
    assert compare(lake, folder).equal
    assert backfill(lake, folder).files == 0, "files of a dual writer are in the lake already"


def test_a_side_that_fails_does_not_hold_up_the_other(
    lake: Lake, folder: ArrowFolder, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocks = list(Simulation(transactions=4).blocks(4))
    node = NodeConfig("a", "b", "c")
    writer = DualWriter(lake, folder, batch_size=100, flush_interval="1 hour")
    writer.write_block(blocks[0], node)
    with faults.arm(Fault(pattern="catalog.*", error=lambda: CatalogError("the database is gone"))):
        assert writer.flush() == 4
    assert (writer.lake_side.failures, lake.table(TABLE).count(), len(arrow_files(place))) == (1, 0, 1)
    assert "the database is gone" in caplog.text

    shelf = place / "transactions"
    shelf.rename(place / "aside")
    shelf.write_text("in the way")
    writer.write_block(blocks[1], node)
    assert writer.flush() == 4
    assert (writer.arrow.failures >= 1, writer.arrow.waiting, lake.table(TABLE).count()) == (True, 4, 4)
    shelf.unlink()
    (place / "aside").rename(shelf)
    writer.write_block(blocks[2], node)
    writer.close()
    assert writer.arrow.waiting == 0
    assert compare(lake, folder).counts == {"missing": 4, "extra": 0, "newer": 0, "different": 0, "doubled": 0}
    backfill(lake, folder)
    assert compare(lake, folder).equal


def test_rows_that_the_files_do_not_take_are_kept_up_to_a_limit(lake: Lake, folder: ArrowFolder, place: Path) -> None:
    blocks = list(Simulation(transactions=4).blocks(3))
    node = NodeConfig("a", "b", "c")
    place.mkdir()
    (place / "transactions").write_text("in the way")
    writer = DualWriter(lake, folder, batch_size=4, max_rows=4, flush_interval="1 hour")
    writer.write_block(blocks[0], node)
    writer.flush()
    writer.write_block(blocks[1], node)
    with pytest.raises(StorageError):
        writer.flush()
    assert (writer.arrow.waiting, writer.lake_side.rows) == (4, 8)
    (place / "transactions").unlink()
    writer.close()
    assert compare(lake, folder).equal
    assert lake.table(TABLE).count() == writer.arrow.rows == 8


def test_a_node_that_cannot_name_a_folder_is_refused(lake: Lake, folder: ArrowFolder) -> None:
    with DualWriter(lake, folder) as writer:
        for bad in ("../x", "a/b", "a\0b", "a\\b"):
            with pytest.raises(InputError, match="folder"):
                writer.write_block(next(Simulation().blocks(1)), NodeConfig("a", "b", bad))


# readers


def test_readers_use_the_lake_only_after_a_green_comparison_and_fall_back(
    lake: Lake, folder: ArrowFolder, place: Path
) -> None:
    rows = transactions()
    folder.write(rows, START)
    reader = TransactionReader(lambda: lake, folder)
    assert (reader.read().side, len(reader.read().rows)) == ("arrow", 20)
    with pytest.raises(InputError, match="is missing"):
        switch(lake, folder, "lake")
    assert not compare(lake, folder).equal
    with pytest.raises(InputError, match="differences"):
        switch(lake, folder, "lake")
    backfill(lake, folder)
    assert compare(lake, folder).equal
    assert switch(lake, folder, "lake").readers == "lake"
    got = reader.read(network="Avalanche", since=START + dt.timedelta(hours=1), columns=["tx_hash", "block_number"])
    assert got.side == "lake"
    old = TransactionReader(_unreachable, folder).read(
        network="Avalanche", since=START + dt.timedelta(hours=1), columns=["tx_hash", "block_number"]
    )
    assert (old.side, "gone" in old.reason) == ("arrow", True)
    assert old.rows.sort_by("tx_hash").equals(got.rows.sort_by("tx_hash"))
    assert len(reader.read(network="Other").rows) == 0
    with pytest.raises(InputError, match="did you mean"):
        reader.read(columns=["tx_hsh"])
    lake.table(TABLE).delete(f"tx_hash = '{rows['tx_hash'][0]}'")
    compare(lake, folder)
    assert (reader.read().side, len(reader.read().rows)) == ("arrow", 20)
    switch(lake, folder, "arrow")
    assert load(lake, folder.url).readers == "arrow"


def _unreachable() -> Lake:
    raise CatalogError("the database is gone")


# retirement


def test_only_files_that_were_compared_are_removed(lake: Lake, folder: ArrowFolder, place: Path) -> None:
    rows = transactions(blocks=12)
    folder.write(rows.slice(0, 40), START)
    other = [place / "transactions/notes.txt", place / "transactions/network=Avalanche/x.metadata.json"]
    for path in other:
        path.write_text("mine")
    backfill(lake, folder)
    with pytest.raises(InputError, match="readers still use"):
        retire(lake, folder)
    compare(lake, folder)
    switch(lake, folder, "lake")
    folder.write(rows.slice(40, 20), START + SECOND)
    touched = arrow_files(place)[0]
    touched.write_bytes(touched.read_bytes() + b" ")
    before = len(arrow_files(place))
    plan = retire(lake, folder, dry_run=True)
    assert (plan.dry_run, len(arrow_files(place)), folder.retired()) == (True, before, False)
    reasons = sorted(each.reason for each in plan.kept)
    assert reasons[0] == "it has changed since the last comparison"
    assert set(reasons[1:]) == {"it was not there at the last comparison"}
    done = retire(lake, folder)
    assert (done.files, done.bytes) == (plan.files, plan.bytes)
    assert len(arrow_files(place)) == before - done.files == len(done.kept)
    assert all(path.read_text() == "mine" for path in other)
    assert len(list(place.rglob("*.arrow.metadata.json"))) == len(arrow_files(place))
    assert load(lake, folder.url).retired == done.files
    for call in (lambda: compare(lake, folder), lambda: switch(lake, folder, "arrow")):
        with pytest.raises(InputError, match="retired"):
            call()
    with pytest.raises(CatalogError, match="gone"):
        TransactionReader(_unreachable, folder).read()

    touched.write_bytes(touched.read_bytes()[:-1])
    backfill(lake, folder)
    assert compare(lake, folder, allow_extra=True).equal
    assert retire(lake, folder).files == len(done.kept)
    assert arrow_files(place) == []


def test_a_retirement_that_died_goes_on_and_never_without_its_rows(
    lake: Lake, folder: ArrowFolder, place: Path
) -> None:
    folder.write(transactions(blocks=12), START)
    backfill(lake, folder)
    compare(lake, folder)
    switch(lake, folder, "lake")
    count = len(arrow_files(place))
    lake.table(TABLE).delete("block_number = 0")
    with pytest.raises(InputError, match="at the last comparison"):
        retire(lake, folder)
    assert len(arrow_files(place)) == count
    merge_newest(lake.table(TABLE), transactions(blocks=12))
    with faults.arm(Fault(at=2, pattern="migration.remove.batch")), pytest.raises(FaultInjected):
        retire(lake, folder)
    assert 0 < len(arrow_files(place)) == count - 2
    assert retire(lake, folder).files == count - 2
    assert load(lake, folder.url).retired == count


# places


def test_a_folder_without_files_is_an_error_and_not_an_empty_side(lake: Lake, folder: ArrowFolder) -> None:
    for work in (backfill, compare):
        with pytest.raises(NotFoundError, match="no Arrow files"):
            work(lake, folder)
    assert load(lake, folder.url).equal is None


def test_the_files_may_be_in_a_bucket(lake: Lake, moto_server: MotoServer) -> None:
    bucket = f"b{secrets.token_hex(6)}"
    moto_server.create_bucket(bucket)
    config = resolve(env=moto_server.environment())
    folder = ArrowFolder.open(f"s3://{bucket}/arrow-data", config)
    folder.write(transactions(), START)
    assert backfill(lake, folder).inserted == 20
    assert compare(lake, folder).equal
    switch(lake, folder, "lake")
    assert len(TransactionReader(_unreachable, folder).read().rows) == 20
    assert retire(lake, folder).files == 2
    assert folder.files() == ([], [])
