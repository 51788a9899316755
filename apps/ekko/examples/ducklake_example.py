"""Ekko's transactions: write them into a lake, and read them as the dashboard does.

The lake is the one that ``DUCKLAKE_CATALOG_PATH`` and ``DUCKLAKE_DATA_PATH`` name, or a new one, whose files are in the
S3 store of ``MINIO_ENDPOINT`` or in a temporary folder. With ``NATS_URL``, the transactions go through NATS.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

import quacklake
from quacklake.connectors.nats.connection import NatsConnection
from quacklake_ekko.nats_writer import run_writer
from quacklake_ekko.service import DuckLakeService
from quacklake_ekko.settings import WriterSettings
from quacklake_ekko.table import TABLE
from quacklake_ekko.transactions import DuckLakeWriter, create_table

COUNT = 200
NODE = {"network": "Avalanche", "subnet": "Mainnet", "vm_type": "EVM"}


def sample(number: int) -> dict[str, object]:
    """Return a transaction as a node sends it."""
    return {
        "hash": f"0x{number:064x}",
        "from": f"0x{number % 7:040x}",
        "to": None if number % 10 == 0 else f"0x{number % 5:040x}",
        "value": hex(number * 10**16),
        "gas": "0x5208",
        "gasPrice": "0x1",
        "nonce": number,
        "input": "0x",
        "blockHash": f"0x{number // 10:064x}",
        "blockNumber": hex(1_000 + number // 10),
        "transactionIndex": number % 10,
        "timestamp": 1_700_000_000 + number // 10,
    }


async def first_with_rows(service: DuckLakeService) -> int:
    """Return the first snapshot that has transactions."""
    for snapshot in reversed(await service.get_snapshots()):
        if "insert" in snapshot["changes"]:
            return int(snapshot["snapshot_id"])
    raise LookupError("there are no transactions")


async def show(lake: quacklake.Lake) -> None:
    """Print what the dashboard asks for."""
    service = DuckLakeService(lake)
    first = await first_with_rows(service)
    newest = await service.get_transactions(limit=3, network="Avalanche", subnet="Mainnet")
    print("newest:", [row["blockNumber"] for row in newest])
    print("at snapshot", first, "there were", len(await service.get_transactions(limit=1000, snapshot_id=first)))
    print("changed in 24 hours:", len(await service.get_recent_changes(hours=24)))
    info = await service.get_table_info()
    print(info["row_count"], "rows,", len(info["columns"]), "columns")
    print("files that could go:", (await service.cleanup_old_files(dry_run=True))["files"])


def open_lake(folder: Path) -> quacklake.Lake:
    """Return the lake that the variables name, or a new one."""
    if "DUCKLAKE_CATALOG_PATH" in os.environ:
        return WriterSettings.resolve().connect()
    data = str(folder / "data")
    if "MINIO_ENDPOINT" in os.environ:
        bucket = os.environ.get("DUCKLAKE_BUCKET_NAME", "ducklake-data")
        data = os.environ.get("DUCKLAKE_DATA_PATH", f"s3://{bucket}/example-{uuid.uuid4().hex[:8]}/")
    return quacklake.connect(f"sqlite:///{folder / 'catalog.sqlite'}", data, create=True)


def send(settings: WriterSettings) -> None:
    """Publish the transactions on a stream of their own, as a node's listener does."""
    stream = settings.nats_stream
    with NatsConnection(settings.nats_url) as nats:
        nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": list(settings.nats_subjects)})
        subject = settings.nats_subjects[0].replace(">", ".".join(NODE.values()))
        nats.publish([(subject, json.dumps(sample(number) | NODE).encode(), None) for number in range(COUNT)])


def write(lake: quacklake.Lake) -> None:
    """Write the transactions, through NATS if it is there."""
    if "NATS_URL" not in os.environ:
        with DuckLakeWriter(lake) as writer:
            for number in range(COUNT):
                writer.write_transaction(sample(number), NODE)
        return
    name = f"example-{uuid.uuid4().hex[:8]}"
    settings = replace(WriterSettings.resolve(), nats_stream=name, nats_subjects=(f"{name}.>",))
    send(settings)
    try:
        print("NATS:", run_writer(settings, lake, until_idle=True).messages, "messages")
    finally:
        with NatsConnection(settings.nats_url) as nats:
            nats.jetstream(f"STREAM.DELETE.{name}")


def main() -> None:
    """Write 200 transactions and show them."""
    with tempfile.TemporaryDirectory() as folder, open_lake(Path(folder)) as lake:
        create_table(lake)
        write(lake)
        asyncio.run(show(lake))
        lake.table(TABLE).flush_inlined_data()
        files = lake.table(TABLE).files()
        print("files:", files.num_rows, "in", lake.data_path)


if __name__ == "__main__":
    main()
