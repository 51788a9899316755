"""Ekko's whole way: transactions through the writer into a lake in PostgreSQL and S3, and out of the API."""

from __future__ import annotations

import asyncio

import pytest

import quacklake
from quacklake.pipelines.ekko import DuckLakeWriter, create_table
from quacklake.service.ekko import DuckLakeService
from services import S3Server
from tests.service.serving import served

NODE = {"network": "Avalanche", "subnet": "Mainnet", "vm_type": "EVM"}


def test_what_the_writer_flushes_the_api_answers(
    postgres_url: str, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    lake = quacklake.connect(postgres_url, f"{s3_bucket}/data", create=True)
    create_table(lake)
    with DuckLakeWriter(lake) as writer:
        for number in range(30):
            writer.write_transaction(
                {"hash": f"0x{number}", "from": "0x1", "to": "0x2", "value": "1", "gas": "1", "gasPrice": "1", "nonce": 1,
                 "input": "0x", "blockHash": "0xb", "blockNumber": number, "transactionIndex": 0, "timestamp": 1_700_000_000},
                NODE,
            )  # fmt: skip
        writer.write_transaction(
            {"hash": "0x3", "from": "0x1", "to": "0x2", "value": "1", "gas": "1", "gasPrice": "1", "nonce": 1,
             "input": "0x", "blockHash": "0xb", "blockNumber": 3, "transactionIndex": 0, "timestamp": 1_700_000_000},
            NODE,
        )  # fmt: skip
    assert len(asyncio.run(DuckLakeService(lake).get_transactions(limit=100))) == 30
    with served(lake) as found:
        page = found.reader.get("/api/transactions/", params={"limit": 100, "networks": "Avalanche"}).json()
        assert (page["total"], len({row["hash"] for row in page["transactions"]})) == (30, 30)
        assert found.anonymous.get("/health/ready").json() == {"status": "ready"}
