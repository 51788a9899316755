"""Errors as people and programs see them: on standard error, without a traceback and without a password."""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import suppress

from quacklake.config import redact
from quacklake.errors import InternalError, QuacklakeError

__all__ = ["report"]


def report(error: Exception, *, json_wanted: bool, verbose: bool) -> None:
    """Tell what went wrong and what to do about it; with ``verbose`` also where."""
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    if verbose:
        sys.stderr.write(redact("".join(traceback.format_exception(error))))
    known = error if isinstance(error, QuacklakeError) else _unforeseen(error)
    message = redact(known.message)
    hint = None if known.hint is None else redact(known.hint)
    if json_wanted:
        sys.stderr.write(json.dumps({"code": known.code, "message": message, "hint": hint}, ensure_ascii=False) + "\n")
        return
    sys.stderr.write(f"error: {message}\n")
    if hint is not None:
        sys.stderr.write(f"  hint: {hint}\n")


def _unforeseen(error: Exception) -> QuacklakeError:
    first = str(error).strip().partition("\n")[0]
    what = type(error).__name__ + (f": {first}" if first else "")
    return InternalError(f"this should not have happened: {what}", hint="run it again with --verbose to see where")
