"""The ``changes_made`` grammar: what a snapshot changed, as text that every DuckLake client reads."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from quacklake.errors import CatalogError, InputError, nearest
from quacklake.format.names import full_name, parts_of, quote


class ChangeKind(enum.Enum):
    """The words of the grammar, in the order in which they are written. Clients refuse any other word."""

    DROPPED_SCHEMA = "dropped_schema"
    DROPPED_TABLE = "dropped_table"
    DROPPED_VIEW = "dropped_view"
    CREATED_SCHEMA = "created_schema"
    CREATED_TABLE = "created_table"
    CREATED_VIEW = "created_view"
    CREATED_SCALAR_MACRO = "created_scalar_macro"
    CREATED_TABLE_MACRO = "created_table_macro"
    DROPPED_SCALAR_MACRO = "dropped_scalar_macro"
    DROPPED_TABLE_MACRO = "dropped_table_macro"
    INSERTED_INTO_TABLE = "inserted_into_table"
    DELETED_FROM_TABLE = "deleted_from_table"
    ALTERED_TABLE = "altered_table"
    ALTERED_VIEW = "altered_view"
    INLINED_INSERT = "inlined_insert"
    INLINED_DELETE = "inlined_delete"
    INLINE_FLUSH = "inline_flush"
    MERGE_ADJACENT = "merge_adjacent"
    REWRITE_DELETE = "rewrite_delete"
    COMPACTED_TABLE = "compacted_table"
    """Read only: older clients wrote it for what is now ``merge_adjacent`` or ``rewrite_delete``."""

    @property
    def named(self) -> bool:
        """True when the change names an object in a schema instead of giving an id."""
        return self in _NAMED


_NAMED = frozenset(
    {
        ChangeKind.CREATED_TABLE,
        ChangeKind.CREATED_VIEW,
        ChangeKind.CREATED_SCALAR_MACRO,
        ChangeKind.CREATED_TABLE_MACRO,
    }
)
_WORDS = {kind.value: kind for kind in ChangeKind} | {"flushed_inlined": ChangeKind.INLINE_FLUSH}
_ORDER = {kind: position for position, kind in enumerate(ChangeKind)}


@dataclass(frozen=True, slots=True)
class Change:
    """One change: a created schema has a ``schema``, other created objects that and a ``name``, the rest an ``id``.

    ``str()`` gives its text.
    """

    kind: ChangeKind
    id: int | None = None
    schema: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        return render((self,))


def render(changes: Iterable[Change]) -> str:
    """Return the text of a snapshot's changes: each once, ordered by kind and then by id or name.

    Raises :class:`InputError` for a change without what its kind needs.
    """
    return ",".join(_entry(change) for change in sorted(set(changes), key=_sort_key))


def _sort_key(change: Change) -> tuple[int, int, str, str]:
    return _ORDER[change.kind], -1 if change.id is None else change.id, change.schema or "", change.name or ""


def _entry(change: Change) -> str:
    word = change.kind.value
    if change.kind is ChangeKind.CREATED_SCHEMA:
        if change.schema is not None:
            return f"{word}:{_schema(change.schema)}"
    elif change.kind.named:
        if change.schema is not None and change.name is not None:
            return f"{word}:{_schema(change.schema)}.{quote(change.name)}"
    elif change.id is not None and change.id >= 0:
        return f"{word}:{change.id}"
    raise InputError(f"a {word} change lacks {'a name' if change.id is None else 'an id'}")


def _schema(name: str) -> str:
    return ".".join(quote(part) for part in parts_of(name))


def parse(text: str | None) -> tuple[Change, ...]:
    """Return the changes of a snapshot in the order of the text; no text means none.

    Raises :class:`CatalogError` for an unknown word or a malformed entry: skipping one could hide a conflict.
    """
    changes: list[Change] = []
    rest = text or ""
    while rest:
        word, colon, rest = rest.partition(":")
        kind = _WORDS.get(word.lower())
        if kind is None or not colon:
            raise CatalogError(
                f'the catalog records a change of the unknown kind "{word}"',
                hint=nearest(word.lower(), _WORDS) or "it may have been written by a newer DuckLake client",
            )
        change, rest = _value(kind, rest)
        changes.append(change)
        if rest.startswith(",") and len(rest) > 1:
            rest = rest[1:]
        elif rest not in ("", ","):
            raise _malformed(kind, rest)
        else:
            break
    return tuple(changes)


def _value(kind: ChangeKind, rest: str) -> tuple[Change, str]:
    """Return the change at the head of ``rest`` and what follows it."""
    if kind is ChangeKind.CREATED_SCHEMA or kind.named:
        part, rest = _quoted(kind, rest)
        parts = [part]
        while rest.startswith("."):
            part, rest = _quoted(kind, rest[1:])
            parts.append(part)
        if not kind.named:
            return Change(kind, schema=full_name(parts)), rest
        if len(parts) < 2:
            raise _malformed(kind, rest)
        return Change(kind, schema=full_name(parts[:-1]), name=parts[-1]), rest
    digits, comma, rest = rest.partition(",")
    if not (digits.isascii() and digits.isdigit()):
        raise _malformed(kind, digits)
    return Change(kind, id=int(digits)), comma + rest


def _quoted(kind: ChangeKind, rest: str) -> tuple[str, str]:
    """Return the quoted name at the head of ``rest``, unescaped, and what follows it."""
    if not rest.startswith('"'):
        raise _malformed(kind, rest)
    start = end = 1
    while True:
        end = rest.find('"', end)
        if end < 0:
            raise _malformed(kind, rest)
        if rest[end + 1 : end + 2] != '"':
            return rest[start:end].replace('""', '"'), rest[end + 1 :]
        end += 2


def _malformed(kind: ChangeKind, rest: str) -> CatalogError:
    return CatalogError(f"the catalog records a malformed {kind.value} change at {rest[:40]!r}")
