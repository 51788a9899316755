"""Rules that hold for every store."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.core.storage import S3Options, Store
from quacklake.errors import CorruptFileError, PathError, StorageError, StorageUnavailableError


def paths(entries: object) -> list[str]:
    return [entry.path for entry in entries]  # type: ignore[attr-defined]


def test_what_is_written_is_read(store: Store) -> None:
    assert store.write("main/t/a.bin", b"hello") == 5
    assert store.read("main/t/a.bin") == b"hello"
    assert store.size("main/t/a.bin") == 5
    assert store.exists("main/t/a.bin")
    with store.open_input("main/t/a.bin") as source:
        assert source.read_at(2, 3) == b"lo"


@pytest.mark.parametrize("data", [b"", b"x", bytearray(b"xy"), memoryview(b"xyz"), pa.py_buffer(b"buffer")])
def test_any_bytes_can_be_written(store: Store, data: object) -> None:
    assert store.write("f", data) == len(memoryview(data))  # type: ignore[arg-type]
    assert store.read("f") == bytes(memoryview(data))  # type: ignore[arg-type]


def test_writing_replaces_what_was_there(store: Store) -> None:
    store.write("f", b"old and long")
    store.write("f", b"new")
    assert store.read("f") == b"new"


@pytest.mark.parametrize("name", ["Zürich ☃/鴨.bin", "a b+c&d.bin", "day=2024%2F01/x.bin", "x" * 255])
def test_unusual_names_are_kept_as_they_are(store: Store, name: str) -> None:
    store.write(name, b"1")
    assert store.read(name) == b"1"
    assert paths(store.list()) == [name]
    assert store.delete([name]) == 1


def test_a_missing_file_is_reported_as_such(store: Store) -> None:
    assert not store.exists("no")
    for call in (store.read, store.size, store.open_input):
        with pytest.raises(CorruptFileError, match=r"data file .*/no is missing") as caught:
            call("no")
        assert caught.value.hint
        assert not caught.value.transient


def test_a_folder_is_not_a_file(store: Store) -> None:
    store.write("a/b", b"1")
    assert not store.exists("a")
    with pytest.raises(CorruptFileError):
        store.size("a")
    with pytest.raises(PathError):
        store.write("a/", b"1")


def test_a_file_beyond_the_limit_is_not_read(store: Store) -> None:
    store.write("f", b"12345")
    assert store.read("f", limit=5) == b"12345"
    with pytest.raises(StorageError, match="5 bytes, more than the limit of 4"):
        store.read("f", limit=4)


def test_a_local_file_gets_another_name_that_stays_under_the_root(local_store: Store) -> None:
    local_store.write("f", b"1")
    local_store.rename("f", "v=a%2Fb/n=1/f")
    assert paths(local_store.list()) == ["v=a%2Fb/n=1/f"]
    with pytest.raises(PathError):
        local_store.rename("v=a%2Fb/n=1/f", "../f")
    with pytest.raises(CorruptFileError):
        local_store.rename("f", "g")
    many = [f"d{i % 3}/{i}" for i in range(30)]
    for name in many:
        local_store.write(name, b"2")
    local_store.sync(many)
    with pytest.raises(CorruptFileError):
        local_store.sync([*many, "d1/missing"])


def test_the_root_exists_once_something_is_in_it(store: Store) -> None:
    assert not store.exists_root()
    store.write("f", b"1")
    assert store.exists_root()


def test_listing_is_recursive_sorted_and_can_stop_early(store: Store) -> None:
    names = ["a/1", "a/2", "a/b/3", "c/4", "top"]
    for name in names:
        store.write(name, name.encode())
    assert sorted(paths(store.list())) == names
    assert paths(store.list()) == ["top", "a/1", "a/2", "a/b/3", "c/4"]
    assert paths(store.list("a")) == paths(store.list("a/")) == ["a/1", "a/2", "a/b/3"]
    assert paths(store.list("a", limit=2)) == ["a/1", "a/2"]
    assert paths(store.list(limit=0)) == []
    assert paths(store.list("nowhere")) == []
    (entry,) = store.list("c")
    assert entry.size == 3
    assert entry.mtime is not None
    assert abs(datetime.now(UTC) - entry.mtime) < timedelta(minutes=5)


def test_listing_reads_one_folder_at_a_time(store: Store) -> None:
    for name in ("a/1", "b/2", "c/3"):
        store.write(name, b"")
    with faults.record() as points:
        entries = store.list()
        assert points == []
        next(entries)
    assert points.count("storage.list.before") == 2


def test_deleting_counts_what_was_there(store: Store) -> None:
    names = [f"d/{n}" for n in range(20)]
    for name in names:
        store.write(name, b"1")
    assert store.delete([*names[:15], "d/missing", names[0]]) == 15
    assert store.delete(names) == 5
    assert store.delete([]) == 0
    assert paths(store.list()) == []


def test_nothing_is_deleted_when_one_path_is_bad(store: Store) -> None:
    store.write("f", b"1")
    with pytest.raises(PathError):
        store.delete(["f", "../f"])
    assert store.exists("f")


def test_a_stream_appears_when_its_block_ends(store: Store) -> None:
    with store.open_output("s/t.bin") as sink:
        sink.write(b"one ")
        assert not store.exists("s/t.bin")
        sink.write(b"two")
    assert store.read("s/t.bin") == b"one two"
    with store.open_output("s/empty.bin"):
        pass
    assert store.size("s/empty.bin") == 0


def test_an_abandoned_stream_leaves_nothing(store: Store) -> None:
    def fail_half_way() -> None:
        with store.open_output("s/t.bin") as sink:
            sink.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert paths(store.list()) == []


def test_a_stream_larger_than_one_part_arrives_whole(store: Store) -> None:
    block = bytes(range(256)) * 4096
    with store.open_output("big") as sink:
        for _ in range(12):
            sink.write(block)
    assert store.read("big") == block * 12


def test_each_call_is_a_fault_point_before_and_after_and_is_counted(store: Store) -> None:
    telemetry.reset()
    store.write("f", b"1")
    calls = {
        "write": lambda: store.write("f", b"1"),
        "read": lambda: store.read("f"),
        "open_input": lambda: store.open_input("f").close(),
        "size": lambda: store.size("f"),
        "exists": lambda: store.exists("f"),
        "exists_root": store.exists_root,
        "list": lambda: list(store.list()),
        "delete": lambda: store.delete(["f"]),
    }
    for name, call in calls.items():
        with faults.record() as points:
            call()
        assert points[0] == f"storage.{name}.before"
        assert points[-1] == f"storage.{name}.after"
        assert telemetry.snapshot().counters[f"storage.{name}"] >= 1


def test_a_transient_failure_is_tried_again(store: Store) -> None:
    telemetry.reset()
    with faults.arm(Fault(1, pattern="storage.write.before", error=ConnectionResetError)):
        store.write("f", b"1")
    with faults.arm(Fault(1, pattern="storage.write.after", error=TimeoutError)):
        store.write("f", b"2")
    assert store.read("f") == b"2"
    assert telemetry.snapshot().counters["storage.retries"] == 2


def test_a_lasting_failure_is_not_tried_again(store: Store) -> None:
    telemetry.reset()
    with faults.arm(Fault(1, pattern="storage.write.before", error=PermissionError)), pytest.raises(StorageError):
        store.write("f", b"1")
    assert "storage.retries" not in telemetry.snapshot().counters


@pytest.mark.parametrize("point", range(1, 5))
def test_a_write_that_breaks_anywhere_shows_all_or_nothing(local_store: Store, point: int) -> None:
    with faults.record() as points:
        local_store.write("d/f", b"old")
    assert points == [
        "storage.write.before",
        "storage.publish.before",
        "storage.publish.after",
        "storage.write.after",
    ]
    with faults.arm(Fault(point)), pytest.raises(FaultInjected):
        local_store.write("d/f", b"new")
    assert local_store.read("d/f") == (b"new" if point > 2 else b"old")
    assert paths(local_store.list()) == ["d/f"]


def test_an_s3_server_that_is_gone_is_unavailable(s3_store: Store) -> None:
    gone = Store.open(
        s3_store.root,
        s3=S3Options(endpoint="http://127.0.0.1:9", access_key="ann", secret_key="hunter2-hunter2"),
        max_retries=1,
        retry_wait=0.001,
    )
    for call in (gone.read, gone.exists, gone.size):
        with pytest.raises(StorageUnavailableError) as caught:
            call("f")
        assert caught.value.transient
        assert "hunter2" not in str(caught.value)


def test_a_missing_bucket_is_an_error_when_writing(s3_options: S3Options) -> None:
    absent = Store.open("s3://no-such-bucket-here/lake", s3=s3_options)
    assert not absent.exists_root()
    assert list(absent.list()) == []
    with pytest.raises(StorageError):
        absent.write("f", b"1")


def test_an_upload_that_breaks_is_repeated(s3_store: Store) -> None:
    with (
        faults.arm(Fault(1, pattern="storage.upload.before", error=ConnectionResetError)),
        s3_store.open_output("f") as sink,
    ):
        sink.write(b"whole")
    assert s3_store.read("f") == b"whole"


def test_a_full_disk_is_said_plainly(local_store: Store) -> None:
    def full() -> OSError:
        return OSError(errno.ENOSPC, "No space left on device")

    with faults.arm(Fault(1, pattern="storage.publish.before", error=full)), pytest.raises(StorageError) as caught:
        local_store.write("f", b"1")
    assert "no space left" in str(caught.value)
    assert paths(local_store.list()) == []


def test_temporaries_of_a_crash_are_listed_and_marked(local_store: Store, tmp_path: Path) -> None:
    local_store.write("d/f", b"1")
    (tmp_path / "root/d/.quacklake-tmp-0").write_bytes(b"half")
    assert {entry.path: entry.is_temporary for entry in local_store.list()} == {
        "d/.quacklake-tmp-0": True,
        "d/f": False,
    }


def test_a_file_that_an_engine_wrote_is_on_disk_after_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    store = Store.open(str(tmp_path))
    (tmp_path / "a.parquet").write_bytes(b"x")
    monkeypatch.setattr(os, "fsync", fsync)
    store.sync(["a.parquet"])
    assert synced == [(tmp_path / "a.parquet").stat().st_ino, tmp_path.stat().st_ino]
