"""The adapter of dbt, with the real dbt: an example project, and classes of dbt's own suite."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake import Lake
from tests import seeds
from tests.suites import ADAPTER, DBT, classes_of_dbt, environment_of_dbt, run_dbt

_CLASSES = 2
_RUN = "import sys; from dbt.cli.main import cli; sys.exit(cli())"
_KILL = """
import os, signal
from dbt.adapters.quacklake.connections import QuacklakeConnectionManager as Manager
commit = Manager.add_commit_query
def end(self):
    ends = self.get_thread_connection().name == "model.jaffle_lake.orders"
    if ends and {before}:
        os.kill(os.getpid(), signal.SIGKILL)
    done = commit(self)
    if ends:
        os.kill(os.getpid(), signal.SIGKILL)
    return done
Manager.add_commit_query = end
"""

pytestmark = [
    pytest.mark.skipif(not (DBT / "dbt").is_dir(), reason="dbt is not installed: make .venv/dbt"),
    pytest.mark.timeout(7200 if seeds.LONG else 1200),
]


def _run(project: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words, "--profiles-dir", "."]
    return subprocess.run(
        command, cwd=project, env=environment_of_dbt(), text=True, capture_output=True, timeout=300, check=False
    )


def _dbt(project: Path, *words: str) -> str:
    done = _run(project, _RUN, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built once: a start of dbt takes seconds, and each test sells something more."""
    copied = Path(shutil.copytree(ADAPTER / "example", tmp_path_factory.mktemp("dbt") / "jaffle"))
    _dbt(copied, "build")
    return copied


def _expected(project: Path) -> tuple[list[object], list[object]]:
    """Return the rows of two models as plain DuckDB computes them from the seeds."""
    orders = f"""SELECT o.id, o.customer_id, o.ordered_on, o.status, sum(p.cents / 100)
        FROM read_csv('{project}/seeds/raw_orders.csv') o JOIN read_csv('{project}/seeds/raw_payments.csv') p
        ON p.order_id = o.id GROUP BY ALL ORDER BY 1"""
    with duckdb.connect() as connection:
        first = connection.execute(orders).fetchall()
        names = orders.replace("sum(p.cents / 100)", "sum(p.cents / 100) AS amount")
        days = f"SELECT ordered_on, count(*), sum(amount) FROM ({names}) GROUP BY 1 ORDER BY 1"
        return list(first), list(connection.execute(days).fetchall())


def _models(lake: Lake) -> tuple[list[object], list[object]]:
    orders = lake.sql("SELECT * FROM jaffle.orders ORDER BY order_id").fetchall()
    return list(orders), list(lake.sql("SELECT * FROM jaffle.revenue_by_day ORDER BY ordered_on").fetchall())


def _sell(project: Path) -> None:
    """Change the seeds: an order is shipped, and there is another one."""
    orders, payments = project / "seeds" / "raw_orders.csv", project / "seeds" / "raw_payments.csv"
    order, payment = (len(file.read_text().splitlines()) for file in (orders, payments))  # with the line of names
    orders.write_text(
        orders.read_text().replace("2026-01-07,placed", "2026-01-07,shipped") + f"{order},2,2026-01-09,placed\n"
    )
    payments.write_text(payments.read_text() + f"{payment},{order},coupon,900\n")


def test_the_example_builds_and_follows_what_is_new(project: Path) -> None:
    with quacklake.connect(f"sqlite:///{project / 'jaffle.db'}") as lake:
        found = _models(lake)
        assert found == _expected(project)
        before = lake.current_snapshot()

    _sell(project)
    _dbt(project, "build")
    with quacklake.connect(f"sqlite:///{project / 'jaffle.db'}") as lake:
        assert _models(lake) == _expected(project)
        assert lake.materialized_views.describe("jaffle.revenue_by_day")["last_way"] != "full"
        assert [found.ok for found in lake.materialized_views.verify("jaffle.revenue_by_day")] == [True]
        states = lake.sql(
            "SELECT status FROM jaffle.order_states WHERE order_id = 6 ORDER BY dbt_valid_from"
        ).fetchall()
        assert states == [("placed",), ("shipped",)]
        assert lake.at(before).sql("SELECT count(*) FROM jaffle.orders").fetchall() == [(len(found[0]),)]


@pytest.mark.daily(0.5)
def test_an_incremental_model_that_is_killed_is_whole_or_as_it_was(project: Path) -> None:
    url = f"sqlite:///{project / 'jaffle.db'}"
    with quacklake.connect(url) as lake:
        old, _ = _models(lake)
    _sell(project)
    new, days = _expected(project)
    for before, words in (
        (True, ["build", "--select", "+orders", "--exclude-resource-type", "test"]),  # with the seeds, in one process
        (False, ["run", "--select", "orders"]),
    ):
        killed = _run(project, _KILL.format(before=before) + _RUN, *words)
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
        with quacklake.connect(url) as lake:
            assert _models(lake)[0] == (old if before else new)
    _dbt(project, "run")
    with quacklake.connect(url) as lake:
        assert _models(lake) == (new, days)


@pytest.mark.daily(0.5)
def test_classes_of_dbts_own_suite_pass() -> None:
    known = classes_of_dbt()
    outcome = run_dbt(() if seeds.LONG else seeds.some(known, _CLASSES, "classes of dbt's suite"))
    print(outcome.line)
    assert outcome.failed == [], outcome.text[-5000:]
    assert outcome.counts.get("passed", 0) + outcome.counts.get("skipped", 0) > 0, outcome.text[-5000:]
