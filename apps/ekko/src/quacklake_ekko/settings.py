"""The settings of a program that writes transactions, from the variables that Ekko's pipeline has.

Those of the lake itself (``DUCKLAKE_CATALOG_PATH``, ``MINIO_ENDPOINT`` and so on) are settings of Quacklake.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from quacklake import Lake, connect
from quacklake.config import Config, resolve
from quacklake.config.redaction import redact
from quacklake.config.values import PARSERS, parse_duration
from quacklake.connectors.nats.credentials import NatsAddress
from quacklake.errors import ConfigError

SUBJECTS = ("transactions", "transactions.>")
"""The subjects of transactions: the bare one, and ``transactions.{vm}.{network}.{subnet}``."""

_TOKEN = r"[^\s.*>]+"
_SUBJECT = re.compile(rf"(?:{_TOKEN}|\*)(?:\.(?:{_TOKEN}|\*))*(?:\.>)?|>")
_STREAM = re.compile(r"[^\s.*>/\\]{1,255}")


@dataclass(frozen=True)
class WriterSettings:
    """Settings for reading transactions from NATS and writing them into a lake. Made by :meth:`resolve`.

    ``lake`` has the settings of the lake; it is None for a writer that gets an open lake.
    """

    batch_size: int = 1000
    flush_interval: timedelta = timedelta(seconds=30)
    nats_url: str = field(default="nats://localhost:4222", repr=False)
    nats_stream: str = "blockchain"
    nats_subjects: tuple[str, ...] = SUBJECTS
    lake: Config | None = None

    @classmethod
    def resolve(cls, env: Mapping[str, str] | None = None) -> WriterSettings:
        """Return the settings of the environment; an empty variable counts as not set.

        ``DUCKLAKE_BATCH_SIZE``, ``DUCKLAKE_FLUSH_INTERVAL``, ``NATS_URL``, ``NATS_STREAM`` and ``NATS_SUBJECT``, a
        list of subjects separated by commas. ``transactions`` stands for itself and all subjects below it. Raise
        ``ConfigError`` that names the variable.
        """
        environment = os.environ if env is None else env
        values: dict[str, Any] = {}
        for name, (variable, parse) in _VARIABLES.items():
            text = environment.get(variable, "").strip()
            if text:
                try:
                    values[name] = parse(text)
                except ValueError as error:
                    raise ConfigError(f'{variable} = "{redact(text)}": {error}') from None
        return cls(**values, lake=resolve(env=env))

    def takes(self, subject: str) -> bool:
        """Return whether messages of a subject are read.

        >>> WriterSettings(nats_subjects=("ekko.*.*.*.persistence",)).takes("ekko.avalanche.mainnet.evm.persistence")
        True
        """
        words = subject.split(".")
        return any(_matches(pattern.split("."), words) for pattern in self.nats_subjects)

    def connect(self) -> Lake:
        """Open the lake of the settings. Raise ``ConfigError`` when none is named, or lakes are switched off."""
        if self.lake is None or self.lake.url is None:
            raise ConfigError("no lake was given", hint="set DUCKLAKE_CATALOG_PATH or QUACKLAKE_URL")
        chosen = {
            name: getattr(self.lake, name)
            for name, source in self.lake.sources.items()
            if source != "default" and not name.startswith(("catalog_", "postgres_"))  # the URL has these
        }
        return connect(**chosen)


def _matches(pattern: list[str], words: list[str]) -> bool:
    if pattern[-1] == ">":
        return len(words) >= len(pattern) and _matches(pattern[:-1], words[: len(pattern) - 1])
    return len(pattern) == len(words) and all(wild in ("*", word) for wild, word in zip(pattern, words, strict=True))


def _batch_size(text: str) -> int:
    number = PARSERS["int"](text)
    if not isinstance(number, int) or not 1 <= number <= 1_000_000:
        raise ValueError("expected a whole number from 1 to 1,000,000")
    return number


def _flush_interval(text: str) -> timedelta:
    interval = parse_duration(text, bare=False)
    if not timedelta(milliseconds=1) <= interval <= timedelta(days=1):
        raise ValueError("expected a duration from 1ms to 1d")
    return interval


def _nats_url(text: str) -> str:
    try:
        for address in text.split(","):
            NatsAddress.parse(address.strip())
    except ConfigError as error:
        raise ValueError(error.message) from None
    return text


def _nats_stream(text: str) -> str:
    if not _STREAM.fullmatch(text):
        raise ValueError("expected the name of a stream, without blanks, dots and wildcards")
    return text


def _nats_subjects(text: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for part in (part.strip() for part in text.split(",")):
        if not _SUBJECT.fullmatch(part):
            raise ValueError(f"{part!r} is not a subject: expected words, * or a last > with dots between them")
        found |= dict.fromkeys(SUBJECTS if part == SUBJECTS[0] else (part,))
    return tuple(found)


_VARIABLES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "batch_size": ("DUCKLAKE_BATCH_SIZE", _batch_size),
    "flush_interval": ("DUCKLAKE_FLUSH_INTERVAL", _flush_interval),
    "nats_url": ("NATS_URL", _nats_url),
    "nats_stream": ("NATS_STREAM", _nats_stream),
    "nats_subjects": ("NATS_SUBJECT", _nats_subjects),
}
