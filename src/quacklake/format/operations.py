"""What a commit was asked to do, and how its token remembers it.

``changes_made`` tells which tables have rows inserted and deleted, not whether that was an UPDATE, a MERGE or a
restore, and it must not get new words. The token of a commit is a UUID of our own: one of version 8 has the operations
in its last bits, so that nothing more is written, read or moved for them.
"""

from __future__ import annotations

import enum
import uuid

_BITS = 16
_VERSION = 8
_VERSION_PLACE = 76


class Operation(enum.Flag):
    """Operations on rows. The values are stored: they never change."""

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
