"""The checker of histories finds every anomaly that is planted, and none in good histories."""

from __future__ import annotations

import random

import pytest

from tests.prove.histories import Append, Level, Read, Status, Transaction, check


def a(key: str, value: int) -> Append:
    return Append(key, value)


def r(key: str, *values: int) -> Read:
    return Read(key, values)


def together(*operations: tuple[Append | Read, ...]) -> list[Transaction]:
    """Transactions that are all under way at once."""
    return [Transaction(id_, 0, 100, each) for id_, each in enumerate(operations)]


def kinds(history: list[Transaction], level: Level = Level.STRICT, **final: tuple[int, ...]) -> set[str]:
    return {anomaly.kind for anomaly in check(history, final, level)}


def test_a_good_history_has_no_anomaly() -> None:
    history = [
        Transaction(0, 0, 1, (a("x", 1), a("y", 1))),
        Transaction(1, 2, 3, (r("x", 1), a("x", 2), r("x", 1, 2))),
        Transaction(2, 2.5, 4, (r("x", 1), r("y", 1))),
        Transaction(3, 5, 6, (a("x", 3),), Status.FAILED),
        Transaction(4, 5, 7, (a("x", 4), a("y", 4)), Status.UNKNOWN),
        Transaction(5, 5, 7, (a("x", 5), a("y", 5)), Status.UNKNOWN),
        Transaction(6, 8, 9, (r("x", 1, 2, 5), r("y", 1, 5))),
    ]
    assert check(history, {"x": (1, 2, 5), "y": (1, 5)}) == []
    assert check(history, {"x": (1, 2, 5), "y": (1, 5)}, Level.SNAPSHOT) == []


def test_writes_in_two_orders_are_g0() -> None:
    history = together((a("x", 1), a("y", 1)), (a("x", 2), a("y", 2)))
    assert kinds(history, x=(1, 2), y=(2, 1)) == {"G0"}
    assert kinds(history, Level.SNAPSHOT, x=(1, 2), y=(2, 1)) == {"G0"}


def test_reading_what_was_aborted_is_g1a() -> None:
    history = [*together((r("x", 1),)), Transaction(7, 0, 100, (a("x", 1),), Status.FAILED)]
    assert "G1a" in kinds(history, x=())


def test_an_aborted_value_at_the_end_is_g1a() -> None:
    assert kinds([Transaction(7, 0, 100, (a("x", 1),), Status.FAILED)], x=(1,)) == {"G1a"}


def test_reading_half_of_a_transaction_is_g1b() -> None:
    assert kinds(together((a("x", 1), a("x", 2)), (r("x", 1),)), x=(1, 2)) == {"G1b"}


def test_each_seeing_the_other_is_g1c() -> None:
    history = together((a("x", 1), r("y", 2)), (a("y", 2), r("x", 1)))
    assert kinds(history, x=(1,), y=(2,)) == {"G1c"}


def test_seeing_one_change_of_another_and_missing_the_other_is_g_single() -> None:
    history = together((a("x", 1), a("y", 1)), (r("x", 1), r("y")))
    assert kinds(history, x=(1,), y=(1,)) == {"G-single"}
    assert kinds(history, Level.SNAPSHOT, x=(1,), y=(1,)) == {"G-single"}


def test_two_who_append_to_what_both_have_read_lose_an_update() -> None:
    history = together((r("x"), a("x", 1)), (r("x"), a("x", 2)))
    for level in Level:
        assert kinds(history, level, x=(1, 2)) == {"lost update", "G-single"}


def test_write_skew_is_g2_and_allowed_by_snapshot_isolation() -> None:
    history = together((r("x"), a("y", 1)), (r("y"), a("x", 2)))
    assert kinds(history, x=(2,), y=(1,)) == {"G2"}
    assert kinds(history, Level.SNAPSHOT, x=(2,), y=(1,)) == set()


def test_two_readers_who_see_two_writers_in_two_orders_are_found_at_both_levels() -> None:
    """A long fork: two rw edges, but never one after the other."""
    history = together((a("x", 1),), (a("y", 1),), (r("x", 1), r("y")), (r("x"), r("y", 1)))
    assert kinds(history, x=(1,), y=(1,)) == {"G2"}
    assert kinds(history, Level.SNAPSHOT, x=(1,), y=(1,)) == {"G-nonadjacent"}


def test_a_read_that_misses_what_was_done_before_it_is_out_of_real_time() -> None:
    history = [Transaction(0, 0, 1, (a("x", 1),)), Transaction(1, 2, 3, (r("x"),))]
    for level in Level:
        assert kinds(history, level, x=(1,)) == {"real-time"}
    overlapping = [Transaction(0, 0, 2, (a("x", 1),)), Transaction(1, 1, 3, (r("x"),))]
    assert kinds(overlapping, x=(1,)) == set()


def test_an_append_that_comes_before_what_was_done_earlier_is_out_of_real_time() -> None:
    history = [Transaction(0, 0, 1, (a("x", 1),)), Transaction(1, 2, 3, (a("x", 2),))]
    assert kinds(history, x=(2, 1)) == {"real-time"}


def test_an_unknown_commit_may_come_late() -> None:
    history = [Transaction(0, 0, 1, (a("x", 1),), Status.UNKNOWN), Transaction(1, 2, 3, (r("x"),))]
    assert kinds(history, x=(1,)) == set()


def test_an_acknowledged_append_that_is_nowhere_is_lost() -> None:
    assert kinds(together((a("x", 1),)), x=()) == {"lost append"}


def test_half_of_an_unknown_transaction_is_torn() -> None:
    assert kinds([Transaction(0, 0, 1, (a("x", 1), a("y", 1)), Status.UNKNOWN)], x=(1,), y=()) == {"torn"}


def test_a_value_that_is_twice_in_a_list_is_a_duplicate() -> None:
    assert "duplicate" in kinds(together((a("x", 1),)), x=(1, 1))
    assert "duplicate" in kinds(together((a("x", 1),), (r("x", 1, 1),)), x=(1,))


def test_reads_in_different_orders_are_found() -> None:
    assert kinds(together((a("x", 1),), (a("x", 2),), (r("x", 2),)), x=(1, 2)) == {"order"}


def test_a_value_that_nobody_appended_is_garbage() -> None:
    assert kinds(together((r("x", 9),)), x=()) == {"garbage"}


@pytest.mark.parametrize("operations", [(a("x", 1), r("x")), (r("x"), r("x", 5)), (a("x", 1), a("x", 2), r("x", 2, 1))])
def test_a_transaction_that_does_not_see_itself_is_found(operations: tuple[Append | Read, ...]) -> None:
    history = [*together(operations), Transaction(7, 0, 100, (a("x", 5),))]
    final = (5, *(one.value for one in operations if isinstance(one, Append)))
    assert "internal" in kinds(history, x=final)


def serial(chance: random.Random, count: int) -> tuple[list[Transaction], dict[int, tuple[int, ...]]]:
    """A serial history, in which each transaction takes effect at a moment between its begin and end."""
    lists: dict[int, tuple[int, ...]] = dict.fromkeys(range(4), ())
    history: list[Transaction] = []
    for id_ in range(count):
        operations: list[Append | Read] = []
        before = dict(lists)
        for _ in range(chance.randrange(1, 4)):
            key = chance.randrange(4)
            if chance.random() < 0.5:
                operations.append(Read(key, lists[key]))
            else:
                operations.append(Append(key, id_ * 10 + len(operations)))
                lists[key] += (id_ * 10 + len(operations) - 1,)
        status = chance.choice((Status.OK, Status.OK, Status.OK, Status.FAILED, Status.UNKNOWN))
        if status is Status.FAILED or (status is Status.UNKNOWN and chance.random() < 0.5):
            lists = before
        begin, end = id_ - chance.random() * 5, id_ + chance.random() * 5
        history.append(Transaction(id_, begin, end, tuple(operations), status))
    return history, lists


@pytest.mark.parametrize("seed", range(20))
def test_random_serial_histories_have_no_anomaly_until_one_is_planted(seed: int) -> None:
    chance = random.Random(seed)
    history, final = serial(chance, 200)
    for level in Level:
        assert check(history, final, level) == []
    key = max(final, key=lambda key: len(final[key]))
    assert check(history, {**final, key: final[key][1:]}) != []
    assert check(history, {**final, key: (*final[key][::-1],)}) != []
    assert check(history, {**final, key: (*final[key], final[key][0])}) != []
    first = next(one for one in history if one.status is Status.OK and one.keys)
    late = Transaction(10_000, 500, 501, (Read(next(iter(first.keys)), ()),))
    assert {one.kind for one in check([*history, late], final)} == {"real-time"}
