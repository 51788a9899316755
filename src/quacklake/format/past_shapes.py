"""The fields inside a nested column of a file that tells their names only: the history of the table knows their ids.

A name may have had several ids, when a field was dropped and came again. Which one a file means follows from the
snapshot it began with, as long as that is sure; otherwise nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from quacklake.format.schema import Column, TableSchema

__all__ = ["Past", "with_ids"]

#: The columns of a table as they were, each from a snapshot on, in order; local changes are dated in the future.
Past = tuple[tuple[int, TableSchema], ...]


def with_ids(names: Mapping[str, Column], wanted: Column, past: Past, begin: int | None) -> Column | None:
    """A column of the table as it is in a file, given the columns of the file by name, whose ids mean nothing.

    ``begin`` is the snapshot whose columns the file has, None for one that may have those of any. Scalars that the
    table has too get its types. None when the file has not got the column. Raises ``LookupError`` when the history
    does not tell, or tells more than one story.
    """
    then, ever = _at(past, begin), [schema for _, schema in past]
    others = {column.name for schema in then for column in schema.columns if column.id != wanted.id}
    called = {version.name for version in _versions(ever, wanted.id)}
    if not (called & names.keys()) - others:
        return None  # what has its name there, if anything, is another column
    for schemas in (then, ever):
        found = {_identified(names.get(version.name), version, wanted) for version in _versions(schemas, wanted.id)}
        fitting = [column for column in found if column is not None]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            break
    raise LookupError(wanted.name)


def _at(past: Past, begin: int | None) -> list[TableSchema]:
    """The columns that a file of a snapshot may have: a transaction may write before and after it changes them."""
    before = [schema for since, schema in past if begin is not None and since < begin]
    return [*before[-1:], *(schema for since, schema in past if since == begin)]


def _versions(schemas: Iterable[TableSchema], id_: int) -> list[Column]:
    return [column for schema in schemas for column in schema.columns if column.id == id_]


def _identified(stored: Column | None, version: Column, wanted: Column | None) -> Column | None:
    """The column of a file with the ids of a column of the past; None when they are not the same by their names."""
    if stored is None or stored.nested != version.nested:
        return None
    if not version.nested:
        known = wanted is not None and not wanted.nested
        return replace(wanted if known and wanted else Column(0, "", stored.type), id=version.id, name=stored.name)
    if stored.type != version.type:
        return None
    children = tuple(_children(stored, version, wanted))
    if None in children or len(children) != len(version.children):
        return None
    return Column(version.id, stored.name, stored.type, children=tuple(child for child in children if child))


def _children(stored: Column, version: Column, wanted: Column | None) -> Iterator[Column | None]:
    known = {} if wanted is None else {child.id: child for child in wanted.children}
    names = {child.name: child for child in version.children}
    for place, child in enumerate(stored.children):
        # what is inside lists and maps has its name from its place
        one = names.get(child.name) if version.type == "struct" else version.children[place]
        yield None if one is None else _identified(child, one, known.get(one.id))
