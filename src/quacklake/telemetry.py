"""Counters, timings and logging for the whole process.

Counting costs well under a microsecond and is safe from any thread. Quacklake logs under the logger ``quacklake`` and
stays silent until the program sets up logging. At the level INFO it logs statements of SQL and the larger steps with
their times, at DEBUG also what it asks databases and stores.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from threading import Lock
from time import perf_counter
from types import MappingProxyType
from typing import Literal, TextIO

from quacklake.config import redact
from quacklake.errors import ConfigError, InternalError, QuacklakeError

LOGGER_NAME = "quacklake"
_OTHERS = ("uvicorn",)
"""Loggers of libraries whose messages are those of a program, too."""
OTHER = "~other"
"""The label of all tenants without their own label; no tenant can have this name."""
ROWS_TAKEN = "input.rows"
"""The counter of stream rows that an engine has consumed; it shows the progress of a long write."""

_OFTEN = frozenset({"catalog", "engine", "scan", "storage"})
"""Areas with so many steps that only those in ``_LARGER`` are logged at INFO."""
_LARGER = frozenset({"catalog.connect", "engine.scan", "engine.write"})
_MAX_LENGTH = 400
"""The most characters of a statement that are logged."""

Span = Callable[[str], AbstractContextManager[object]]
_span: Span | None = None
_lock = Lock()
_counters: dict[str, int] = {}
_gauges: dict[str, int] = {}
_timings: dict[str, Timing] = {}
_tenants: dict[str, tuple[dict[str, int], dict[str, Timing]]] = {}
_labels: set[str] = set()


@dataclass(frozen=True, slots=True)
class Timing:
    """The number of runs, and their seconds: in total, at least and at most."""

    count: int
    seconds: float
    shortest: float
    longest: float


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """The counts and times of one tenant, or of all tenants without their own label."""

    counters: Mapping[str, int]
    timings: Mapping[str, Timing]


@dataclass(frozen=True, slots=True)
class TelemetrySnapshot:
    """Everything counted and timed so far, what was measured last, and by label what was done for ``tenants``."""

    counters: Mapping[str, int]
    timings: Mapping[str, Timing]
    gauges: Mapping[str, int]
    tenants: Mapping[str, TenantFigures]


def tenant_label(name: str, most: int) -> str | None:
    """Return the label under which a tenant is counted: its name, or ``OTHER`` when ``most`` others have labels.

    None when ``most`` is 0. A label stays for as long as the process lives, so that there are never more.
    """
    if most <= 0:
        return None
    with _lock:
        if name in _labels or len(_labels) < most:
            _labels.add(name)
            return name
    return OTHER


def count(name: str, n: int = 1, *, tenant: str | None = None) -> None:
    """Add ``n`` to the counter ``name``, and to that of the tenant with this label.

    >>> count("example.rows", 3)
    >>> snapshot().counters["example.rows"]
    3
    """
    with _lock:
        _counters[name] = _counters.get(name, 0) + n
        if tenant is not None:
            own = _tenants.setdefault(tenant, ({}, {}))[0]
            own[name] = own.get(name, 0) + n


def gauge(name: str, value: int) -> None:
    """Record the current value of something under ``name``."""
    with _lock:
        _gauges[name] = value


def trace(span: Span | None) -> None:
    """Let every timed block also be a span, which ``span`` opens by its name; None ends that.

    A span never has the detail of a block, which may hold what users have written.
    """
    global _span
    _span = span


def is_traced() -> bool:
    """Return whether timed blocks are spans."""
    return _span is not None


@contextmanager
def timed(name: str, detail: object = None, *, tenant: str | None = None) -> Iterator[None]:
    """Time the block under ``name``, whether it succeeds or raises, and log it with what it is about.

    >>> with timed("example.read"):
    ...     pass
    >>> snapshot().timings["example.read"].count
    1
    """
    start, span = perf_counter(), _span
    try:
        if span is None:
            yield
        else:
            with span(name):
                yield
    finally:
        seconds = perf_counter() - start
        with _lock:
            _add(_timings, name, seconds)
            if tenant is not None:
                _add(_tenants.setdefault(tenant, ({}, {}))[1], name, seconds)
        log_step(name, seconds, detail)


def _add(timings: dict[str, Timing], name: str, seconds: float) -> None:
    old = timings.get(name)
    timings[name] = (
        Timing(1, seconds, seconds, seconds)
        if old is None
        else Timing(old.count + 1, old.seconds + seconds, min(old.shortest, seconds), max(old.longest, seconds))
    )


@lru_cache(maxsize=1024)
def _place(name: str) -> tuple[logging.Logger, int, str]:
    """Return the logger of a step, its level, and the name of the step there."""
    area, _, step = name.partition(".")
    level = logging.DEBUG if area in _OFTEN and name not in _LARGER else logging.INFO
    return logging.getLogger(f"{LOGGER_NAME}.{area}"), level, step


def log_step(name: str, seconds: float, detail: object = None) -> None:
    """Log a step under the logger of the first part of its name; what it is about is shown on one line, masked.

    A detail with an attribute ``whole`` has more to tell, which is for those who look for errors.
    """
    logger, level, step = _place(name)
    if not logger.isEnabledFor(level):
        return
    logger.log(level, "%s", " ".join(part for part in (step, f"{seconds * 1000:.1f} ms", _line(detail)) if part))
    if logger.isEnabledFor(logging.DEBUG) and (whole := getattr(detail, "whole", None)) is not None:
        logger.debug("%s", " ".join(part for part in (step, _line(whole)) if part))


def _line(detail: object) -> str:
    words = " ".join(redact(str(detail)).split()) if detail is not None else ""
    return f"{words[:_MAX_LENGTH]}…" if len(words) > _MAX_LENGTH else words


def snapshot() -> TelemetrySnapshot:
    """Return all counters, timings and gauges as they are now."""
    with _lock:
        figures = {
            label: TenantFigures(MappingProxyType(dict(counters)), MappingProxyType(dict(timings)))
            for label, (counters, timings) in _tenants.items()
        }
        return TelemetrySnapshot(
            MappingProxyType(dict(_counters)),
            MappingProxyType(dict(_timings)),
            MappingProxyType(dict(_gauges)),
            MappingProxyType(figures),
        )


def reset() -> None:
    """Forget all counters, timings and gauges; tenants keep their labels."""
    with _lock:
        _tenants.clear()
        _gauges.clear()
        _counters.clear()
        _timings.clear()


def configure_logging(level: str = "info", format: Literal["text", "json"] | str = "text") -> None:
    """Log to standard error from ``level`` up, as text or as one JSON object a line, with secrets masked.

    For programs such as the command line; a library user sets up :mod:`logging` as usual instead. Calling it again
    replaces what the last call set up. Raise :class:`ConfigError` on an unknown level or format.
    """
    formatter = _FORMATTERS.get(format)
    number = logging.getLevelNamesMapping().get(level.upper())
    if formatter is None:
        raise ConfigError(f'unknown log format "{format}"', hint=f"use one of: {', '.join(_FORMATTERS)}")
    if number is None:
        raise ConfigError(f'unknown log level "{level}"', hint="use one of: debug, info, warning, error")
    for name in (LOGGER_NAME, *_OTHERS):
        logger = logging.getLogger(name)
        for handler in [each for each in logger.handlers if isinstance(each, _StandardErrorHandler)]:
            logger.removeHandler(handler)
        handler = _StandardErrorHandler()
        handler.setFormatter(formatter)
        logger.addHandler(handler)
        if name == LOGGER_NAME:
            logger.setLevel(number)
            logger.propagate = False


def error_facts(error: BaseException, **context: object) -> dict[str, object]:
    """Return what a line of a JSON log has of an error, as ``extra`` of a call that logs it: code, hint and context.

    >>> error_facts(ConfigError("no lake was given", hint="pass --lake"), pipeline="orders")
    {'code': 'config', 'hint': 'pass --lake', 'pipeline': 'orders'}
    """
    known = error if isinstance(error, QuacklakeError) else None
    facts = {"code": InternalError.code if known is None else known.code, "hint": None if known is None else known.hint}
    return {name: value for name, value in {**facts, **context}.items() if value is not None}


def format_json(record: logging.LogRecord) -> str:
    """Return a record as a line of a JSON log, with secrets masked."""
    return _FORMATTERS["json"].format(record)


class _StandardErrorHandler(logging.StreamHandler):  # type: ignore[type-arg]  # not generic at run time in 3.11
    """Writes to what standard error is then, which a program may have replaced since; only ours is replaced later."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None: ...


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        error = None if record.exc_info is None else record.exc_info[1]
        facts = {} if error is None else error_facts(error)
        for key, value in {**facts, **vars(record)}.items():
            if key not in _STANDARD_FIELDS and key not in entry:
                # The key takes part, so that extra={"password": …} is masked too.
                entry[key] = value if isinstance(value, bool | int | float) else _redacted_extra(key, str(value))
        if record.exc_info:
            entry["exception"] = redact(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


def _redacted_extra(key: str, value: str) -> str:
    prefix = f"{key}="
    masked = redact(f"{prefix}'{value}'")
    return redact(value) if masked.startswith(f"{prefix}'") else masked.removeprefix(prefix)


_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FORMATTERS: Mapping[str, logging.Formatter] = MappingProxyType(
    {"text": _TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"), "json": _JsonFormatter()}
)

logging.getLogger(LOGGER_NAME).addHandler(logging.NullHandler())
