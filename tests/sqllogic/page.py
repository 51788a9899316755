"""The page that tells how far the extension's own tests pass here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.sqllogic.exceptions import EXCEPTIONS
from tests.sqllogic.runner import Outcome

__all__ = ["PAGE", "Figures", "exceptions", "write"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "yardstick.md"
_FIGURES = re.compile(r"(?<=<!-- figures -->\n).*?(?=<!-- end -->)", re.DOTALL)
_EXCEPTIONS = re.compile(r"(?<=<!-- exceptions -->\n).*?(?=<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Figures:
    """What became of each file."""

    found: Mapping[str, Outcome]

    def count(self, kind: str) -> int:
        """How many files ended so."""
        return sum(outcome.kind == kind for outcome in self.found.values())

    @property
    def skipped(self) -> Counter[str]:
        """How many files were left out, by the reason."""
        return Counter(outcome.why for outcome in self.found.values() if outcome.kind == "SKIP")

    @property
    def unknown(self) -> list[str]:
        """The files that failed without a reason that is known."""
        return [name for name, outcome in self.found.items() if outcome.kind == "FAIL" and name not in EXCEPTIONS]

    @property
    def shown(self) -> str:
        """The figure."""
        passed, failed, skipped = (self.count(kind) for kind in ("PASS", "FAIL", "SKIP"))
        share = 100 * passed / (passed + failed) if passed + failed else 0.0
        reworded = [outcome.reworded for outcome in self.found.values() if outcome.reworded]
        return (
            f"passed {passed} of {passed + failed} attempted ({share:.1f} %); {failed - len(self.unknown)} of {failed}"
            f" failures have a reason below; skipped {skipped}; {sum(map(len, reworded))} errors in {len(reworded)}"
            " passed files are told in other words than the extension's"
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
