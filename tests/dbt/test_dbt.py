"""The adapter of dbt, with the real dbt: an example project, and classes of dbt's own suite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake import Lake
from tests import seeds

REPOSITORY = Path(__file__).resolve().parents[2]
ADAPTER = REPOSITORY / "integrations" / "dbt-quacklake"
INSTALLED = REPOSITORY / ".venv" / "dbt"
BASIC = [
    "BaseAdapterMethod",
    "BaseEmpty",
    "BaseEphemeral",
    "BaseGenericTests",
    "BaseIncremental",
    "BaseSimpleMaterializations",
    "BaseSingularTests",
    "BaseSnapshotCheckCols",
    "BaseSnapshotTimestamp",
    "BaseTableMaterialization",
    "BaseValidateConnection",
]

pytestmark = pytest.mark.skipif(not (INSTALLED / "dbt").is_dir(), reason="dbt is not installed: make .venv/dbt")


def _run(*command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(INSTALLED), str(ADAPTER / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", **more}
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, text=True, capture_output=True, timeout=300, check=False
    )


def _dbt(project: Path, *words: str) -> str:
    code = "import sys; from dbt.cli.main import cli; sys.exit(cli())"
    done = _run("-c", code, *words, "--profiles-dir", ".", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ADAPTER / "example", tmp_path / "jaffle"))


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


def test_the_example_builds_and_follows_what_is_new(project: Path) -> None:
    _dbt(project, "build")
    with quacklake.connect(f"sqlite:///{project / 'jaffle.db'}") as lake:
        assert _models(lake) == _expected(project)
        before = lake.current_snapshot()

    orders, payments = project / "seeds" / "raw_orders.csv", project / "seeds" / "raw_payments.csv"
    orders.write_text(orders.read_text().replace("2026-01-07,placed", "2026-01-07,shipped") + "7,2,2026-01-09,placed\n")
    payments.write_text(payments.read_text() + "8,7,coupon,900\n")
    _dbt(project, "build")
    with quacklake.connect(f"sqlite:///{project / 'jaffle.db'}") as lake:
        assert _models(lake) == _expected(project)
        assert lake.materialized_views.describe("jaffle.revenue_by_day")["last_way"] != "full"
        assert [found.ok for found in lake.materialized_views.verify("jaffle.revenue_by_day")] == [True]
        states = lake.sql(
            "SELECT status FROM jaffle.order_states WHERE order_id = 6 ORDER BY dbt_valid_from"
        ).fetchall()
        assert states == [("placed",), ("shipped",)]
        assert lake.at(before).sql("SELECT count(*) FROM jaffle.orders").fetchall() == [(6,)]


@pytest.mark.daily(0.5)
def test_basic_classes_of_dbts_own_suite_pass() -> None:
    chosen = BASIC if seeds.LONG else [seeds.chance("dbt").choice(BASIC)]
    options = ["-q", "-W", "ignore", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    names = " or ".join(f"basic and {name}" for name in chosen)
    done = _run("-m", "pytest", *options, "tests/test_suite.py", "-k", names, cwd=ADAPTER)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) >= len(chosen)
