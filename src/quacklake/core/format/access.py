"""Principals, roles, privileges and policies, as data, and the rules for their names."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from enum import StrEnum

from quacklake.errors import InvalidNameError


class Privilege(StrEnum):
    """A kind of access that a grant allows."""

    SELECT = "select"
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    CREATE = "create"


class Scope(StrEnum):
    """The kind of object that a grant is for."""

    LAKE = "lake"
    SCHEMA = "schema"
    TABLE = "table"


READER, WRITER, ADMIN = "reader", "writer", "admin"
#: The roles that every lake has, and what they allow on the whole lake. ``admin`` allows everything.
BUILT_IN: dict[str, frozenset[Privilege]] = {
    READER: frozenset({Privilege.SELECT}),
    WRITER: frozenset(Privilege),
    ADMIN: frozenset(Privilege),
}
#: Privileges that a grant on a single column may have.
OF_COLUMNS = frozenset({Privilege.SELECT})
#: Privileges that a grant on a table may have.
OF_TABLES = frozenset(Privilege) - {Privilege.CREATE}

ENABLED, DISABLED = "enabled", "disabled"
FILTER, MASK = "filter", "mask"
AUDIT_SCHEMA, AUDIT_TABLE = "quacklake_audit", "log"
"""The table of the audit log. Only a grant on the table itself shows it."""
NOBODY = ""
"""The member that stands for a role itself."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_.@:|+-]{0,126}")


@dataclass(frozen=True, slots=True)
class Principal:
    """A user or a service that may be let in. A disabled one may do nothing."""

    name: str
    state: str
    created: dt.datetime


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as the catalog keeps it: its public id, and a hash of the rest."""

    token_id: str
    principal: str
    hash: str
    expires_ms: int | None
    created: dt.datetime


@dataclass(frozen=True, slots=True)
class Member:
    """A role with one of its members, or with ``NOBODY`` the role itself."""

    role: str
    member: str
    created: dt.datetime


@dataclass(frozen=True, slots=True)
class Grant:
    """A privilege of a principal or role, on the lake, a schema or a table by its id, or on one column of a table.

    ``schema_id`` is the schema of a table or view.
    """

    grant_id: str
    grantee: str
    privilege: str
    scope: str
    schema_id: int | None
    object_id: int | None
    column_id: int | None
    created: dt.datetime


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A row filter or a mask of a column. It holds for the table with its id, and for one with its name.

    ``columns`` is JSON: the name of each column of ``expression`` with its field id when the policy was made. Without a
    ``role`` it is for everybody.
    """

    policy_id: str
    kind: str
    name: str
    table_id: int
    schema_name: str
    table_name: str
    column_id: int | None
    column_name: str | None
    role: str | None
    expression: str
    columns: str
    created: dt.datetime


def check_access_name(name: str, what: str) -> str:
    """Return the name of a principal, role or policy in small letters. Raise ``InvalidNameError``."""
    folded = str(name).lower()
    if not _NAME.fullmatch(folded):
        raise InvalidNameError(
            f"{name!r} cannot be the name of a {what}",
            hint="up to 127 letters and digits of ASCII, and _ . @ : | + - after the first",
        )
    return folded
