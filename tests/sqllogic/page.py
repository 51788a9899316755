"""The page that tells how far the extension's own tests pass here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.sqllogic.exceptions import BETTER, EXCEPTIONS
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
        plain = {name: outcome.kind for name, outcome in self.found.items() if outcome.plain and outcome.kind != "SKIP"}
        fair = [kind for name, kind in plain.items() if kind == "PASS" or name not in BETTER]
        reworded = [outcome.reworded for outcome in self.found.values() if outcome.reworded]
        return (
            f"passed {passed} of {passed + failed} attempted ({share:.1f} %), of those with plain SQL and functions only"
            f" {_share(list(plain.values()))}, and {_share(fair)} without those in which the extension is wrong;"
            f" {failed - len(self.unknown)} of {failed}"
            f" failures have a reason below; skipped {skipped}; {sum(map(len, reworded))} errors in {len(reworded)}"
            " passed files are told in other words than the extension's"
        )


def _share(kinds: Sequence[str]) -> str:
    passed = kinds.count("PASS")
    return f"{passed} of {len(kinds)} ({100 * passed / len(kinds) if kinds else 0.0:.1f} %)"


def exceptions() -> str:
    """The files that end otherwise, as a table; those in which the extension is wrong have a mark."""
    rows = "".join(
        f"| `{name}` | {why} | {'✓' if name in BETTER else ''} |\n" for name, why in sorted(EXCEPTIONS.items())
    )
    return f"| file | why | on purpose |\n|---|---|:-:|\n{rows}"


def write(figures: Figures) -> None:
    """Bring the page up to date."""
    skipped = "".join(f"| {count} | {why} |\n" for why, count in figures.skipped.most_common())
    told = f"{figures.shown[0].upper()}{figures.shown[1:]}.\n\n| files left out | why |\n|---|---|\n{skipped}"
    text = PAGE.read_text(encoding="utf-8")
    text = _FIGURES.sub(lambda _: told, text, count=1)
    PAGE.write_text(_EXCEPTIONS.sub(lambda _: exceptions(), text, count=1), encoding="utf-8")
