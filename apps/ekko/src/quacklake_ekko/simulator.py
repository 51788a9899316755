"""Make blocks of transactions as a node of a blockchain would send them, with the faults of a real one.

The same seed makes the same blocks. Some transactions come twice, some late, some malformed; a reorganisation sends
blocks again with other hashes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quacklake.connectors.nats.connection import NatsConnection
from quacklake.connectors.nats.stream import NO_STREAM
from quacklake.errors import ConnectorError
from quacklake_ekko.settings import WriterSettings


@dataclass(frozen=True)
class Simulation:
    """The blocks to simulate: shares are of transactions, ``reorgs`` of blocks."""

    seed: int = 0
    network: str = "Avalanche"
    subnet: str = "Mainnet"
    vm_type: str = "EVM"
    transactions: int = 20
    duplicates: float = 0.0
    late: float = 0.0
    malformed: float = 0.0
    reorgs: float = 0.0
    start: int = 1_700_000_000
    seconds: int = 2

    @property
    def node(self) -> dict[str, str]:
        """The node that sends the blocks."""
        return {"network": self.network, "subnet": self.subnet, "vm_type": self.vm_type}

    @property
    def subject(self) -> str:
        """The subject of transactions: ``transactions.{vm}.{network}.{subnet}``."""
        return f"transactions.{self.vm_type}.{self.network}.{self.subnet}".lower()

    def blocks(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield blocks in order; one that a reorganisation replaces comes again under its number."""
        dice = random.Random(self.seed)
        parent = "0x" + "0" * 64
        for number in range(count):
            block = self._block(dice, number, parent)
            yield block
            if dice.random() < self.reorgs:
                block = {**self._block(dice, number, parent), "transactions": block["transactions"]}
                yield block
            parent = block["hash"]

    def messages(self, count: int) -> Iterator[bytes]:
        """Yield the transactions of blocks as messages, faults among them."""
        dice = random.Random(self.seed + 1)
        waiting: list[bytes] = []
        for block in self.blocks(count):
            for index, transaction in enumerate(block["transactions"]):
                body = json.dumps(
                    {
                        **self.node,
                        **transaction,
                        "blockHash": block["hash"],
                        "blockNumber": block["number"],
                        "timestamp": block["timestamp"],
                        "transactionIndex": hex(index),
                    }
                ).encode()
                if dice.random() < self.late:
                    waiting.append(body)
                    continue
                yield body
                if dice.random() < self.duplicates:
                    yield body
                if dice.random() < self.malformed:
                    yield dice.choice([body[: len(body) // 2], b"", b"[]", body.replace(b'"hash"', b'"hsah"', 1)])
            dice.shuffle(waiting)
            while len(waiting) > 10:
                yield waiting.pop()
        yield from waiting

    def _block(self, dice: random.Random, number: int, parent: str) -> dict[str, Any]:
        return {
            "hash": _hex(dice, 32),
            "parentHash": parent,
            "number": hex(number),
            "timestamp": hex(self.start + number * self.seconds),
            "transactions": [self._transaction(dice) for _ in range(self.transactions)],
        }

    def _transaction(self, dice: random.Random) -> dict[str, Any]:
        calls = dice.random() < 0.3
        return {
            "hash": _hex(dice, 32),
            "from": _hex(dice, 20),
            "to": None if dice.random() < 0.02 else _hex(dice, 20),
            "value": hex(dice.getrandbits(dice.choice([0, 40, 70]))),
            "gas": hex(dice.randint(21_000, 500_000)),
            "gasPrice": hex(dice.randint(1, 10**11)),
            "nonce": hex(dice.randint(0, 5000)),
            "input": _hex(dice, 36) if calls else "0x",
            "status": "0x1" if dice.random() < 0.97 else "0x0",
        }


def publish(settings: WriterSettings, simulation: Simulation, blocks: int) -> int:
    """Publish the transactions of blocks to the NATS server of the settings, and return how many messages that is.

    The stream is created, for the subjects of the settings and of the simulation, unless it is there. Raise what NATS
    raises.
    """
    stream = settings.nats_stream
    messages = [(simulation.subject, body, None) for body in simulation.messages(blocks)]
    with NatsConnection(settings.nats_url) as connection:
        try:
            connection.jetstream(f"STREAM.INFO.{stream}")
        except ConnectorError as error:
            if error.number != NO_STREAM:
                raise
            subjects = [*settings.nats_subjects, *(() if settings.takes(simulation.subject) else (simulation.subject,))]
            connection.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": subjects})
        connection.publish(messages)
    return len(messages)


def _hex(dice: random.Random, count: int) -> str:
    return f"0x{dice.getrandbits(8 * count):0{2 * count}x}"
