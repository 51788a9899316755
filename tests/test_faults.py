from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import timeit

import pytest

from quacklake.core.faults import EXIT_CODE, Fault, FaultInjected, arm, reach, record
from quacklake.errors import ConfigError, QuacklakeError


def commit() -> None:
    for name in ("storage.write", "catalog.insert", "catalog.commit", "storage.delete"):
        reach(name)


def test_nothing_happens_unless_armed() -> None:
    commit()


def test_reaching_an_unarmed_point_costs_next_to_nothing() -> None:
    # About 40 nanoseconds; the limit leaves room for a busy machine.
    assert min(timeit.repeat(lambda: reach("x"), number=10_000, repeat=5)) / 10_000 < 2e-6


def test_the_points_passed_are_recorded_in_order() -> None:
    with record() as names:
        commit()
    commit()
    assert names == ["storage.write", "catalog.insert", "catalog.commit", "storage.delete"]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_nth_point_fails(n: int) -> None:
    with record() as names, arm(Fault(at=n)), pytest.raises(FaultInjected, match=str(n)):
        commit()
    assert len(names) == n


def test_a_pattern_chooses_the_points_that_count() -> None:
    with record() as names, arm(Fault(at=2, pattern="catalog.*")), pytest.raises(FaultInjected):
        commit()
    assert names[-1] == "catalog.commit"


def test_a_fault_happens_once_so_that_cleaning_up_succeeds() -> None:
    with arm(Fault(at=1)):
        with pytest.raises(FaultInjected):
            commit()
        commit()


def test_any_error_can_be_raised() -> None:
    with arm(Fault(error=lambda: ConnectionResetError("gone"))), pytest.raises(ConnectionResetError, match="gone"):
        commit()


def test_the_block_ends_the_fault_even_after_an_error() -> None:
    with pytest.raises(FaultInjected), arm(Fault()):
        commit()
    commit()


def test_a_fault_is_no_error_of_ours() -> None:
    assert issubclass(FaultInjected, Exception)
    assert not issubclass(FaultInjected, QuacklakeError)


@pytest.mark.concurrency
def test_among_many_threads_exactly_one_is_hit() -> None:
    hits: list[str] = []

    def work() -> None:
        try:
            for _ in range(100):
                reach("x")
        except FaultInjected as fault:
            hits.append(str(fault))

    with arm(Fault(at=50)):
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(hits) == 1


@pytest.mark.parametrize("text", ["", "x:kill", "0:kill", "1:explode", "1", "-1:exit"])
def test_a_malformed_fault_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="invalid fault"):
        Fault.parse(text)


def test_a_fault_is_read_from_its_text() -> None:
    assert Fault.parse("3:kill:catalog.*") == Fault(3, "kill", "catalog.*")
    assert Fault.parse("1:exception") == Fault()


@pytest.mark.crash
@pytest.mark.parametrize(
    ("fault", "code", "output"),
    [
        ("2:exit", EXIT_CODE, "a\n"),
        ("2:kill", -signal.SIGKILL, "a\n"),
        ("1:exit:b", EXIT_CODE, "a\n"),
        ("2:exception", 0, "a\nFaultInjected\nclean-up\n"),
        ("9:kill", 0, "a\nb\nclean-up\n"),
    ],
)
def test_a_process_is_armed_through_its_environment(fault: str, code: int, output: str) -> None:
    program = """
from quacklake.core.faults import reach, FaultInjected
try:
    for name in "ab":
        reach(name)
        print(name, flush=True)
except FaultInjected:
    print("FaultInjected")
finally:
    print("clean-up")
"""
    env = os.environ | {"QUACKLAKE_FAULT": fault}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, output)
