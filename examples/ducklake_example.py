"""Ekko's transactions: write simulated blocks into a lake, and read them as the dashboard does.

The lake is the one that ``DUCKLAKE_CATALOG_PATH`` and ``DUCKLAKE_DATA_PATH`` name, or a temporary one.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import quacklake
from quacklake.pipelines.ekko import DuckLakeWriter, create_table
from quacklake.pipelines.settings import WriterSettings
from quacklake.service.ekko import DuckLakeService


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


async def show(lake: quacklake.Lake) -> None:
    """Print what the dashboard asks for."""
    service = DuckLakeService(lake)
    first = (await service.get_snapshots())[-1]["snapshot_id"] + 2
    newest = await service.get_transactions(limit=3, network="Avalanche", subnet="Mainnet")
    print("newest:", [row["blockNumber"] for row in newest])
    print("at snapshot", first, "there were", len(await service.get_transactions(limit=1000, snapshot_id=first)))
    print("changed in 24 hours:", len(await service.get_recent_changes(hours=24)))
    info = await service.get_table_info()
    print(info["row_count"], "rows,", len(info["columns"]), "columns")
    print("files that could go:", (await service.cleanup_old_files(dry_run=True))["files"])


def main() -> None:
    """Write 200 transactions and show them."""
    with tempfile.TemporaryDirectory() as folder:
        if "DUCKLAKE_CATALOG_PATH" in os.environ:
            lake = WriterSettings.resolve().connect()
        else:
            lake = quacklake.connect(f"sqlite:///{Path(folder) / 'catalog.sqlite'}", Path(folder) / "data", create=True)
        with lake:
            create_table(lake)
            with DuckLakeWriter(lake) as writer:
                for number in range(200):
                    writer.write_transaction(
                        sample(number), {"network": "Avalanche", "subnet": "Mainnet", "vm_type": "EVM"}
                    )
            asyncio.run(show(lake))


if __name__ == "__main__":
    main()
