"""The page that tells how far the extension's own tests pass here."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.sqllogic.exceptions import EXCEPTIONS
from tests.sqllogic.runner import Outcome

__all__ = ["PAGE", "Figures", "exceptions", "write"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "yardstick.md"
_FIGURES = re.compile(r"(?<=<!-- figures -->\n).*?(?=<!-- end -->)", re.DOTALL)
_EXCEPTIONS = re.compile(r"(?<=<!-- exceptions -->\n).*?(?=<!-- end -->)", re.DOTALL)


@dataclass
class Figures:
    """How many files ended how, and why they were left out."""

    outcomes: Counter[str]
    skipped: Counter[str]
    errors: int = 0

    def add(self, name: str, outcome: Outcome) -> None:
        """Count a file."""
        self.outcomes[outcome.kind] += 1
        self.outcomes["known"] += outcome.kind == "FAIL" and name in EXCEPTIONS
        self.outcomes["held"] += outcome.held
        self.outcomes["reworded"] += bool(outcome.reworded)
        self.errors += len(outcome.reworded)
        if outcome.kind == "SKIP":
            self.skipped[outcome.why] += 1

    @property
    def shown(self) -> str:
        """The figure."""
        found = self.outcomes
        attempted = found["PASS"] + found["FAIL"]
        share = 100 * found["PASS"] / attempted if attempted else 0.0
        return (
            f"passed {found['PASS']} of {attempted} attempted ({share:.1f} %), {found['held']} statements held;"
            f" {found['known']} of {found['FAIL']} failures are known and have a reason; skipped {found['SKIP']};"
            f" {self.errors} errors in {found['reworded']} passed files have other words than the extension's"
        )


def exceptions() -> str:
    """The files that end otherwise, as a table."""
    rows = "".join(f"| `{name}` | {why} |\n" for name, why in sorted(EXCEPTIONS.items()))
    return f"| file | why |\n|---|---|\n{rows}"


def write(figures: Figures) -> None:
    """Bring the page up to date."""
    skipped = "".join(f"| {count} | {why} |\n" for why, count in figures.skipped.most_common())
    told = f"{figures.shown[0].upper()}{figures.shown[1:]}.\n\n| files left out | why |\n|---|---|\n{skipped}"
    text = PAGE.read_text(encoding="utf-8")
    text = _FIGURES.sub(lambda _: told, text)
    PAGE.write_text(_EXCEPTIONS.sub(lambda _: exceptions(), text), encoding="utf-8")
