"""Snapshots in words: which operation made one, and what it did to which table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from quacklake.format.changes import Change, ChangeKind
from quacklake.format.operations import Operation

_K = ChangeKind
_INSERTS = frozenset({_K.INSERTED_INTO_TABLE, _K.INLINED_INSERT})
_DELETES = frozenset({_K.DELETED_FROM_TABLE, _K.INLINED_DELETE})
_STATEMENTS = {
    _K.DROPPED_SCHEMA: "DROP SCHEMA",
    _K.DROPPED_TABLE: "DROP TABLE",
    _K.DROPPED_VIEW: "DROP VIEW",
    _K.DROPPED_SCALAR_MACRO: "DROP MACRO",
    _K.DROPPED_TABLE_MACRO: "DROP MACRO",
    _K.CREATED_SCHEMA: "CREATE SCHEMA",
    _K.CREATED_TABLE: "CREATE TABLE",
    _K.CREATED_VIEW: "CREATE VIEW",
    _K.CREATED_SCALAR_MACRO: "CREATE MACRO",
    _K.CREATED_TABLE_MACRO: "CREATE MACRO",
    _K.ALTERED_TABLE: "ALTER TABLE",
    _K.ALTERED_VIEW: "ALTER VIEW",
    _K.INLINE_FLUSH: "FLUSH",
    _K.MERGE_ADJACENT: "COMPACT",
    _K.REWRITE_DELETE: "COMPACT",
    _K.COMPACTED_TABLE: "COMPACT",
}
_PHRASES = {
    _K.DROPPED_SCHEMA: "dropped schema {}",
    _K.DROPPED_TABLE: "dropped table {}",
    _K.DROPPED_VIEW: "dropped view {}",
    _K.DROPPED_SCALAR_MACRO: "dropped macro {}",
    _K.DROPPED_TABLE_MACRO: "dropped macro {}",
    _K.CREATED_SCHEMA: "created schema {}",
    _K.CREATED_TABLE: "created table {}",
    _K.CREATED_VIEW: "created view {}",
    _K.CREATED_SCALAR_MACRO: "created macro {}",
    _K.CREATED_TABLE_MACRO: "created macro {}",
    _K.ALTERED_TABLE: "altered table {}",
    _K.ALTERED_VIEW: "altered view {}",
    _K.INLINE_FLUSH: "moved rows of {} from the catalog into files",
    _K.MERGE_ADJACENT: "merged files of {}",
    _K.REWRITE_DELETE: "rewrote files of {} without deleted rows",
    _K.COMPACTED_TABLE: "compacted files of {}",
}
#: What happened to rows that went and came, by the one operation that was asked.
_CHANGED = {
    Operation.UPDATE: "updated rows of {}",
    Operation.MERGE: "merged rows into {}",
    Operation.OVERWRITE: "replaced rows of {}",
    Operation.RESTORE: "restored rows of {}",
    Operation.ROLLBACK: "restored rows of {}",
}
_UNDONE = Operation.RESTORE | Operation.UNDROP | Operation.ROLLBACK | Operation.REPAIR


Names = Mapping[int, Sequence[tuple[int, str]]]
"""Every name that things have had, by id: since which snapshot, oldest first."""


@dataclass(frozen=True, slots=True)
class Naming:
    """Return the names that objects had when a snapshot was made. ``renamed`` is what :func:`renames` gives."""

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
        """Return the name before, of something that only got another one: the format calls that created."""
        return self.renamed.get((self.snapshot, self.name(change))) if change.kind.named else None


def renames(names: Names) -> dict[tuple[int, str], str]:
    """Return the old name of whatever got another one, by snapshot and new name."""
    return {
        (begin, name): before
        for found in names.values()
        for (_, before), (begin, name) in itertools.pairwise(found)
        if before != name
    }


def operation_of(changes: Sequence[Change], asked: Operation, naming: Naming) -> str:
    """Return what made a snapshot, as a statement names it; ``asked`` is what its commit remembers.

    Where it remembers nothing, as commits of other clients do, rows that went and came are ``UPDATE or MERGE``.
    """
    if asked & _UNDONE:
        return ", ".join((asked & _UNDONE).words)
    kinds = {change.kind for change in changes}
    statements = list(dict.fromkeys(_STATEMENTS[kind] for kind in ChangeKind if kind in kinds and kind in _STATEMENTS))
    if any(naming.old_name(change) for change in changes):
        statements = [statement.replace("CREATE", "ALTER") for statement in statements]
    rows = asked.words or _guessed(changes)
    if rows == ["INSERT"] and statements == ["CREATE TABLE"]:
        return "CREATE TABLE AS"
    return ", ".join([*statements, *rows])


def _guessed(changes: Iterable[Change]) -> list[str]:
    inserted = {change.id for change in changes if change.kind in _INSERTS}
    deleted = {change.id for change in changes if change.kind in _DELETES}
    guesses = {
        "INSERT": inserted - deleted,
        "DELETE": deleted - inserted,
        "UPDATE or MERGE": inserted & deleted,
    }
    return [word for word, tables in guesses.items() if tables]


def describe(changes: Sequence[Change], asked: Operation, naming: Naming) -> str:
    """Return what a snapshot did, one phrase for each object."""
    phrases = [_phrase(change, asked, naming) for change in changes if change.kind in _PHRASES]
    inserted = {change.id: change for change in changes if change.kind in _INSERTS}
    deleted = {change.id: change for change in changes if change.kind in _DELETES}
    for id_, change in {**deleted, **inserted}.items():
        phrases.append(_row_phrase(asked, id_ in inserted, id_ in deleted).format(naming.name(change)))
    return ", ".join(dict.fromkeys(phrases))


def _phrase(change: Change, asked: Operation, naming: Naming) -> str:
    old = naming.old_name(change)
    phrase = _PHRASES[change.kind].format(naming.name(change))
    if old is not None:
        return phrase.replace("created", "renamed", 1).replace(naming.name(change), f"{old} to {naming.name(change)}")
    return phrase.replace("created", "brought back", 1) if asked & (Operation.UNDROP | Operation.ROLLBACK) else phrase


def _row_phrase(asked: Operation, inserted: bool, deleted: bool) -> str:
    if inserted and deleted:
        return _CHANGED.get(asked, "changed rows of {}")
    if inserted:
        return "added files to {}" if asked == Operation.ADD_FILES else "inserted rows into {}"
    return "deleted rows from {}"
