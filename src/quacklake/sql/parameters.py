"""Number the parameters of a statement in the order of its text.

DuckDB counts ``?`` in the order of the text that it gets. Statements are split and reassembled before that, so the
numbers are written into the text first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quacklake.errors import SqlError
from quacklake.format.names import fold
from quacklake.sql.words import Cursor, Word, words_of


def numbered(text: str) -> str:
    """Return the text with ``$n`` in place of every ``?``. Raises ``SqlError`` for a mix of names and numbers.

    The text of a PREPARE stays unchanged: it is numbered when it is executed.

    >>> numbered("UPDATE t SET a = ?, b = ? WHERE id = ?")
    'UPDATE t SET a = $1, b = $2 WHERE id = $3'
    """
    if "?" not in text and "$" not in text:
        return text
    words = words_of(text)
    if words and words[0].upper == "PREPARE":
        return text
    parts: list[str] = []
    highest = done = 0
    named = False
    for word in words:
        if word.kind != "parameter":
            continue
        name = word.text[1:]
        if name and not name.isdigit():
            named = True
            continue
        number = int(name) if name else highest + 1
        highest = max(highest, number)
        parts += [text[done : word.start], f"${number}"]
        done = word.end
    if named and highest:
        raise SqlError("Not implemented Error: Mixing named and positional parameters is not supported yet")
    return "".join([*parts, text[done:]])


def supplied(cursor: Cursor, params: Any) -> dict[str, Any] | None:
    """Return the values of the parameters of a numbered statement, by name or number; None when it has none.

    Raises ``SqlError`` when there are too many or too few values.
    """
    if cursor.words and cursor.words[0].upper == "PREPARE":
        return None
    names = {fold(word.text[1:]) for word in cursor.words if word.kind == "parameter"}
    if isinstance(params, Mapping):
        given = {fold(str(name)): value for name, value in params.items()}
    else:
        given = {str(number): value for number, value in enumerate(params or (), 1)}
    lacking, beside = _listed(names - given.keys()), _listed(given.keys() - names)
    if lacking:
        raise SqlError(
            "Invalid Input Error: Values were not provided for the following prepared statement parameters: " + lacking
        )
    if beside:
        raise SqlError(
            "Invalid Input Error: Parameter argument/count mismatch, identifiers of the excess parameters: " + beside
        )
    return given or None


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names, key=lambda name: (len(name), name)))


def refuse_parameters(words: list[Word]) -> None:
    """Raise ``SqlError`` for a parameter in RETURNING, where DuckDB takes none."""
    if any(word.kind == "parameter" for word in words):
        raise SqlError(
            "Binder Error: Unexpected prepared parameter. This type of statement can't be prepared!",
            hint="RETURNING takes no parameters",
        )
