"""Snapshots: their times and tags, and their changes as they are written, described and remembered.

``changes_made`` must not get new words, and does not tell an UPDATE from a MERGE or a restore. The token of a commit is
a UUID of our own: one of version 8 has the operations in its last bits, so that nothing more is written for them.
"""

from __future__ import annotations

import datetime as dt
import enum
import itertools
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from quacklake.core.format.names import full_name, parts_of, quote
from quacklake.core.format.types import INFINITY, parse_temporal
from quacklake.errors import CatalogError, InputError, InvalidNameError, nearest


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
        return self.value.startswith("created_") and self is not ChangeKind.CREATED_SCHEMA


_WORDS = {kind.value: kind for kind in ChangeKind} | {"flushed_inlined": ChangeKind.INLINE_FLUSH}
_QUOTED = re.compile(r'"((?:[^"]|"")*+)"')
_ORDER = {kind: position for position, kind in enumerate(ChangeKind)}


@dataclass(frozen=True, slots=True)
class Change:
    """One change: a created schema has a ``schema``, other created objects that and a ``name``, the rest an ``id``."""

    kind: ChangeKind
    id: int | None = None
    schema: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        return render_changes((self,))


def render_changes(changes: Iterable[Change]) -> str:
    """Return the text of changes, each once, by kind and then id or name. Raise ``InputError`` where these lack."""

    def order(change: Change) -> tuple[int, int, str, str]:
        return _ORDER[change.kind], -1 if change.id is None else change.id, change.schema or "", change.name or ""

    return ",".join(_entry(change) for change in sorted(set(changes), key=order))


def _entry(change: Change) -> str:
    word, named = change.kind.value, change.kind.named
    if named or change.kind is ChangeKind.CREATED_SCHEMA:
        if change.schema is not None and (change.name is not None or not named):
            parts = [*parts_of(change.schema), *([str(change.name)] if named else ())]
            return f"{word}:{'.'.join(map(quote, parts))}"
    elif change.id is not None and change.id >= 0:
        return f"{word}:{change.id}"
    raise InputError(f"a {word} change lacks {'a name' if change.id is None else 'an id'}")


def parse_changes(text: str | None) -> tuple[Change, ...]:
    """Return the changes of a snapshot in the order of the text.

    Raise ``CatalogError`` for an unknown word or a malformed entry: skipping one could hide a conflict.
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
            raise _malformed_change_error(kind, rest)
        else:
            break
    return tuple(changes)


def _value(kind: ChangeKind, rest: str) -> tuple[Change, str]:
    """Return the change at the head of ``rest`` and what follows it."""
    if kind is ChangeKind.CREATED_SCHEMA or kind.named:
        parts: list[str] = []
        while not parts or rest.startswith("."):
            rest = rest[1:] if parts else rest
            name = _QUOTED.match(rest)
            if name is None:
                raise _malformed_change_error(kind, rest)
            parts.append(name[1].replace('""', '"'))
            rest = rest[name.end() :]
        if not kind.named:
            return Change(kind, schema=full_name(parts)), rest
        if len(parts) < 2:
            raise _malformed_change_error(kind, rest)
        return Change(kind, schema=full_name(parts[:-1]), name=parts[-1]), rest
    digits, comma, rest = rest.partition(",")
    if not (digits.isascii() and digits.isdigit()):
        raise _malformed_change_error(kind, digits)
    return Change(kind, id=int(digits)), comma + rest


def _malformed_change_error(kind: ChangeKind, rest: str) -> CatalogError:
    return CatalogError(f"the catalog records a malformed {kind.value} change at {rest[:40]!r}")


MAX_TAG = 128
"""The longest tag, in characters."""

# A letter first, so that no tag looks like the number or the time of a snapshot.
_TAG = re.compile(r"[^\W\d][\w.+/-]*")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot: when it was made and which ids come next. ``time`` is aware and in UTC."""

    id: int
    time: dt.datetime | None
    schema_version: int
    next_catalog_id: int
    next_file_id: int


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """The changes of a snapshot, and the words of its author about it."""

    id: int
    time: dt.datetime | None
    schema_version: int
    changes: tuple[Change, ...] = ()
    author: str | None = None
    message: str | None = None
    extra: str | None = None


@lru_cache(maxsize=64)
def format_time(time: dt.datetime) -> str:
    """Return the text of a snapshot's time in catalogs without a timestamp type; a naive time is UTC.

    >>> format_time(dt.datetime(2026, 11, 15, 3, 7, 52, 14000, tzinfo=dt.UTC))
    '2026-11-15 03:07:52.014+00'
    """
    time = time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time.astimezone(dt.UTC)
    text = time.strftime("%H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{time.date().isoformat()} {text}+00"


_USUAL_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\+00")
"""The form in which nearly all times are stored, which the standard library reads too."""


def parse_time(text: str) -> dt.datetime:
    """Return the aware UTC time of a catalog's text, UTC without a zone. Raise ``CatalogError`` for another text."""
    if _USUAL_TIME.fullmatch(text):
        with suppress(ValueError):
            return dt.datetime.fromisoformat(text)
    value = parse_temporal(text.strip())
    try:
        if value is None or abs(value) == INFINITY:
            raise ValueError
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=value // 1000)
    except (ValueError, OverflowError):
        raise CatalogError(f"{text!r} is not a snapshot time") from None


@dataclass(frozen=True, slots=True)
class SnapshotTag:
    """A name of a snapshot, and when it was given."""

    name: str
    snapshot_id: int
    created: dt.datetime | None = None


def is_tag(text: str) -> bool:
    """Return True when a text can be a tag: never for a number or a time.

    >>> is_tag("v1.0"), is_tag("2024-01-01"), is_tag("7"), is_tag("a b")
    (True, False, False, False)
    """
    return len(text) <= MAX_TAG and _TAG.fullmatch(text) is not None


def check_tag(name: object) -> str:
    """Return the name if a snapshot may be called so; raise :class:`InvalidNameError` if not."""
    if not isinstance(name, str):
        raise InvalidNameError(f"a tag must be text, not {type(name).__name__}")
    if not is_tag(name):
        raise InvalidNameError(
            f"a snapshot cannot have the tag {name[:MAX_TAG]!r}",
            hint=f"a tag starts with a letter; letters, digits and any of . _ - + / follow, {MAX_TAG} in all at most",
        )
    return name


_BITS = 16
_VERSION = 8
_VERSION_PLACE = 76


class Operation(enum.Flag):
    """Operations on rows. The values are stored: they never change.

    >>> (Operation.DELETE | Operation.ADD_FILES).words
    ['DELETE', 'ADD FILES']
    """

    NONE = 0
    INSERT = 1
    DELETE = 2
    UPDATE = 4
    MERGE = 8
    OVERWRITE = 16
    ADD_FILES = 32
    RESTORE = 64
    UNDROP = 128
    ROLLBACK = 256
    REPAIR = 512
    REVERT = 1024

    @property
    def words(self) -> list[str]:
        """The operations as a user would say them."""
        return [str(each.name).replace("_", " ") for each in self]


_KNOWN = sum(each.value for each in Operation)


def token_with(token: uuid.UUID, operations: Operation) -> str:
    """Return the token of a commit that remembers what was asked.

    >>> token_with(uuid.UUID("019a8c5e-1a2b-7c3d-8e4f-0123456789ab"), Operation.MERGE)
    '019a8c5e-1a2b-8c3d-8e4f-012345670008'
    """
    number = token.int & ~((1 << _BITS) - 1) & ~(0xF << _VERSION_PLACE)
    return str(uuid.UUID(int=number | _VERSION << _VERSION_PLACE | operations.value))


def operations_of(token: str) -> Operation:
    """Return what a commit was asked, by its token; nothing for one that does not say.

    >>> operations_of("019a8c5e-1a2b-8c3d-8e4f-012345670009").words
    ['INSERT', 'MERGE']
    """
    try:
        found = uuid.UUID(token)
    except ValueError:
        return Operation.NONE
    if found.int >> _VERSION_PLACE & 0xF != _VERSION:
        return Operation.NONE
    return Operation(found.int & (1 << _BITS) - 1 & _KNOWN)


_K = ChangeKind
_INSERTS = frozenset({_K.INSERTED_INTO_TABLE, _K.INLINED_INSERT})
_DELETES = frozenset({_K.DELETED_FROM_TABLE, _K.INLINED_DELETE})
#: Each change as a statement, and in words.
_TOLD = {
    kind: (f"{verb} {noun.upper()}", f"{did} {noun} {{}}")
    for verb, did in (("DROP", "dropped"), ("CREATE", "created"), ("ALTER", "altered"))
    for kind in ChangeKind
    for noun in ["macro" if kind.value.endswith("_macro") else kind.value.partition("_")[2]]
    if kind.value.startswith(did)
} | {
    _K.INLINE_FLUSH: ("FLUSH", "moved rows of {} from the catalog into files"),
    _K.MERGE_ADJACENT: ("COMPACT", "merged files of {}"),
    _K.REWRITE_DELETE: ("COMPACT", "rewrote files of {} without deleted rows"),
    _K.COMPACTED_TABLE: ("COMPACT", "compacted files of {}"),
}
#: The words for rows that were deleted and inserted, by the one operation that was asked for.
_CHANGED = {
    Operation.UPDATE: "updated rows of {}",
    Operation.MERGE: "merged rows into {}",
    Operation.OVERWRITE: "replaced rows of {}",
    Operation.RESTORE: "restored rows of {}",
    Operation.ROLLBACK: "restored rows of {}",
    Operation.REVERT: "reverted rows of {}",
}
_UNDONE = Operation.RESTORE | Operation.UNDROP | Operation.ROLLBACK | Operation.REPAIR | Operation.REVERT


Names = Mapping[int, Sequence[tuple[int, str]]]
"""Every name that things have had, by id: since which snapshot, oldest first."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The names that objects had when a snapshot was made. ``renamed`` is what :func:`renames` gives."""

    snapshot: int
    names: Names
    renamed: Mapping[tuple[int, str], str]

    def name(self, change: Change) -> str:
        """Return the name that a changed object had then, or its number where the name is not known any more."""
        if change.id is None:
            return str(change.schema) if change.name is None else f"{change.schema}.{change.name}"
        known = [name for begin, name in self.names.get(change.id, ()) if begin <= self.snapshot]
        return known[-1] if known else f"number {change.id}"

    def old_name(self, change: Change) -> str | None:
        """Return the previous name of an object that was only renamed, which the format records as created."""
        return self.renamed.get((self.snapshot, self.name(change))) if change.kind.named else None


def renames(names: Names) -> dict[tuple[int, str], str]:
    """Return the old names of renamed objects, by snapshot and new name."""
    return {
        (begin, name): before
        for found in names.values()
        for (_, before), (begin, name) in itertools.pairwise(found)
        if before != name
    }


def operation_of(changes: Sequence[Change], asked: Operation, naming: Naming) -> str:
    """Return what made a snapshot, as a statement names it; ``asked`` is what its commit remembers.

    Of commits that remember nothing, as those of other clients, rows that went and came are ``UPDATE or MERGE``.
    """
    if asked & _UNDONE:
        return ", ".join((asked & _UNDONE).words)
    kinds = {change.kind for change in changes}
    statements = list(dict.fromkeys(_TOLD[kind][0] for kind in ChangeKind if kind in kinds and kind in _TOLD))
    if any(naming.old_name(change) for change in changes):
        statements = [statement.replace("CREATE", "ALTER") for statement in statements]
    rows = asked.words
    if not rows:
        inserted = {change.id for change in changes if change.kind in _INSERTS}
        deleted = {change.id for change in changes if change.kind in _DELETES}
        guesses = {"INSERT": inserted - deleted, "DELETE": deleted - inserted, "UPDATE or MERGE": inserted & deleted}
        rows = [word for word, tables in guesses.items() if tables]
    if rows == ["INSERT"] and statements == ["CREATE TABLE"]:
        return "CREATE TABLE AS"
    return ", ".join([*statements, *rows])


def describe(changes: Sequence[Change], asked: Operation, naming: Naming) -> str:
    """Return what a snapshot did, one phrase for each object."""
    phrases = []
    for change in changes:
        if change.kind in _TOLD:
            name, old = naming.name(change), naming.old_name(change)
            phrase = _TOLD[change.kind][1].format(name)
            if old is not None:
                phrase = phrase.replace("created", "renamed", 1).replace(name, f"{old} to {name}")
            elif asked & (Operation.UNDROP | Operation.ROLLBACK):
                phrase = phrase.replace("created", "brought back", 1)
            phrases.append(phrase)
    inserted = {change.id: change for change in changes if change.kind in _INSERTS}
    deleted = {change.id: change for change in changes if change.kind in _DELETES}
    for id_, change in {**deleted, **inserted}.items():
        if id_ in inserted and id_ in deleted:
            phrase = _CHANGED.get(asked, "changed rows of {}")
        elif id_ in inserted:
            phrase = "added files to {}" if asked == Operation.ADD_FILES else "inserted rows into {}"
        else:
            phrase = "deleted rows from {}"
        phrases.append(phrase.format(naming.name(change)))
    return ", ".join(dict.fromkeys(phrases))
