"""Names of schemas, tables and columns: what is allowed, how they compare, how SQL spells them."""

from __future__ import annotations

import string

from quacklake.errors import InvalidNameError

__all__ = ["MAX_NAME", "check_name", "fold", "literal", "quote"]

MAX_NAME = 1024
"""The longest name we make, in characters. The format has no limit, databases and directories do."""

_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def fold(name: str) -> str:
    """The form under which names are compared: only ASCII letters lose their case, as in DuckDB.

    >>> fold("Größe"), fold("ÄB")
    ('größe', 'Äb')
    """
    return name.translate(_ASCII_LOWER)


def quote(name: str) -> str:
    """An SQL identifier.

    >>> quote('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def check_name(name: str, what: str = "name") -> str:
    """The name, when a ``what`` may be called so; :class:`InvalidNameError` when not."""
    if not isinstance(name, str):
        raise InvalidNameError(f"the {what} name must be text, not {type(name).__name__}")
    if not name:
        raise InvalidNameError(f"the {what} name is empty")
    if len(name) > MAX_NAME:
        raise InvalidNameError(f"the {what} name is longer than {MAX_NAME} characters")
    if "\0" in name:
        raise InvalidNameError(f"the {what} name contains a NUL character")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidNameError(f"the {what} name is not valid Unicode text") from None
    return name


def literal(text: str) -> str:
    """An SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
