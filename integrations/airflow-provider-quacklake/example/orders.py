"""A DAG whose tasks may be tried again at any time: a table of orders by day, and their revenue.

Run it once with ``python integrations/airflow-provider-quacklake/example/orders.py``, in an ``AIRFLOW_HOME`` whose
database ``airflow db migrate`` has made and with a connection ``quacklake_default``.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pendulum
import pyarrow.compute as pc
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import dag, task
from airflow_provider_quacklake.assets import table_asset
from airflow_provider_quacklake.hooks import QuacklakeHook
from airflow_provider_quacklake.operators import QuacklakeMaintainOperator, QuacklakeSqlOperator


@dag(
    schedule="@daily",
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 2, "retry_delay": dt.timedelta(0)},
)
def orders() -> None:
    """Load the orders of a day, add up their prices, and look after the files."""
    tables = QuacklakeSqlOperator(
        task_id="tables",
        sql=[
            "CREATE TABLE IF NOT EXISTS orders (day DATE, id BIGINT, price DOUBLE)",
            "CREATE TABLE IF NOT EXISTS loads (day DATE, loaded TIMESTAMP)",
        ],
    )

    @task(outlets=[table_asset("orders")])
    def load(ds: str | None = None) -> int:
        """Replace the orders of a day: a second try gives the same rows."""
        day = dt.date.fromisoformat(str(ds))
        rows = [{"day": day, "id": number, "price": number / 4} for number in range(100)]
        with QuacklakeHook().lake() as lake:
            lake.table("orders").overwrite(rows, where=pc.field("day") == day)
            return lake.table("orders").count()

    journal = QuacklakeSqlOperator(
        task_id="journal",
        sql="INSERT INTO loads VALUES (?, now()::TIMESTAMP)",
        parameters=["{{ ds }}"],
        once=True,  # this row can only be added, so a second try must not
        outlets=[table_asset("loads")],
    )
    revenue: Any = SQLExecuteQueryOperator(
        task_id="revenue",
        conn_id="quacklake_default",
        sql="SELECT sum(price) FROM orders WHERE day = '{{ ds }}'",
    )
    tables >> load() >> journal >> revenue >> QuacklakeMaintainOperator(task_id="maintain")


made = orders()

if __name__ == "__main__":
    done = made.test(logical_date=pendulum.datetime(2024, 1, 2, tz="UTC"))
    print("state:", done.state)
    with QuacklakeHook().lake() as opened:
        print(opened.sql("SELECT count(*), sum(price) FROM orders").fetchall())
        print(opened.sql("SELECT count(*) FROM loads").fetchall())
