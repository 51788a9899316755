"""The page that shows how many of the extension's own tests pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.sqllogic.exceptions import EXCEPTIONS
from tests.sqllogic.runner import Outcome

__all__ = ["PAGE", "Figures", "exceptions", "write"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "yardstick.md"


@dataclass(frozen=True)
class Figures:
    """The outcome of each file."""

    found: Mapping[str, Outcome]

    def files(self, *kinds: str) -> list[str]:
        """Return the files that ended so."""
        return [name for name, outcome in self.found.items() if outcome.kind in kinds]

    @property
    def skipped(self) -> Counter[str]:
        """The number of files that were left out, by reason."""
        return Counter(outcome.why for outcome in self.found.values() if outcome.kind == "SKIP")

    @property
    def unexplained(self) -> list[str]:
        """The files that failed, and not on purpose."""
        return [name for name in self.files("FAIL") if name not in EXCEPTIONS]

    @property
    def shown(self) -> str:
        """The figures in one sentence."""
        attempted = self.files("PASS", "FAIL")
        others = [name for name in attempted if name not in EXCEPTIONS]
        plain = [name for name in others if self.found[name].plain]
        return (
            f"passed {self._share(attempted)} attempted; {len(attempted) - len(others)} differ on purpose;"
            f" passed {self._share(others)} of the others, {self._share(plain)} of those with plain SQL and functions"
            f" only; skipped {len(self.files('SKIP'))}"
        )

    def _share(self, names: Iterable[str]) -> str:
        kinds = [self.found[name].kind for name in names]
        passed = kinds.count("PASS")
        return f"{passed} of {len(kinds)} ({100 * passed / len(kinds) if kinds else 0.0:.1f} %)"


def exceptions() -> str:
    """Return the files that differ on purpose, as a table."""
    rows = "".join(f"| `{name}` | {why} |\n" for name, why in sorted(EXCEPTIONS.items()))
    return f"| file | why |\n|---|---|\n{rows}"


def write(figures: Figures) -> None:
    """Bring the page up to date."""
    skipped = "".join(f"| {count} | {why} |\n" for why, count in figures.skipped.most_common())
    left = "".join(f"- `{name}`\n" for name in sorted(figures.unexplained)) or "None.\n"
    text = PAGE.read_text(encoding="utf-8")
    parts = {
        "figures": f"{figures.shown[0].upper()}{figures.shown[1:]}.\n\n| files left out | why |\n|---|---|\n{skipped}",
        "exceptions": exceptions(),
        "failures": left,
    }
    for name, part in parts.items():
        pattern = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)
        text = pattern.sub(lambda _, part=part: part, text, count=1)  # type: ignore[misc]
    PAGE.write_text(text, encoding="utf-8")
