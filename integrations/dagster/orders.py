"""Assets of Dagster that are tables of a lake: a partition for each day, which may be built again at any time.

Run it with ``python integrations/dagster/orders.py``; ``dagster dev -f integrations/dagster/orders.py`` shows it.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import pyarrow.compute as pc

import quacklake

DAYS = dg.StaticPartitionsDefinition(["2024-01-01", "2024-01-02"])


class QuacklakeResource(dg.ConfigurableResource):
    """A lake for assets and ops: its URL, and for a new lake the folder of its files."""

    url: str
    data_path: str | None = None

    @contextmanager
    def open(self) -> Iterator[quacklake.Lake]:
        """Yield the lake for a block."""
        with quacklake.connect(self.url, data_path=self.data_path) as lake:
            yield lake


@dg.asset(partitions_def=DAYS)
def orders(context: dg.AssetExecutionContext, lake: QuacklakeResource) -> dg.MaterializeResult:
    """The orders of a day. Overwriting the day makes a second try harmless."""
    day = context.partition_key
    rows = [{"day": day, "id": number, "price": number / 4} for number in range(100)]
    with lake.open() as opened:
        table = opened.create_table("orders", {"day": "VARCHAR", "id": "BIGINT", "price": "DOUBLE"}, if_not_exists=True)
        table.overwrite(rows, where=pc.field("day") == day)
        return dg.MaterializeResult(metadata={"snapshot": opened.current_snapshot(), "rows": len(rows)})


@dg.asset(deps=[orders])
def revenue(lake: QuacklakeResource) -> dg.MaterializeResult:
    """The revenue of each day, in one statement and one snapshot."""
    with lake.open() as opened:
        opened.sql("CREATE OR REPLACE TABLE revenue AS SELECT day, sum(price) AS total FROM orders GROUP BY day")
        return dg.MaterializeResult(metadata={"days": opened.table("revenue").count()})


def main() -> None:
    """Build everything in a temporary folder, one day twice."""
    with tempfile.TemporaryDirectory() as folder:
        lake = QuacklakeResource(url=f"sqlite:///{folder}/lake.db", data_path=f"{folder}/data")
        with dg.DagsterInstance.ephemeral() as instance:
            for day in ("2024-01-01", "2024-01-02", "2024-01-02"):
                dg.materialize([orders], resources={"lake": lake}, partition_key=day, instance=instance)
            done = dg.materialize([orders, revenue], selection=[revenue], resources={"lake": lake}, instance=instance)
        assert done.success
        with lake.open() as opened:
            print(opened.sql("SELECT * FROM revenue ORDER BY day").fetchall())


if __name__ == "__main__":
    main()
