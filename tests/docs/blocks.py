"""The fenced blocks of a Markdown page: what is code, what is a terminal, and what is not run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NOT_RUN", "PAGES", "REPOSITORY", "Block", "blocks", "page_id"]

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / "apps").glob("*/README.md")),
]

NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
"""The comment on the line before a block that cannot run in a test, with the reason."""

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One block: its language, its text and the line of the page it starts on."""

    language: str
    text: str
    line: int
    not_run: str | None


def page_id(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    content = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(content):
        before = content[: match.start()].rstrip("\n").rpartition("\n")[2]
        reason = NOT_RUN.fullmatch(before.strip())
        line = content[: match.start("text")].count("\n")
        found.append(Block(match["language"], match["text"], line, None if reason is None else reason[1]))
    return found
