"""A process that is killed while it changes users, grants, policies or tokens: the old state or the new one, whole."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import quacklake
from quacklake import Lake
from quacklake.core import faults
from quacklake.errors import QuacklakeError
from tests.crash.forks import Forks
from tests.seeds import some

Do = Callable[[Lake], object]

CHANGES: dict[str, Do] = {
    "create user": lambda lake: lake.access.create_user("new", ["reader", "team"]),
    "create user with token": lambda lake: lake.access.create_user_with_token("new", ["reader"]),
    "drop user": lambda lake: lake.access.drop_user("ann"),
    "disable user": lambda lake: lake.access.disable_user("ann"),
    "create role": lambda lake: lake.access.create_role("crew"),
    "drop role": lambda lake: lake.access.drop_role("team"),
    "grant": lambda lake: lake.access.grant(["SELECT", "INSERT", "DELETE"], "bob", table="t"),
    "grant columns": lambda lake: lake.access.grant("SELECT", "bob", table="t", columns=["id", "note"]),
    "revoke": lambda lake: lake.access.revoke("ALL", "ann", table="t"),
    "create policy": lambda lake: lake.access.create_policy("more", "t", "id > 1"),
    "drop policy": lambda lake: lake.access.drop_policy("few", "t"),
    "create mask": lambda lake: lake.access.create_mask("t", "note", "'x'"),
    "create token": lambda lake: lake.access.tokens.create("ann"),
    "revoke tokens": lambda lake: lake.access.tokens.revoke(lake.access.tokens.list("ann")[0].token_id),
    "expire a table with policies": lambda lake: lake.expire_snapshots(keep_last=1),
}
FIRST = {"first user": lambda lake: lake.access.create_user("ann", ["reader"])}


def prepare(home: Path) -> None:
    """Make a lake with users and rules, and one that has never had any."""
    for name in ("lake", "fresh"):
        with quacklake.connect(f"sqlite:///{home}/{name}.db", data_path=home / name, duckdb_threads=1) as lake:
            lake.sql("CREATE TABLE t AS SELECT range AS id, 'secret ' || range AS note FROM range(4)")
            if name == "fresh":
                continue
            access = lake.access
            for user in ("ann", "bob"):
                access.create_user(user)
            access.create_role("team")
            access.add_member("team", "ann")
            access.grant(["SELECT", "INSERT"], "ann", table="t")
            access.grant("SELECT", "team", table="t", columns=["id"])
            access.create_policy("few", "t", "id < 2")
            access.tokens.create("ann")
            lake.sql("CREATE TABLE gone (id BIGINT, note VARCHAR)")
            access.create_policy("none", "gone", "false")
            lake.rename_table("gone", "away")
            lake.drop_table("away")


def work(what: str, home: str, at: int | None = None) -> list[str]:
    """Make a change, and die at the ``at``-th point; return the points that were reached."""
    name, do = ("fresh", FIRST[what]) if what in FIRST else ("lake", CHANGES[what])
    with quacklake.connect(f"sqlite:///{home}/{name}.db", duckdb_threads=1) as lake, faults.record() as points:
        if at is None:
            do(lake)
        else:
            with faults.arm(faults.Fault(at=at, action="kill")):
                do(lake)
    return points


def rehearse() -> None:
    """Let Python find out once what it only finds out once."""
    with TemporaryDirectory() as home:
        prepare(Path(home))
        work("create mask", home)


def state(home: Path, what: str) -> str:
    """Return all rules of a lake, and what its users see, as a text to be compared."""
    name = "fresh" if what in FIRST else "lake"
    with quacklake.connect(f"sqlite:///{home}/{name}.db", duckdb_threads=1) as lake:
        access, seen = lake.access, []
        for user in ("ann", "bob", "new"):
            try:
                seen.append(sorted(map(str, lake.as_principal(user).sql("FROM t").fetchall())))
            except QuacklakeError as error:
                seen.append([error.code])
        grants = sorted(
            (each.grantee, each.privilege, each.scope, each.object_id or -1, each.column_id or -1)
            for each in access.grants()
        )
        policies = sorted((each.name, each.table_name, each.expression) for each in access.policies())
        tokens = [(each.principal, each.expires_ms) for each in access.tokens.list()]
        users = [(each.name, each.state) for each in access.users()]
        return repr((users, access.roles(), grants, policies, tokens, seen))


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(["tests.access.test_access_kills"]) as found:
        yield found


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("access_kills")
    prepare(home)
    return home


def _copy(before: Path, to: Path) -> Path:
    shutil.copytree(before, to)
    return to


@pytest.mark.daily(0.25)
@pytest.mark.parametrize("what", [*FIRST, *CHANGES])
def test_a_kill_at_any_point_leaves_the_old_rules_or_the_new_ones(
    forks: Forks, before: Path, tmp_path: Path, what: str
) -> None:
    done = _copy(before, tmp_path / "done")
    ended = forks.run("tests.access.test_access_kills:work", what=what, home=str(done))
    assert ended.code == 0, ended.errors
    points: list[str] = ended.value
    assert any(point == "catalog.commit.before" for point in points), points
    old, new = (state(home, what) for home in (before, done))
    assert old != new
    found: list[str] = []
    for at in some(range(1, len(points) + 1), 3, "access kills", what, always=[len(points)]):
        home = _copy(before, tmp_path / str(at))
        ended = forks.run("tests.access.test_access_kills:work", what=what, home=str(home), at=at)
        assert ended.code == -signal.SIGKILL, (points[at - 1], ended.errors)
        found.append(state(home, what))
        assert found[-1] in (old, new), points[at - 1]
        if found[-1] == old:  # what was interrupted can be done
            assert forks.run("tests.access.test_access_kills:work", what=what, home=str(home)).code == 0
        shutil.rmtree(home)
    assert found[-1] == new, "the last point is after the commit"
