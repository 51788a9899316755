"""The part of the reference of Ekko about its endpoints, made from their description and from examples that run.

``python -m tests.ekko.api`` writes it; a test runs the examples again and compares.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

import quacklake
from quacklake.service.app import create_app
from quacklake.service.identity import Role, TokenGate
from quacklake.service.serving import BackgroundService
from quacklake_ekko.plugin import SERVICE
from quacklake_ekko.transactions import DuckLakeWriter, create_table
from tests.docs.api import Example, describe_operation, run_all
from tests.docs.blocks import REPOSITORY

__all__ = ["EXAMPLES", "MARK", "PAGE", "make_section", "running"]

PAGE = REPOSITORY / "docs/reference/ekko.md"
MARK = "<!-- api -->\n"
EXAMPLES = (
    Example("ekko_transactions", "/api/transactions/?networks=Avalanche&limit=1"),
    Example("ekko_export", "/api/transactions/export?networks=Avalanche"),
    Example("ekko_networks", "/api/transactions/networks"),
    Example("ekko_stats", "/api/transactions/stats"),
    Example("ekko_test", "/api/transactions/test"),
    Example("ekko_transaction", "/api/transactions/0xabc"),
)


@contextmanager
def running() -> Iterator[httpx.Client]:
    """Yield an administrator's client of a service on a lake with one transaction."""
    with tempfile.TemporaryDirectory() as folder:
        lake = quacklake.connect(f"sqlite:///{folder}/lake.db", f"{folder}/data", create=True)
        create_table(lake)
        block = {"number": "0x10", "hash": "0xb", "timestamp": "0x6955b900"}
        transaction = {
            "hash": "0xabc", "from": "0x1", "to": "0x2", "value": "5", "gas": "21000", "gasPrice": "1", "nonce": "0",
            "input": "0x", "blockHash": "0xb", "blockNumber": "0x10", "transactionIndex": "0x0",
        }  # fmt: skip
        node = {"id": "n", "name": "n", "network": "Avalanche", "subnet": "Mainnet", "vm_type": "EVM"}
        with DuckLakeWriter(lake) as writer:
            writer.write_block({**block, "transactions": [transaction]}, node)
        app = create_app(TokenGate(lake, {"a-secret": Role.ADMIN}), plugins=[SERVICE])
        headers = {"Authorization": "Bearer a-secret", "Accept-Encoding": "identity"}
        with BackgroundService(app) as url, httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            yield client


def make_section() -> str:
    """Run the examples against a service, and return the section."""
    with running() as client:
        description = client.get("/api/v1/openapi.json").json()
        ran = run_all(client, description, EXAMPLES)
    return "\n".join(
        describe_operation(method.upper(), path, operation, ran[operation["operationId"]])
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        if operation["tags"] == ["ekko"]
    )


if __name__ == "__main__":
    PAGE.write_text(
        PAGE.read_text(encoding="utf-8").partition(MARK)[0] + MARK + "\n" + make_section(), encoding="utf-8"
    )
