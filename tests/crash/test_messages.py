"""A small commit that ends at any of its messages is whole or was never made: killed, or its connection lost."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from quacklake.core.catalog import parse_url
from tests.crash.forks import Forks
from tests.crash.homes import Home, Workshop
from tests.crash.messages import WARM
from tests.crash.operations import note
from tests.crash.proxy import Proxy
from tests.seeds import LONG, some

pytestmark = pytest.mark.crash

#: What a commit of PostgreSQL sends: the transaction with its turn, all that it writes, and COMMIT.
MESSAGES = 3


def _log(home: Home, *, last: bool = False) -> list[int]:
    """Return the log, after checking that the lake around it is whole and takes another commit."""
    home.check()
    with home.connect() as lake:
        if last or LONG:
            assert not lake.verify(deep=True).errors
        rows = sorted(row["n"] for row in lake.table("log").to_pylist())
        before = lake.current_snapshot()
        note(lake, -1)
        assert lake.current_snapshot() == before + 1
    return rows


@pytest.mark.parametrize(
    "workshop", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True, scope="session"
)
def test_a_process_killed_at_any_message_of_a_commit_leaves_all_of_it_or_nothing(
    workshop: Workshop, forks: Forks
) -> None:
    home = workshop.copy()
    expected = _log(home)
    counted = forks.run("tests.crash.messages:append_and_count", url=home.url, n=100)
    assert counted.code == 0, counted.errors
    messages: int = counted.value
    assert messages == MESSAGES or workshop.database == "sqlite"
    assert messages > 2
    expected = sorted([*expected, -1, *WARM, 100])
    points = [(at, when) for at in range(1, messages + 1) for when in ("before", "after")]
    for at, when in some(points, 4, "killed messages", workshop.database, always=points[-2:]):
        ended = forks.run("tests.crash.messages:append", url=home.url, n=200, at=at, when=when)
        assert ended.code == -signal.SIGKILL, ended.errors
        # the last message of PostgreSQL is COMMIT; SQLite's is sent past those that are watched
        made = [200] if (at, when) == points[-1] and workshop.database == "postgres" else []
        expected = sorted([*expected, *WARM, *made])
        assert _log(home, last=at == messages) == expected, (at, when)
        expected = sorted([*expected, -1])


@pytest.mark.postgres
@pytest.mark.parametrize("workshop", ["postgres"], indirect=True)
def test_a_commit_that_loses_any_message_or_its_answer_is_made_once(workshop: Workshop) -> None:
    home = workshop.copy()
    expected = _log(home)
    url = parse_url(home.url).url
    assert url.port is not None
    losses = [(message, how) for message in range(1, MESSAGES + 1) for how in ("request", "answer")]
    with Proxy(url.port) as proxy:
        through = replace(home, url=url.set(port=proxy.port).render_as_string(hide_password=False))
        with through.connect() as lake:
            for count, (message, how) in enumerate(losses, 1):
                for n in WARM:  # by a new connection, which is to know the statements, too
                    note(lake, n)
                before = lake.current_snapshot()
                proxy.lose(how, message)
                note(lake, 300)
                assert proxy.losses == count
                assert lake.current_snapshot() == before + 1, (message, how)
    assert _log(home, last=True) == sorted([*expected, -1, *[*WARM, 300] * len(losses)])
