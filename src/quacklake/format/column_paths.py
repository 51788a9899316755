"""Columns and nested fields by path: ``a.b`` is the field ``b`` of the struct ``a``.

The value of a list is called ``element``, those of a map ``key`` and ``value``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from quacklake.errors import InputError, InvalidNameError, nearest
from quacklake.format.names import check_name, fold, quote
from quacklake.format.schema import Column, TableSchema

Path = tuple[str, ...]

_STEP = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".\s][^".]*?))\s*(\.|$)')


def parse_path(text: str) -> Path:
    """Return the names in ``a.b`` or ``"a"."b"``; quotes keep dots and blanks. Raises :class:`InvalidNameError`.

    >>> parse_path('a."b.c"')
    ('a', 'b.c')
    """
    names: list[str] = []
    position, more = 0, True
    while more:
        match = _STEP.match(text, position)
        if match is None:
            raise InvalidNameError(f"{text!r} is not a column name", hint='names are joined by dots: a.b or "a"."b"')
        names.append(check_name(match[2] or match[1].replace('""', '"'), "column"))
        position, more = match.end(), match[3] == "."
    return tuple(names)


def format_path(path: Path) -> str:
    """Return the text that :func:`parse_path` reads: every name in quotes."""
    return ".".join(quote(name) for name in path)


def child_named(columns: Sequence[Column], name: str) -> Column | None:
    """Return the column of that name among others, ignoring case, or ``None``."""
    return next((column for column in columns if fold(column.name) == fold(name)), None)


def find_column(schema: TableSchema, path: Path) -> Column:
    """Return the column or nested field of that path, ignoring case. Raises :class:`InputError` when there is none."""
    column, siblings = None, schema.columns
    for name in path:
        column = child_named(siblings, name)
        if column is None:
            raise InputError(
                f'Column "{".".join(path)}" does not exist', hint=nearest(name, (sibling.name for sibling in siblings))
            )
        siblings = column.children
    if column is None:
        raise InputError("the column path is empty")
    return column


def replace_column(schema: TableSchema, path: Path, change: Callable[[Column], Column | None]) -> TableSchema:
    """Return the schema in which ``change`` has replaced the column of that path, or removed it by giving ``None``."""
    target = find_column(schema, path).id

    def rebuild(columns: tuple[Column, ...], depth: int) -> Iterator[Column]:
        for column in columns:
            if column.id == target:
                changed = change(column)
                if changed is not None:
                    yield changed
            elif depth < len(path) - 1 and fold(column.name) == fold(path[depth]):
                yield replace(column, children=tuple(rebuild(column.children, depth + 1)))
            else:
                yield column

    return TableSchema(tuple(rebuild(schema.columns, 0)))
