"""Backups come back in any kind of database, with the same rows and row ids at every snapshot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.faults import Fault, FaultInjected
from quacklake.core.maintenance.backup import create
from quacklake.core.maintenance.backup.image import image_files
from quacklake.core.storage import Store
from quacklake.errors import AlreadyExistsError, InputError, NotFoundError, StorageUnavailableError
from tests.catalog.stock import Stock
from tests.conformance.clients import LONG, plain_duckdb
from tests.conformance.history import State, ours_at
from tests.layout import CATALOG, LAYOUT, by_hand, folder
from tests.seeds import some

from .lakes import make_lake

ODD = {
    "b": ("BOOLEAN", "true", "false"),
    "i8": ("TINYINT", "-128", "127"),
    "u64": ("UBIGINT", "0", "18446744073709551615"),
    "i128": ("HUGEINT", "-170141183460469231731687303715884105727", "1"),
    "f": ("FLOAT", "'nan'", "0.1"),
    "d": ("DOUBLE", "'-inf'", "1e-300"),
    "m": ("DECIMAL(38,10)", "-0.0000000001", "1234567890123456789.5"),
    "day": ("DATE", "'0044-03-15 (BC)'", "'9999-12-31'"),
    "t": ("TIME", "'00:00:00'", "'23:59:59.999999'"),
    "ts": ("TIMESTAMP", "'1969-12-31 23:59:59.999999'", "'infinity'"),
    "ns": ("TIMESTAMP_NS", "'2024-02-29 01:02:03.123456789'", "'1970-01-01'"),
    "tz": ("TIMESTAMPTZ", "'2024-02-29 01:02:03+05'", "'1900-01-01 00:00:00+00'"),
    "v": ("VARCHAR", "''", "'ä''\"\\n,{}[]'"),
    "x": ("BLOB", "'\\x00\\xFFa'::BLOB", "''::BLOB"),
    "u": ("UUID", "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    "l": ("INTEGER[]", "[1, NULL, 3]", "[]"),
    "s": ("STRUCT(a INTEGER, b VARCHAR)", "{'a': 1, 'b': 'it''s, {odd}'}", "{'a': NULL, 'b': NULL}"),
    "mp": ("MAP(VARCHAR, INTEGER)", "MAP {'k': 1, '=': NULL}", "MAP {}"),
}


TEXTS = "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM odd ORDER BY id"


def _url(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    if kind in ("postgres", "mysql"):
        url: str = request.getfixturevalue(f"{kind}_url")
        return url
    return f"{kind}:///{folder}/lake.{kind}"


def _odd_rows(stock: Stock, url: str) -> None:
    """A table of inlined rows of odd values, changed by a stock client."""
    columns = ", ".join(f'"{name}" {type_}' for name, (type_, *_) in ODD.items())
    rows = ", ".join(f"({number}, {', '.join(value[number] for value in ODD.values())})" for number in (1, 2))
    nulls = f"(3, {', '.join(['NULL'] * len(ODD))})"
    stock.run(
        url,
        f"CREATE TABLE odd (id INTEGER, {columns})",
        f"INSERT INTO odd VALUES {rows}, {nulls}",
        "UPDATE odd SET v = 'again' WHERE id = 1",
        "DELETE FROM odd WHERE id = 3",
        "ALTER TABLE odd ADD COLUMN later INTEGER DEFAULT 7",
        "INSERT INTO odd (id, later) VALUES (4, 8)",
    )


def _opened(url: str, **settings: Any) -> quacklake.Lake:
    return quacklake.connect(url, create=False, duckdb_threads=1, **settings)


def _states(lake: quacklake.Lake) -> dict[int, tuple[set[str], State]]:
    with plain_duckdb() as scratch:
        versions = lake.snapshots().column("snapshot_id").to_pylist()
        return {version: ours_at(lake, version, scratch) for version in versions}


def _feed(lake: quacklake.Lake, name: str) -> list[str]:
    # as text, because NaN is not equal to itself
    return sorted(map(repr, lake.table(name).changes(1, lake.current_snapshot()).to_arrow().to_pylist()))


PAIRS = some([("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "duckdb"), ("duckdb", "mysql")], 2, "restores")


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{a}-to-{b}" for a, b in PAIRS])
def test_a_lake_comes_back_in_another_kind_of_database(
    source: str, target: str, request: pytest.FixtureRequest, tmp_path: Path, stock: Stock
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    url, foreign = _url(source, old, request), [str(old / "foreign")]
    make_lake(url, old)
    _odd_rows(stock, url)
    texts = stock.run(url, TEXTS)
    with _opened(url, foreign_paths=foreign) as lake:
        expected, feed = _states(lake), _feed(lake, "t")
        snapshots = lake.snapshots()
        report = lake.backup(tmp_path / "backup")
        assert report.snapshot == lake.current_snapshot()
        assert report.copied == report.files > 5
        assert [skipped.what for skipped in report.skipped] == ["file 11"]
    shutil.rmtree(old / "data")
    there = _url(target, new, request)
    settings: dict[str, Any] = {"foreign_paths": foreign, "duckdb_threads": 1}
    with quacklake.restore_backup(tmp_path / "backup", there, new / "data", **settings) as lake:
        assert lake.verify(deep=LONG).findings == ()
        assert lake.snapshots() == snapshots
        assert _states(lake) == expected
        assert _feed(lake, "t") == feed
        lake.table("t").append([{"id": 5000, "name": "after", "x": 0.0, "day": None}])
        count = lake.table("t").count()
    if target != "mysql":
        assert stock.run(there, TEXTS) == texts
        assert stock.run(there, "SELECT count(*) FROM t") == [(count,)]


# -- one small lake, many backups ----------------------------------------------------------------------------------


_CATALOG = CATALOG if LAYOUT == "shared" else None


@pytest.fixture(autouse=True)
def what_comes_back_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog of a shared lake is backed up by its name; the restored lake has none."""
    monkeypatch.delenv("QUACKLAKE_CATALOG", raising=False)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", catalog=_CATALOG, duckdb_threads=1
    ) as found:
        table = found.create_table("t", pa.table({"a": range(50)}))
        table.append([{"a": 1000}])
        table.delete("a < 20")
        yield found


def _restore(tmp_path: Path, name: str = "restored", **options: Any) -> quacklake.Lake:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    url = f"sqlite:///{folder}/lake.db"
    return quacklake.restore_backup(tmp_path / "backup", url, folder / "data", duckdb_threads=1, **options)


def _values(lake: quacklake.Lake) -> list[int]:
    return sorted(lake.table("t").to_arrow().column("a").to_pylist())


def test_backups_share_their_files_and_each_comes_back(lake: quacklake.Lake, tmp_path: Path) -> None:
    first, before = lake.backup(tmp_path / "backup"), _values(lake)
    lake.table("t").append(pa.table({"a": range(100, 150)}))
    second = lake.backup(tmp_path / "backup")
    third = lake.backup(tmp_path / "backup")
    assert (first.copied, second.copied, third.copied) == (2, 1, 0)
    assert [info.id for info in quacklake.backups(tmp_path / "backup")] == [first.id, second.id, third.id]
    with _restore(tmp_path) as restored:
        assert _values(restored) == _values(lake)
    with _restore(tmp_path, "older", backup=first.id) as restored:
        assert restored.current_snapshot() == first.snapshot
        assert _values(restored) == before
    assert len(list((tmp_path / "older/data").rglob("*.parquet"))) == 2
    with pytest.raises(NotFoundError, match="there is no backup"):
        _restore(tmp_path, "none", backup="yesterday")


def test_the_tags_of_a_duckdb_catalog_come_back(tmp_path: Path) -> None:
    with quacklake.connect(
        f"duckdb:///{tmp_path}/lake.duckdb", tmp_path / "data", catalog=_CATALOG, duckdb_threads=1
    ) as lake:
        lake.create_table("t", [{"x": 1}])
        lake.tag("first")
        tags = lake.history.tags()
        lake.backup(tmp_path / "backup")
    with _restore(tmp_path) as again:
        assert again.history.tags().equals(tags)


def test_a_backup_into_the_lake_itself_is_refused(lake: quacklake.Lake, tmp_path: Path) -> None:
    own = folder(tmp_path / "data")
    for place in (own, own / "backup", tmp_path / "data", tmp_path):
        with pytest.raises(
            InputError, match=r"where (the lake itself is|catalogs of the shared lake have their files)"
        ):
            lake.backup(place)


def test_a_restore_into_something_is_refused(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.backup(tmp_path / "backup")
    with pytest.raises(AlreadyExistsError, match=r"there is a lake|exists already"):
        quacklake.restore_backup(tmp_path / "backup", lake.url, tmp_path / "other", catalog=_CATALOG)
    (tmp_path / "full/data").mkdir(parents=True)
    (tmp_path / "full/data/mine.txt").write_text("mine")
    with pytest.raises(AlreadyExistsError, match=r"mine\.txt is none of the backup's files"):
        _restore(tmp_path, "full")
    assert (tmp_path / "full/data/mine.txt").exists()


def test_a_file_that_is_missing_is_told_and_everything_else_comes_back(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.table("t").append(pa.table({"a": range(100, 150)}))
    last = max((tmp_path / "data").rglob("*.parquet"))
    lake.table("t").delete("a >= 100 AND a < 150")
    last.unlink()
    report = lake.backup(tmp_path / "backup")
    assert [skipped.reason for skipped in report.skipped] == ["it was missing already"]
    with _restore(tmp_path) as restored:
        assert _values(restored) == _values(lake)
        assert {found.code for found in restored.verify().findings} == {"V070"}


def test_files_that_a_cleanup_removes_meanwhile_have_the_catalog_read_anew(
    lake: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lock, done = Store.copy_to, threading.Lock(), threading.Event()

    def copy_to(store: Store, path: str, *more: Any) -> tuple[int, str | None]:
        with lock:
            if path.endswith(".arrow") and not done.is_set():
                # as an expiry and a cleanup would: the row goes, then the file
                done.set()
                with lake._context.catalog.commit() as writer:
                    by_hand(writer, "DELETE FROM ducklake_delete_file")
                for file in (tmp_path / "data").rglob("*-delete.parquet"):
                    file.unlink()
        return real(store, path, *more)

    monkeypatch.setattr(Store, "copy_to", copy_to)
    report = lake.backup(tmp_path / "backup")
    assert report.skipped == ()
    assert report.files == 1
    with _restore(tmp_path) as restored:
        assert len(_values(restored)) == 51


def test_an_encrypted_lake_comes_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, tmp_path / "data", catalog=_CATALOG, encrypted=True, duckdb_threads=1) as lake:
        lake.create_table("t", pa.table({"a": range(50)})).delete("a < 20")
        lake.backup(tmp_path / "backup")
    with _restore(tmp_path) as restored:
        assert _values(restored) == list(range(20, 50))
        assert restored.verify(deep=True).ok


# -- interrupted ---------------------------------------------------------------------------------------------------


def _sample(points: list[str]) -> list[int]:
    """Return the points to fail at: all when there is time, else the first, the last and some between."""
    every = range(1, len(points) + 1)
    return list(every) if LONG else sorted({1, len(points), *every[:: max(1, len(points) // 3)]})


def _interrupt(action: Callable[[], object], check: Callable[[], None], points: list[str]) -> None:
    for at in _sample(points):
        with faults.arm(Fault(at=at)):
            try:
                action()
            except FaultInjected:
                check()


def test_an_interrupted_backup_does_not_exist_and_the_next_one_goes_on(lake: quacklake.Lake, tmp_path: Path) -> None:
    with faults.record() as points:
        lake.backup(tmp_path / "whole")
    assert {"backup.image.before", "backup.manifest.before"} <= set(points)

    def action() -> None:
        shutil.rmtree(tmp_path / "backup", ignore_errors=True)
        lake.backup(tmp_path / "backup")

    def check() -> None:
        assert len(quacklake.backups(tmp_path / "backup")) <= ("backup.manifest.after" in points)
        report = lake.backup(tmp_path / "backup")
        assert quacklake.backups(tmp_path / "backup")[-1].id == report.id

    _interrupt(action, check, points)
    abandoned = tmp_path / "backup/backups/20200101T000000000000Z-s1/ducklake_table.arrow"
    abandoned.parent.mkdir()
    abandoned.write_bytes(b"half")
    os.utime(abandoned, (1, 1))
    lake.backup(tmp_path / "backup")
    assert not abandoned.exists()
    with _restore(tmp_path) as restored:
        assert _values(restored) == _values(lake)


def test_an_interrupted_restore_leaves_no_lake_and_can_be_run_again(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.backup(tmp_path / "backup")
    with faults.record() as points:
        _restore(tmp_path, "whole").close()
    folder = tmp_path / "broken"

    def action() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        _restore(tmp_path, "broken").close()

    def check() -> None:
        try:
            restored = _restore(tmp_path, "broken")
        except AlreadyExistsError:  # it had come so far
            restored = quacklake.connect(f"sqlite:///{folder}/lake.db", create=False, duckdb_threads=1)
        with restored:
            assert _values(restored) == _values(lake)
            assert restored.verify().ok

    _interrupt(action, check, points)


KILLS = ["12:kill:catalog.*", "3:kill:storage.open_output.*"]


@pytest.mark.parametrize("fault", KILLS if LONG else KILLS[:1])
def test_a_killed_backup_and_restore_can_be_run_again(lake: quacklake.Lake, tmp_path: Path, fault: str) -> None:
    (tmp_path / "restored").mkdir()
    backup = f"quacklake.connect('sqlite:///{tmp_path}/lake.db', catalog={_CATALOG!r}).backup('{tmp_path}/backup')"
    restore = f"quacklake.restore_backup('{tmp_path}/backup', 'sqlite:///{tmp_path}/restored/lake.db', '{tmp_path}/restored/data')"
    for statement in (backup, restore):
        command = [sys.executable, "-c", f"import quacklake; {statement}"]
        killed = subprocess.run(command, env=os.environ | {"QUACKLAKE_FAULT": fault}, capture_output=True, check=False)
        if statement == backup:
            assert killed.returncode == -9
            assert quacklake.backups(tmp_path / "backup") == []
            lake.backup(tmp_path / "backup")
    if killed.returncode == -9:
        _restore(tmp_path).close()
    with quacklake.connect(f"sqlite:///{tmp_path}/restored/lake.db", create=False) as restored:
        assert _values(restored) == _values(lake)


def test_a_lake_is_backed_up_to_an_object_store_and_from_there_to_another(
    lake: quacklake.Lake, tmp_path: Path, s3_bucket: str, s3_server: Any
) -> None:
    settings = {
        "s3_endpoint": s3_server.host,
        "s3_access_key": s3_server.access_key,
        "s3_secret_key": s3_server.secret_key,
        "s3_secure": False,
        "duckdb_threads": 1,
    }
    with quacklake.connect(lake.url, catalog=_CATALOG, create=False, **settings) as again:
        again.backup(f"{s3_bucket}/backup")
    (info,) = quacklake.backups(f"{s3_bucket}/backup", **settings)
    url = f"sqlite:///{tmp_path}/other.db"
    with quacklake.restore_backup(f"{s3_bucket}/backup", url, f"{s3_bucket}/lake", **settings) as restored:
        assert restored.current_snapshot() == info.snapshot
        assert _values(restored) == _values(lake)


# -- pruning -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(lake: quacklake.Lake, tmp_path: Path) -> Path:
    """Three backups, each of which has a file that no other has."""
    for first in (100, 200, 300):
        lake.table("t").overwrite(pa.table({"a": range(first, first + 20)}))
        lake.expire_snapshots("0 seconds")
        lake.backup(tmp_path / "backup")
    return tmp_path / "backup"


def _ids(place: Path) -> list[str]:
    return [info.id for info in quacklake.backups(place)]


def _files(place: Path) -> set[str]:
    found = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    return {path for path in found if not path.startswith("pruning/")}


def test_old_backups_go_with_the_files_that_only_they_have(place: Path, tmp_path: Path) -> None:
    ids, before = _ids(place), _files(place)
    plan = quacklake.prune_backups(place, keep_last=2, dry_run=True)
    assert (plan.backups, plan.kept, plan.files) == ((ids[0],), tuple(ids[1:]), 1)
    assert _files(place) == before
    assert quacklake.prune_backups(place, older_than="1 day").backups == ()
    assert quacklake.prune_backups(place, keep_last=1, older_than="1 day").files == 0
    done = quacklake.prune_backups(place, keep_last=2)
    assert (done.backups, done.files, done.bytes) == (plan.backups, plan.files, plan.bytes)
    gone = before - _files(place)
    assert len([path for path in gone if path.startswith("data/")]) == 1
    assert all(path.startswith(("data/", f"backups/{ids[0]}/")) for path in gone)
    assert quacklake.prune_backups(place, older_than="0 seconds").kept == (ids[2],)  # the newest stays
    assert {path.split("/")[1] for path in _files(place) if path.startswith("backups/")} == {ids[2]}
    assert not list((place / "pruning").iterdir())
    with _restore(tmp_path) as restored:
        assert _values(restored) == list(range(300, 320))
    with pytest.raises(InputError, match="keep_last"):
        quacklake.prune_backups(place)
    with pytest.raises(InputError, match="at least 1"):
        quacklake.prune_backups(place, keep_last=0)


def test_an_interrupted_prune_harms_no_backup_that_is_left(
    lake: quacklake.Lake, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(place, tmp_path / "whole")
    with faults.record() as points:
        quacklake.prune_backups(tmp_path / "whole", keep_last=1)
    clean = _files(tmp_path / "whole")
    mine = [point for point in points if point.startswith("prune.")]
    assert len(set(mine)) == 6
    for number in range(1, len(mine) + 1):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(place, copy)
        with monkeypatch.context() as patch, pytest.raises(FaultInjected):
            patch.setattr(create.PruneMark, "__exit__", lambda *_: None)  # a process that is killed does not come to it
            with faults.arm(Fault(at=number, pattern="prune.*")):
                quacklake.prune_backups(copy, keep_last=1)
        with pytest.raises(StorageUnavailableError, match="being removed"):
            lake.backup(copy)
        for info in quacklake.backups(copy):
            files = image_files(Store.open(str(copy)), f"backups/{info.id}/", info.data_path)
            assert all((copy / "data" / str(file.path)).exists() for file in files)
        quacklake.prune_backups(copy, keep_last=1)
        assert _files(copy) == clean


def test_a_backup_and_a_prune_exclude_each_other(
    lake: quacklake.Lake, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[str] = []

    def meanwhile(module: Any, name: str, other: Callable[[], object]) -> None:
        real = getattr(module, name)

        def both(*arguments: Any, **named: Any) -> Any:
            with pytest.raises(StorageUnavailableError):
                other()
            met.append(name)
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, both)

    meanwhile(create, "write_manifest", lambda: quacklake.prune_backups(place, keep_last=1))
    meanwhile(create, "_remove_files", lambda: lake.backup(place))
    lake.backup(place)
    quacklake.prune_backups(place, keep_last=3)
    assert met == ["write_manifest", "_remove_files"]
    assert len(_ids(place)) == 3


def test_a_backup_that_ends_as_a_prune_begins_is_kept_whole(
    lake: quacklake.Lake, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = create.PruneMark.__enter__

    def late(mark: Any) -> Any:
        lake.table("t").append(pa.table({"a": range(400, 420)}))
        lake.backup(place)
        return real(mark)

    monkeypatch.setattr(create.PruneMark, "__enter__", late)
    assert len(quacklake.prune_backups(place, keep_last=1).kept) == 1
    with _restore(tmp_path) as restored:
        assert _values(restored) == _values(lake)


def test_a_lake_lists_and_checks_its_own_backups_in_a_place_of_several(tmp_path: Path) -> None:
    place, made = tmp_path / "backups", {}
    for name in ("one", "two"):
        with quacklake.connect(f"sqlite:///{tmp_path}/{name}.db", tmp_path / name, create=True) as lake:
            lake.create_table("t", [{"id": n} for n in range(2000)])
            made[name] = lake.backup(place).id
    with quacklake.connect(f"sqlite:///{tmp_path}/one.db") as lake:
        assert [info.id for info in lake.maintenance.backups(place)] == [made["one"]]
        assert lake.maintenance.check_backup(place, made["one"]).ok
        with pytest.raises(NotFoundError):
            lake.maintenance.check_backup(place, made["two"])
        for file in (place / "data").rglob("*.parquet"):
            file.write_bytes(b"damaged")
        assert not lake.maintenance.check_backup(place, made["one"]).ok
