"""A process that makes, removes or moves catalogs may die at any point: nothing is seen by halves, and a second one ends it.

The long profile kills at every point on three databases, a day's run at some on one.
"""

from __future__ import annotations

import datetime as dt
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.catalog import parse_url
from quacklake.errors import AlreadyExistsError, NotFoundError, QuacklakeError
from tests.crash.forks import Forks
from tests.seeds import LONG, some
from tests.tenants.deaths import WORK, prepare

pytestmark = pytest.mark.timeout(1200)

DATABASES = ["sqlite", "postgres", "mysql"] if LONG else ["sqlite"]
ADOPTED = ("adopt",)
MADE = ("create", "create_many", "fork", "adopt", "rename")


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(["tests.tenants.deaths"]) as server:
        yield server


class Stage:
    """A shared lake with the catalog acme, on which one thing is done, and a plain lake beside it."""

    def __init__(self, what: str, url: str, home: Path) -> None:
        self.what, self.url, self.home = what, url, home
        self.turn = 0
        self.tenants = quacklake.tenants(url, home / "data", duckdb_threads=1)
        prepare(self.tenants, "acme")
        if what in ADOPTED:
            self.tenants.export("acme", self.plain, copy_data=True)

    @property
    def plain(self) -> str:
        """The plain lake: one for all turns where it is adopted, else a new one each time."""
        return f"sqlite:///{self.home}/{'plain' if self.what in ADOPTED else f'plain{self.turn}'}.db"

    def names(self) -> list[str]:
        return [tenant.name for tenant in self.tenants]

    def set_out(self) -> None:
        """Prepare the next turn."""
        self.turn += 1
        if self.what in ("drop", "purge", "rename"):
            prepare(self.tenants, "victim")
        if self.what == "purge":
            self.tenants.drop("victim")

    def judge(self, point: str) -> bool:
        """Look at what a death has left; True when the work was done by then."""
        names, before = self.names(), ["acme", "victim"] if self.what in ("drop", "rename") else ["acme"]
        done = names != before
        if self.what == "create_many":
            assert len(names) in (1, 5), point
        elif self.what in MADE:
            assert names in (before, ["acme", "new"]), point
        elif self.what == "drop":
            assert names in (before, ["acme"]), point
            assert [row.name.partition("~")[0] for row in self.tenants.dropped()] == ["victim"] * done, point
        else:
            assert names == ["acme"], point
        for name in names[:2]:
            with self.tenants.open(name, duckdb_threads=1) as lake:
                assert not lake.verify(deep=True).errors, point
                assert not lake.tables() or lake.table("t").count() == 19
        if self.what.startswith("export"):
            done = self.exported()
        return done

    def exported(self) -> bool:
        """Return whether there is a plain lake, which must then be whole."""
        try:
            with quacklake.connect(
                self.plain, create=False, foreign_paths=[f"{self.home}/data/acme"], duckdb_threads=1
            ) as lake:
                assert not lake.verify(deep=True).errors
                assert lake.table("t").count() == 19
        except NotFoundError:
            return False
        return True

    def finish(self, done: bool) -> None:
        """Do it again; when it was done already, it is there or gone."""
        try:
            WORK[self.what](self.tenants, self.plain)
        except (AlreadyExistsError, NotFoundError):
            assert done

    def tidy(self) -> None:
        """Leave the stage as it was found, with no row and no file of others than acme."""
        for name in self.names()[1:]:
            self.tenants.drop(name)
        with suppress(NotFoundError):
            self.tenants.release("acme", self.plain)
        while self.tenants.dropped():
            assert self.tenants.purge().catalogs > 0
        self.tenants.purge(grace=dt.timedelta(0))  # nobody is writing any more: forget them
        assert self.names() == ["acme"]
        assert self.tenants.shares("acme") == []
        folders = [path.name for path in (self.home / "data").iterdir() if any(path.rglob("*.parquet"))]
        assert folders == ["acme"]
        engine = sa.create_engine(parse_url(self.url).url)
        with engine.connect() as connection:
            for table in sa.inspect(connection).get_table_names():
                if "catalog_id" in {column["name"] for column in sa.inspect(connection).get_columns(table)}:
                    left = connection.execute(sa.text(f"SELECT DISTINCT catalog_id FROM {table}")).scalars().all()
                    # the version that stops stock DuckDB is nobody's
                    assert set(left) <= ({0, -1} if table == "ducklake_metadata" else {0}), table
        engine.dispose()


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("what", WORK)
def test_a_death_leaves_all_or_nothing_and_the_next_one_ends_it(
    what: str, database: str, forks: Forks, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    stage = Stage(what, new_url(database), tmp_path)
    call = "tests.tenants.deaths:work"
    stage.set_out()
    points: list[str] = forks.run(call, what=what, url=stage.url, plain=stage.plain).value
    stage.tidy()
    last = max(n for n, point in enumerate(points, 1) if point == "catalog.commit.after")
    for number in some(range(1, len(points) + 1), 3, "deaths", what, always=(last - 1, last)):
        stage.set_out()
        ended = forks.run(call, what=what, url=stage.url, plain=stage.plain, at=number)
        point = f"{number} of {len(points)}, {points[number - 1]}"
        assert ended.code == -signal.SIGKILL, f"{point}: {ended.errors}"
        stage.finish(stage.judge(point))
        stage.tidy()
    stage.tenants.close()


@pytest.mark.parametrize(
    "database", ["postgres", *(pytest.param(name, marks=pytest.mark.daily(0)) for name in ("sqlite", "mysql"))]
)
def test_of_32_processes_that_make_one_name_one_wins(
    database: str, forks: Forks, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    url, ways = new_url(database), ["only", "either", "connect", "only"] * 8
    children = [
        forks.start("tests.tenants.deaths:contend", url=url, data=str(tmp_path / "data"), how=how) for how in ways
    ]
    ended = [child.wait() for child in children]
    assert [each.errors for each in ended if each.code] == []
    found = list(zip(ways, (each.value for each in ended), strict=True))
    # whoever takes what is there gets it; of those who do not, one at most has made it
    assert {answer for how, answer in found if how != "only"} == {0}
    assert {answer for how, answer in found if how == "only"} <= {0, AlreadyExistsError.code}
    assert found.count(("only", 0)) <= 1
    with quacklake.tenants(url) as tenants:
        assert [(tenant.id, tenant.name) for tenant in tenants] == [(0, "acme")]
        prepare(tenants, "acme")


def test_an_error_at_any_point_leaves_the_name_free(tmp_path: Path) -> None:
    """Not a death: the same process continues with the same connections."""
    from quacklake.core import faults

    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as tenants:
        with faults.record() as points:
            tenants.create("first")
        last = points.index("catalog.commit.before") + 1
        for number in range(1, last + 1):
            with faults.arm(faults.Fault(at=number)), pytest.raises((faults.FaultInjected, QuacklakeError)):
                tenants.create("new")
            assert [tenant.name for tenant in tenants] == ["first"]
        assert tenants.create("new").id == 1
