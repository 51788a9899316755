"""Transactions and Arrow files for the tests of the migration."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa

from quacklake.config import resolve
from quacklake.lake.lake import Lake
from quacklake_ekko.migration import ArrowFolder
from quacklake_ekko.simulator import Simulation
from quacklake_ekko.table import TABLE
from quacklake_ekko.transactions import ROWS, NodeConfig, transaction_row

START = dt.datetime(2023, 11, 14, 22, tzinfo=dt.UTC)


def open_folder(place: Path) -> ArrowFolder:
    return ArrowFolder.open(place, resolve(env={}))


def transactions(blocks: int = 4, **options: object) -> pa.Table:
    """Rows of simulated blocks, each half an hour after the one before."""
    chosen: dict[str, object] = {"transactions": 5, "seconds": 1800, **options}
    simulation = Simulation(**chosen)  # type: ignore[arg-type]
    node = NodeConfig.of(simulation.node)
    rows = []
    for block in simulation.blocks(blocks):
        shared = {"blockHash": block["hash"], "blockNumber": block["number"], "timestamp": block["timestamp"]}
        for index, each in enumerate(block["transactions"]):
            rows.append(transaction_row({"transactionIndex": index, **each, **shared}, node, now=START))
    return pa.Table.from_pylist(rows, ROWS)


def changed(rows: pa.Table, dice: random.Random) -> pa.Table:
    """The same transactions as another block has them: in a reorganisation, or late."""
    moved = dt.timedelta(minutes=dice.choice([0, 30, 90]))
    found = []
    for row in rows.to_pylist():
        moment = row["block_time"] + moved
        parts = {"year": moment.year, "month": moment.month, "day": moment.day, "hour": moment.hour}
        block = row["block_number"] + dice.choice([0, 1])
        found.append(row | parts | {"block_time": moment, "block_number": block, "block_hash": f"0x{dice.random()}"})
    return pa.Table.from_pylist(found, ROWS)


def in_lake(lake: Lake) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = lake.table(TABLE).to_pylist()
    return sorted(rows, key=lambda row: str(row["tx_hash"]))
