"""Translate Spark's errors about statements into Quacklake's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException, PySparkException

from quacklake.errors import NotFoundError, QuacklakeError, SqlError
from quacklake.sql.words import caret

_MISSING = re.compile(r"table or view (.+?) cannot be found", re.IGNORECASE)
_PLACE = re.compile(r"\(line (\d+), pos(?:ition)? (\d+)\)")
_WHERE = re.compile(r";? line \d+ pos \d+;?$")
_STATE = re.compile(r"\.? SQLSTATE: \w+(?: \(line \d+, pos \d+\))?$")
_DEFAULT = ["spark_catalog", "default"]
_FAMILY = (AnalysisException, ParseException)


@contextmanager
def translated(near: Callable[[list[str]], str | None], text: str | None = None) -> Iterator[None]:
    """Raise Spark's errors about a statement as ``SqlError`` or ``NotFoundError``.

    ``near`` returns a hint for a name that Spark does not know. ``text`` is the statement, if Spark's positions refer
    to the text that the user wrote.
    """
    try:
        yield
    except QuacklakeError:
        raise
    except PySparkException as error:
        if not isinstance(error, _FAMILY):
            raise
        raise _told(error, near, text) from error


def _told(error: PySparkException, near: Callable[[list[str]], str | None], text: str | None) -> QuacklakeError:
    said = str(error).strip()
    first = _WHERE.sub("", said.splitlines()[0].strip()).rstrip(";. ") if said else type(error).__name__
    first = _STATE.sub("", first)
    missing = _MISSING.search(first)
    if missing is not None:
        names = [part.strip("`") for part in re.findall(r"`[^`]*`|[^.`]+", missing[1])]
        names = names[2:] if names[:-1] == _DEFAULT else names  # Spark adds these to an unqualified name
        return NotFoundError(f'Table with name "{".".join(names)}" does not exist', hint=near(names))
    place = _PLACE.search(said) if isinstance(error, ParseException) else None
    if place is None or text is None:
        return SqlError(first)
    lines = text.splitlines(keepends=True)
    before = sum(len(line) for line in lines[: int(place[1]) - 1])
    head = first if "\n" in said and first else "syntax error"
    return SqlError(f"{head}\n\n{caret(text, min(before + int(place[2]), len(text)))}")
