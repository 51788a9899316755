"""Pipelines under kills in short: a few of what ``make prove PIPELINES=…`` does at every point."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from services import Unavailable
from tests.catalog.stock import Stock
from tests.conftest import skip_or_fail
from tests.crash.forks import Forks
from tests.prove.pipelines import BATCH, Stand, round_of_kills, round_of_messages
from tests.seeds import LONG, SEED, some

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

SOURCE = Path(__file__).resolve().parents[2] / "src" / "quacklake"
ELSEWHERE = {
    "connector.iceberg.compact.before",  # upkeep between batches: connectors/test_sink_maintenance.py
    "connector.iceberg.compact.after",
    "connector.hudi.prepare.before",  # connectors/test_hudi_sink.py
    "connector.hudi.prepare.after",
    "connector.hudi.commit.before",
    "connector.hudi.commit.after",
    "connector.hudi.kept.after",
}
"""The points of connectors that other tests have."""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(["tests.prove.pipelines"]) as server:
        yield server


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def stand(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    forks: Forks,
    stock_if_plain: Stock | None,
) -> Iterator[Stand]:
    """Separate servers, which are killed."""
    folder = tmp_path_factory.mktemp("pipelines")
    try:
        made = Stand(folder, forks, stock_if_plain, postgres=request.param == "postgres")
    except Unavailable as error:
        skip_or_fail(str(error))
    yield made
    made.close()


@pytest.mark.daily(0.5)
@pytest.mark.parametrize(("source", "mode"), [("nats", "append"), ("lake", "upsert")])
def test_each_message_is_in_every_sink_once_whatever_is_killed_between_barrier_and_mark(
    stand: Stand, source: str, mode: str
) -> None:
    def chosen(numbers: Sequence[int], what: str) -> Sequence[int]:
        return some(numbers, 2 if what == "process" else 1, "kills of a pipeline", stand.database, source, what)

    tally, names = round_of_kills(stand, source, mode, chosen)
    assert tally.kills >= 1
    assert names >= known(set(stand.setup.sinks)), "a new point is not passed by these pipelines"


def known(sinks: set[str]) -> set[str]:
    """Return the points of pipelines and of the connectors of sinks that the library names."""
    found = {
        call.args[0].value
        for folder in ("pipelines", "connectors")
        for file in (SOURCE / folder).rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", getattr(call.func, "attr", "")) == "reach"
        and isinstance(call.args[0], ast.Constant)
    }
    assert BATCH in found
    absent = {name for name in found if name.startswith("connector.") and name.split(".")[1] not in sinks}
    ours = {name for name in found if name.startswith(("pipeline.", "connector."))} - ELSEWHERE - absent
    assert {name for name in ELSEWHERE if name not in found} == set()
    return ours


@pytest.mark.daily(0.5)
def test_messages_are_counted_right_after_random_kills(stand: Stand) -> None:
    messages, kills = (100_000, 20) if LONG else (2_000, 3)
    tally = round_of_messages(stand, messages, kills, f"{SEED}")
    assert tally.messages >= messages
    assert tally.struck >= kills
