"""One storage call: a fault point before and after, a count, a time, and another try when that may help."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from quacklake import faults, telemetry
from quacklake.errors import ConfigError, StorageError
from quacklake.storage.failures import explain

T = TypeVar("T")

_LONGEST_WAIT = 10.0


def _nowhere_else() -> None:
    """Return no error."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often and how long to retry; ``secrets`` are values to keep out of messages.

    Calls are counted for the tenant with this ``label``, too.
    """

    max_retries: int = 5
    retry_wait: float = 0.05
    secrets: tuple[str, ...] = field(default=(), repr=False)
    place: Callable[[], StorageError | None] = field(default=_nowhere_else, repr=False)
    """Gives the error to raise where a file is missing because all are."""
    label: str | None = None

    def __post_init__(self) -> None:
        if self.max_retries < 0 or self.retry_wait < 0:
            raise ConfigError(f"max_retries={self.max_retries} and retry_wait={self.retry_wait} must not be negative")

    def run(self, name: str, what: str, action: Callable[[], T]) -> T:
        """Return what ``action`` returns; ``name`` is the call, ``what`` the file it is about.

        Transient failures are tried again up to ``max_retries`` times, each after a random part of a wait that
        doubles, so ``action`` must be safe to repeat. Then, and at once for lasting ones, raises what
        ``failures.explain`` makes of the last failure.
        """
        telemetry.count(f"storage.{name}", tenant=self.label)
        attempt = 0
        with telemetry.timed(f"storage.{name}", what, tenant=self.label):
            while True:
                try:
                    faults.reach(f"storage.{name}.before")
                    result = action()
                    faults.reach(f"storage.{name}.after")
                    return result
                except Exception as error:
                    failure = explain(error, what, secrets=self.secrets)
                    if failure is None:
                        raise
                    if isinstance(error, FileNotFoundError):
                        failure = self.place() or failure
                    if not failure.transient or attempt >= self.max_retries:
                        # The original may quote credentials; its cleaned text is in the message.
                        raise failure from None
                telemetry.count("storage.retries", tenant=self.label)
                time.sleep(random.uniform(0, min(_LONGEST_WAIT, self.retry_wait * 2**attempt)))
                attempt += 1

    @contextmanager
    def once(self, name: str, what: str) -> Iterator[None]:
        """Do the same around a block that cannot be repeated: one try, and its I/O errors explained.

        A ``FileNotFoundError`` passes as it is: it is about something else that the block wanted.
        """
        telemetry.count(f"storage.{name}", tenant=self.label)
        with telemetry.timed(f"storage.{name}", what, tenant=self.label):
            try:
                faults.reach(f"storage.{name}.before")
                yield
                faults.reach(f"storage.{name}.after")
            except FileNotFoundError:
                raise
            except OSError as error:
                raise explain(error, what, secrets=self.secrets) or error from None
