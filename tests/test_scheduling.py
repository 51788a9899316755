"""Tests that share what takes long to make run in one process, and long ones start first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import scheduling
from tests.scheduling import rank, unit

SPARK = "tests/spark/test_sql.py::test_a"
RULES = "tests/conformance/rules/test_bounds.py::test_b[sqlite]"


class Node:
    """A process of pytest-xdist that only takes note of what it is sent."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.sent: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_what_is_shared_makes_a_unit() -> None:
    assert unit(SPARK) == unit("tests/spark/test_views.py::test_b[x-1]") == "tests/spark/"
    assert unit("tests/spark/test_cluster.py::test_c") != unit(SPARK)
    assert unit(RULES) == "tests/conformance/rules/"
    assert unit("tests/crash/test_crashes.py::test_d[mysql-create]") == "tests/crash/test_crashes.py mysql"
    assert unit("tests/scan/test_pruning.py::test_e[sqlite]") == "tests/scan/test_pruning.py sqlite"
    assert unit("tests/lake/test_views.py::test_f[a::b]") == "tests/lake/test_views.py"


def test_long_units_start_first_and_quick_ones_last() -> None:
    order = [
        SPARK,
        RULES,
        "tests/tenants/test_a.py::test_a",
        "tests/lake/test_a.py::test_a",
        "tests/format/test_a.py::a",
    ]
    backwards = order[::-1]
    assert sorted(backwards, key=rank) == order
    # more than a thousand tests in one unit would keep one process busy at the end
    assert rank("tests/test_project.py::test_a") < rank("tests/format/test_a.py::test_b")


def test_a_unit_is_sent_to_one_process() -> None:
    option = SimpleNamespace(loadscopereorder=True)
    config: Any = SimpleNamespace(option=option, getvalue=lambda name: ["popen", "popen"])
    tests = [f"tests/spark/test_{file}.py::test_{number}" for number in range(8) for file in "ab"]
    tests += [f"tests/lake/test_{file}.py::test_{number}" for file in "abcd" for number in range(3)]
    made = scheduling.scheduler(config, SimpleNamespace(loadscopesched=lambda *_: None))
    nodes = [Node("gw0"), Node("gw1")]
    for node in nodes:
        made.add_node(node)
        made.add_node_collection(node, tests)
    made.schedule()
    done: dict[str, set[str]] = {}
    while any(node.sent for node in nodes):
        for node in nodes:
            if node.sent:
                index = node.sent.pop(0)
                done.setdefault(unit(tests[index]), set()).add(node.gateway.id)
                made.mark_test_complete(node, index)
    assert len(done) == 5
    assert all(len(names) == 1 for names in done.values())
    assert len(set.union(*done.values())) == 2


@pytest.mark.parametrize(("fixture", "place"), [("session", "tests/spark/"), ("library", "tests/conformance/rules/")])
def test_every_test_that_shares_is_in_the_unit(request: pytest.FixtureRequest, fixture: str, place: str) -> None:
    apart = [
        item.nodeid
        for item in request.session.items
        if item.nodeid.startswith(place) and fixture in getattr(item, "fixturenames", ()) and unit(item.nodeid) != place
    ]
    assert apart == []
