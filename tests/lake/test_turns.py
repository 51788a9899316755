"""An operation that loses race after race gets a turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.catalog.turns import early_turn
from quacklake.errors import CatalogUnavailableError, CommitConflict
from quacklake.operations import dml
from quacklake.transaction import Retry


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as found:
        found.options.set("data_inlining_row_limit", 0)
        found.create_table("t", pa.table({"id": range(100)}))
        yield found


@pytest.fixture
def overtaken(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every delete is overtaken by one that another client makes in the same file, when that can commit."""
    other = quacklake.connect(lake.url, busy_timeout_ms=50, ducklake_max_retry_count=0)
    told: list[str] = []
    real = dml.delete

    def delete(shared: object, *rest: object) -> object:
        found = real(shared, *rest)  # type: ignore[arg-type]
        if shared is not other._context:
            try:
                other.table("t").delete(f"id = {50 + len(told)}")
                told.append("overtaken")
            except CatalogUnavailableError:
                told.append("waited")
        return found

    monkeypatch.setattr(dml, "delete", delete)
    yield told
    other.close()


def test_an_operation_that_has_lost_three_races_keeps_others_from_committing(
    lake: quacklake.Lake, overtaken: list[str]
) -> None:
    assert lake.table("t").delete("id = 1") == 1
    assert overtaken == ["overtaken"] * 3 + ["waited"]
    assert lake.table("t").count() == 100 - 4
    assert lake.verify(deep=True).findings == ()
    assert lake.table("t").append([{"id": 200}]) > 0, "the queue is free again"


def test_without_turns_it_loses_for_ever(lake: quacklake.Lake, overtaken: list[str]) -> None:
    with quacklake.connect(lake.url, turn_ms=0, ducklake_max_retry_count=4, ducklake_retry_wait_ms=1) as stubborn:
        with pytest.raises(CommitConflict):
            stubborn.table("t").delete("id = 1")
    assert overtaken == ["overtaken"] * 5


def test_a_failure_in_a_turn_lets_the_next_one_in(lake: quacklake.Lake) -> None:
    attempts: list[int] = []

    def work(tx: object) -> None:
        attempts.append(len(attempts))
        if len(attempts) <= 3:
            raise CommitConflict("lost")
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="mistake"):
        lake.handle.run(work)
    assert len(attempts) == 4
    assert lake.table("t").delete("id = 2") == 1


def test_a_long_operation_gets_no_turn() -> None:
    retry = Retry(turn_ms=1_000)
    assert [retry.gives_turn(attempt, 0.5) for attempt in range(5)] == [False, False, False, True, True]
    assert not retry.gives_turn(9, 1.5)
    assert not Retry(turn_ms=0).gives_turn(9, 0.0)


def test_the_only_connection_is_not_held(tmp_path: Path) -> None:
    options = {"pool_size": 1, "pool_max_overflow": 0}
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", **options) as found:
        found.create_table("t", pa.table({"id": [1]}))
        assert early_turn(found.handle.context.catalog) is None
