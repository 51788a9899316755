"""Tables of what each connector can do, as ``connector_features.toml`` says it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NAMES", "ROLES", "UNTESTED", "Cell", "cells", "details_table", "matrix_table"]

_FILE = Path(__file__).with_name("connector_features.toml")
ROLES = ("source", "sink")
NAMES: Mapping[str, str] = {
    "delta": "Delta",
    "iceberg": "Iceberg",
    "hudi": "Hudi",
    "nats": "NATS",
    "kafka": "Kafka",
    "lake": "lake",
    "pond": "pond",
    "files": "files",
}
"""The columns of the matrices: connectors, and what a reader may take for one."""
UNTESTED = "not tested"


@dataclass(frozen=True)
class Cell:
    """The answer for a feature of a connector, its reason and the test that would find it broken."""

    role: str
    connector: str
    feature: str
    answer: str
    reason: str
    test: str | None


def cells() -> Iterator[Cell]:
    """Yield every cell, by role, connector and feature. A missing one raises ``KeyError``."""
    for role, table in tomllib.loads(_FILE.read_text(encoding="utf-8")).items():
        for connector in NAMES:
            for key, feature in table["features"].items():
                text, *tests = table[connector][key]
                answer, _, reason = text.partition(": ")
                yield Cell(role, connector, feature, answer, reason, *tests or (None,))


def matrix_table(role: str) -> str:
    """Return the answers of all connectors in a role."""
    found = [cell for cell in cells() if cell.role == role]
    titles = [f"[{title}](#{title.lower()})" for title in NAMES.values()]
    lines = [f"| as a {role} | " + " | ".join(titles) + " |", "|---" * (len(NAMES) + 1) + "|"]
    for feature in dict.fromkeys(cell.feature for cell in found):
        answers = [cell.answer for cell in found if cell.feature == feature]
        lines.append(f"| {feature} | " + " | ".join(answers) + " |")
    return "\n".join(lines)


def details_table(connector: str) -> str:
    """Return the reasons and tests of a connector."""
    lines = ["| role | feature | answer | test |", "|---|---|---|---|"]
    for cell in cells():
        if cell.connector == connector:
            answer = f"{cell.answer}: {cell.reason}" if cell.reason else cell.answer
            test = "" if cell.test is None else f"`{cell.test}`"
            lines.append(f"| {cell.role} | {cell.feature} | {answer} | {test} |")
    return "\n".join(lines)
