"""Translate DuckDB's errors about statements into Quacklake's errors, about the text that the user wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from quacklake.config import redact_statement
from quacklake.core.sql.attached import PREFIX
from quacklake.core.sql.words import caret, width_of, without_literals
from quacklake.errors import (
    CancelledError,
    MemoryLimitError,
    NotPermittedError,
    QuacklakeError,
    SqlError,
    StorageError,
)

_STATEMENT = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.NotImplementedException,
    duckdb.PermissionException,
    duckdb.InvalidInputException,
    duckdb.TransactionException,
    duckdb.DependencyException,
)

UNDERSTANDING = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.SyntaxException)
"""DuckDB's errors about a statement that it does not understand. Nothing of the statement has run."""


def is_invalidated(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return True when DuckDB runs nothing on a connection before its transaction ends."""
    try:
        connection.execute("SELECT 1").fetchall()
    except duckdb.Error:
        return True
    return False


def engine_error(error: BaseException) -> duckdb.Error | None:
    """Return DuckDB's error behind another one, or None when DuckDB has raised none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, duckdb.Error):
        cause = cause.__cause__
    return cause


@contextmanager
def translated(roots: Sequence[str] = (), *, safe: bool = False) -> Iterator[None]:
    """Raise DuckDB's errors as Quacklake's. Errors about the statement keep their whole text, which shows the position.

    A file below one of ``roots``, where lakes keep their files, counts as damaged when it cannot be read. In a ``safe``
    session, an error about DuckDB's limits becomes one about the limits of the session.
    """
    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid) as error:
        if safe and isinstance(error, duckdb.PermissionException):
            raise NotPermittedError(str(error).strip().splitlines()[0]) from error
        if safe and isinstance(error, duckdb.OutOfMemoryException):
            raise _out_of_memory() from error
        if isinstance(error, duckdb.InvalidInputException) and _is_unreadable(error):
            raise _of_engine(error) or error from error
        if isinstance(error, _STATEMENT):
            raise SqlError(str(error).strip()) from error
        if isinstance(error, duckdb.IOException) and not any(root in str(error) for root in roots):
            text = str(error).strip()
            raise _outage(text) or StorageError(text) from error
        raise _of_engine(error) or error from error
    except pa.ArrowException as error:
        raise _ours(error) or error from error
    except RecursionError as error:
        raise SqlError("the statement is nested too deeply", hint="use fewer levels of subqueries") from error
    except RuntimeError as error:
        if "cast" not in str(error):
            raise
        # the bindings of DuckDB, about a text with half of a character
        raise SqlError(
            "a value of a parameter cannot be handed to DuckDB", hint="is it a text of whole characters?"
        ) from error
    except UnicodeDecodeError as error:
        from quacklake.core.engines.duckdb.connections import message_of

        raise SqlError(message_of(error)) from error
    except UnicodeEncodeError as error:
        raise SqlError("the statement holds a character that UTF-8 cannot encode") from error
    except OSError as error:
        if "INTERRUPT Error" in str(error):
            raise CancelledError("the statement was cancelled") from error
        if safe and "Out of Memory Error" in str(error):
            raise _out_of_memory() from error
        # not an outage: Arrow's message when DuckDB has no Arrow type for a column
        raise _outage(str(error)) or SqlError(str(error)) from error
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError) as error:
        ours = _ours(error)
        if ours is None:
            raise
        raise ours from error


# What knows these errors loads scans and the catalog, which a statement that succeeds may not need.


def _is_unreadable(error: duckdb.Error) -> bool:
    from quacklake.core.scan.plan import UNREADABLE

    return UNREADABLE in str(error)


def _of_engine(error: Exception) -> QuacklakeError | None:
    from quacklake.core.engines.duckdb.connections import translate

    return translate(error, "run the statement")


def _ours(error: Exception) -> QuacklakeError | None:
    from quacklake.core.operations.context import ours_for

    return ours_for(error)


def _outage(text: str) -> StorageError | None:
    from quacklake.core.storage.failures import outage_of

    return outage_of(text, "run the statement")


def _out_of_memory() -> MemoryLimitError:
    return MemoryLimitError("the statement needs more memory than this session may take")


_PLACE = re.compile(r"\n*\nLINE \d+: (?P<excerpt>.*)\n(?P<blank> *)(?P<carets>\^+)\s*\Z")
_NEAR = re.compile(r'at or near "(?P<word>[^"\n]+)"')
_LABEL = re.compile(r"LINE \d+: ")
_TOKEN = re.compile(r"\w+|\"(?:[^\"]|\"\")+\"|\S")
_NAMED = re.compile(rf'(?:"?temp"?\."?main"?\.)?"?\b(?P<own>(?:{PREFIX}\d+|_ql_\w+))"?')
_LISTED = re.compile(r"^(?P<head>Did you mean:?|Candidate [\w ]+:(?: :)?) *(?P<names>.*)$", re.MULTILINE)
_SOURCE = re.compile(r" when casting from source column (c\d+)\b")


def in_own_words(message: str, statement: str) -> str:
    """Return a message without Quacklake's own names, whose last lines show the position in ``statement``.

    The position is left out when the faulty text is not in the statement.

    >>> print(in_own_words('no "zz"\\n\\nLINE 1: DESCRIBE SELECT zz FROM qls_1\\n' + " " * 24 + "^", "SELECT zz"))
    no "zz"
    <BLANKLINE>
    LINE 1: SELECT zz
                   ^
    """
    place = _PLACE.search(message)
    body = message if place is None else message[: place.start()]
    body = _LISTED.sub(_without_own, body).rstrip()
    body = _NAMED.sub(lambda found: found[0] if found["own"] in statement else "(a part of the statement)", body)
    body = _SOURCE.sub(lambda found: found[0] if re.search(rf"\b{found[1]}\b", statement) else "", body)
    return body if place is None else body + _show_position(message, place, statement)


def _without_own(found: re.Match[str]) -> str:
    """Remove Quacklake's own names from a list of candidates, and the list itself when no others are left."""
    names = found["names"]
    if not _NAMED.search(names):
        return found[0]
    left = [name for name in re.findall(r'"[^"]*"', names) if not _NAMED.search(name)]
    return f"{found['head']} {', '.join(left)}" if left else ""


def _show_position(message: str, place: re.Match[str], statement: str) -> str:
    """Return the lines that show the position in the statement, or nothing."""
    text = message[place.start() :]
    excerpt = place["excerpt"]
    label = _LABEL.search(text)
    assert label is not None
    column = len(place["blank"]) - len(label[0])
    index = next((index for index in range(len(excerpt)) if width_of(excerpt[:index]) >= column), len(excerpt))
    part = excerpt.removeprefix("...").removesuffix("...")
    if part in statement:
        near = _NEAR.search(message)
        if near is None or excerpt.startswith(near["word"], index):
            return text
        # DuckDB takes the number of characters before the word for a number of bytes
        position = statement.find(near["word"], statement.find(part) + index)
        return text if position < 0 else f"\n\n{caret(statement, position)}"
    token = _TOKEN.match(excerpt, index)
    if token is None:
        return ""
    word = token[0]
    pattern = rf"(?<!\w){re.escape(word)}(?!\w)" if word[-1].isalnum() else re.escape(word)
    at = re.search(pattern, statement, re.IGNORECASE)
    if at is None or not re.search(r"\w", word):
        return ""
    return f"\n\n{caret(statement, at.start()).removesuffix('^')}{place['carets']}"


_MAX_SHOWN = 4_000
"""The most characters of a statement that are read for the log."""


class Shown:
    """A statement for the log: without its values, which ``whole`` has. It is made only when it is logged."""

    def __init__(self, sql: str) -> None:
        self._sql = sql

    def __str__(self) -> str:
        return without_literals(self._sql[:_MAX_SHOWN])

    @property
    def whole(self) -> str:
        """The statement as it was written, with secrets masked."""
        return redact_statement(self._sql)
