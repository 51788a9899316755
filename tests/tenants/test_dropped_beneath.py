"""Clients of a catalog that is dropped while in use get an error, and none of their files is left forever."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.catalog import parse_url
from quacklake.errors import NotFoundError, QuacklakeError

MANY = {"a": list(range(200))}
NOW = dt.timedelta(0)
DATABASES = ["sqlite", "postgres"]


@dataclass(frozen=True)
class Place:
    """A shared lake with the catalogs acme, which is dropped, and beta, which is not."""

    url: str
    tenants: quacklake.Tenants
    data: Path

    def files(self, name: str = "acme") -> list[Path]:
        return [path for path in (self.data / name).rglob("*") if path.is_file()]

    def rows(self, catalog_id: int) -> dict[str, int]:
        """The rows that a catalog still has, by table."""
        engine = sa.create_engine(parse_url(self.url).url)
        found = {}
        with engine.connect() as connection:
            for table in sa.inspect(connection).get_table_names():
                if any(column["name"] == "catalog_id" for column in sa.inspect(connection).get_columns(table)):
                    count = sa.text(f"SELECT count(*) FROM {table} WHERE catalog_id = {catalog_id}")
                    found[table] = int(connection.execute(count).scalar_one())
        engine.dispose()
        return {table: count for table, count in found.items() if count}


@pytest.fixture(params=DATABASES)
def place(request: pytest.FixtureRequest, new_url: Callable[[str], str], tmp_path: Path) -> Iterator[Place]:
    url = new_url(request.param)
    with quacklake.tenants(url, tmp_path / "data") as tenants:
        for name in ("acme", "beta"):
            with tenants.open(name, create=True) as lake:
                lake.create_table("t", MANY)
        yield Place(url, tenants, tmp_path / "data")


def repeat(begun: threading.Event, work: Callable[[int], Any]) -> QuacklakeError:
    """Do something again and again until it fails; tells when it has been done once."""
    try:
        for number in range(100_000):
            work(number)
            begun.set()
    except QuacklakeError as error:
        return error
    finally:
        begun.set()
    raise AssertionError("it never failed")


def test_writers_readers_and_streams_are_told_and_nothing_is_left(place: Place) -> None:
    with quacklake.connect(place.url, catalog="acme") as lake, ThreadPoolExecutor(6) as pool:
        run = lake.streams.claim("s", "q").run

        def stream(number: int) -> None:
            with lake.transaction() as tx:
                tx.table("t").append(MANY)
                tx.mark("s", number, run)

        jobs: dict[str, Callable[[int], Any]] = {
            "writer": lambda number: lake.table("t").append(MANY),
            "small": lambda number: lake.table("t").append([{"a": number}]),
            "reader": lambda number: lake.table("t").to_arrow(),
            "query": lambda number: lake.at(version=1).table("t").count("a > 3"),
            "stream": stream,
            "follower": lambda number: lake.table("t").changes(since=1).to_arrow(),
        }
        begun = {name: threading.Event() for name in jobs}
        futures: dict[str, Future[QuacklakeError]] = {
            name: pool.submit(repeat, begun[name], work) for name, work in jobs.items()
        }
        for event in begun.values():
            assert event.wait(120)
        dropped = place.tenants.drop("acme")
        errors = {name: future.result() for name, future in futures.items()}
        assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(jobs, NotFoundError)
        assert all("was dropped" in error.message for error in errors.values())
        for work in (
            lambda: lake.streams.claim("other", "q"),
            lake.streams.list,
            lambda: lake.options.set("data_inlining_row_limit", 5),
            lambda: lake.tag("here"),
            lambda: lake.history.untag("here"),
            lake.maintain,
            lake.expire_snapshots,
            lake.cleanup_old_files,
            lake.options.list,
            lake.history.tags,
            lake.history.retentions,
        ):
            with pytest.raises(NotFoundError, match="was dropped"):
                work()
    assert place.tenants.purge(grace=NOW).catalogs == 1
    assert (place.files(), place.rows(dropped.id)) == ([], {})
    with place.tenants.open("beta") as beta:
        assert beta.table("t").count() == 200
        assert not beta.verify(deep=True).errors


def test_a_reader_whose_files_are_gone_is_told_why(place: Place) -> None:
    with quacklake.connect(place.url, catalog="acme") as lake:
        for _ in range(3):
            lake.table("t").append(MANY)
        frame = lake.scan("t")
        begun = frame.to_reader(batch_rows=10)
        place.tenants.drop("acme")
        place.tenants.purge(grace=NOW)
        with pytest.raises(NotFoundError, match="was dropped"):
            begun.read_all()
        with pytest.raises(NotFoundError, match="was dropped"):
            frame.to_arrow()
        with pytest.raises(NotFoundError, match="was dropped"):
            lake.sql("SELECT sum(a) FROM t").fetchall()


def _write(url: str, pipe: Connection) -> None:
    """Another process: writes files, says so, commits on request, and then reports the outcome."""
    with quacklake.connect(url, catalog="acme") as lake:
        try:
            with lake.transaction() as tx:
                tx.table("t").append(MANY)
                pipe.send("written")
                pipe.recv()
        except QuacklakeError as error:
            pipe.send((error.code, error.message))
            return
        pipe.send("committed")


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("end", ["fails", "is killed"])
def test_files_of_a_process_that_wrote_before_the_drop_are_found(place: Place, end: str) -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_write, args=(place.url, there))
    process.start()
    assert here.recv() == "written"
    assert len(place.files()) == 2
    dropped = place.tenants.drop("acme")
    if end == "fails":
        here.send("go on")
        code, message = here.recv()
        assert (code, "was dropped" in message) == ("not_found", True)
        assert len(place.files()) == 1  # it takes back what nobody needs
    else:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    done = place.tenants.purge()
    assert (done.catalogs, done.files) == (1, 1 if end == "fails" else 2)
    assert place.files() == []
    assert set(place.rows(dropped.id)) == {"ducklake_catalog"}  # until nobody can be writing any more
    assert place.tenants.purge(grace=NOW).catalogs == 0
    assert place.rows(dropped.id) == {}


def test_files_that_come_after_the_purge_are_found_by_a_later_one(place: Place) -> None:
    with quacklake.connect(place.url, catalog="acme") as lake:
        with pytest.raises(NotFoundError, match="was dropped"), lake.transaction() as tx:
            tx.create_table("u", [{"a": 1}])
            dropped = place.tenants.drop("acme")
            assert place.tenants.purge().catalogs == 1
            assert place.tenants.dropped() == []
            # a process that knows nothing of it, and dies
            late = Path(lake.data_path) / "main" / "t" / "late.parquet"
            late.parent.mkdir(parents=True, exist_ok=True)
            late.write_bytes(b"PAR1")
            # whoever takes the name now has another folder: that of the old one is not free yet
            again = place.tenants.create("acme")
            assert again.data_path.endswith(f"/acme~{again.id}/")
            with place.tenants.open("acme") as other:
                other.create_table("t", MANY)
            assert (place.tenants.purge().files, place.files()) == (0, [late])
            found = place.tenants.purge(grace=NOW)
            assert (found.catalogs, found.files, place.files(), place.rows(dropped.id)) == (0, 1, [], {})
        # one that was never closed cannot harm those who come after it
        for work in (lake.delete_orphaned_files, lake.cleanup_old_files):
            with pytest.raises(NotFoundError, match="was dropped"):
                work(cleanup_all=True)
    with place.tenants.open("acme") as other:
        assert other.table("t").count("a >= 0") == 200
