"""Results of checks, and checks with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from quacklake.cli.failures import as_typed
from quacklake.config import redact
from quacklake.errors import QuacklakeError

State = Literal["ok", "absent", "warning", "failed"]

SECONDS = 15.0
"""The most seconds that one check may take."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: its subject, its state, and advice."""

    area: str
    what: str
    state: State
    detail: str = ""
    fix: str | None = None

    def row(self) -> dict[str, str | None]:
        """Return the result without secrets."""
        return {name: value if value is None else redact(value) for name, value in asdict(self).items()}


def failed(area: str, what: str, error: QuacklakeError, fix: str) -> CheckResult:
    """Return an error as a result. ``fix`` is the advice when the error has none."""
    return CheckResult(area, what, "failed", error.message, fix if error.hint is None else as_typed(error.hint))


def bounded(
    area: str,
    what: str,
    check: Callable[[], list[CheckResult]],
    *,
    fix: str = "try again",
    seconds: float | None = None,
) -> list[CheckResult]:
    """Return the results of a check. A check that takes too long is a result too."""
    found: list[list[CheckResult]] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            found.append(check())
        except BaseException as error:
            failures.append(error)

    limit = SECONDS if seconds is None else seconds
    thread = threading.Thread(target=run, name="checkup", daemon=True)
    thread.start()
    thread.join(limit)
    if found:
        return found[0]
    if failures and isinstance(failures[0], QuacklakeError):
        return [failed(area, what, failures[0], fix)]
    if failures:
        return [CheckResult(area, what, "failed", f"{type(failures[0]).__name__}: {failures[0]}", fix)]
    return [CheckResult(area, what, "failed", f"no answer after {limit:g} s", fix)]
