"""The parts of SQL that packages above this one have: pipelines, materialized views and Python frames."""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from quacklake.core.lazy import provided

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake.core.sql.result import Result
    from quacklake.core.sql.session import Session
    from quacklake.core.sql.words import Cursor

_KINDS = ("SOURCE", "SINK", "PIPELINE")
_OF_PIPELINES: Mapping[str, tuple[str, ...]] = {
    "CREATE": _KINDS,
    "DROP": _KINDS,
    "DESCRIBE": _KINDS,
    "DESC": _KINDS,
    "SHOW": ("SOURCES", "SINKS", "PIPELINES"),
    "START": ("PIPELINE",),
    "STOP": ("PIPELINE",),
}

_OF_ACCESS = ("USER", "ROLE", "POLICY", "MASK")
_OF_VIEWS = ("ALTER", "DESC", "DESCRIBE", "DROP", "REFRESH", "VERIFY")


def is_of_pipelines(cursor: Cursor) -> bool:
    """Return whether a statement is about sources, sinks or pipelines."""
    words = [word for word in cursor.words[:5] if word.kind == "word"]
    if not words or words[0].upper not in _OF_PIPELINES:
        return False
    kinds, following = _OF_PIPELINES[words[0].upper], [word.upper for word in words[1:]]
    if words[0].upper == "CREATE":
        following = [word for word in following if word not in ("OR", "REPLACE")]
    named = len(cursor.words) > 2 or words[0].upper == "SHOW"  # DESCRIBE source is about a table
    return named and bool(following) and following[0] in kinds


def run_of_pipelines(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run a statement about sources, sinks or pipelines."""
    return run_statement(session, cursor)


@provided
def run_statement(session: Session, cursor: Cursor) -> Result:
    """Run one statement about sources, sinks or pipelines."""
    raise NotImplementedError


def is_of_views(cursor: Cursor) -> bool:
    """Return whether a statement is about materialized views."""
    words = [word.upper for word in cursor.words[:5]]
    if words[:1] == ["CREATE"]:
        return [word for word in words[1:] if word not in ("OR", "REPLACE")][:2] == ["MATERIALIZED", "VIEW"]
    if words[:2] == ["EXPLAIN", "REFRESH"] or words[:3] == ["SHOW", "MATERIALIZED", "VIEWS"]:
        return True
    return words[:1] in [[verb] for verb in _OF_VIEWS] and words[1:3] == ["MATERIALIZED", "VIEW"]


def run_of_views(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run a statement about materialized views."""
    return run_view_statement(session, cursor)


@provided
def run_view_statement(session: Session, cursor: Cursor) -> Result:
    """Run one statement about materialized views."""
    raise NotImplementedError


@provided
def source_rows(session: Session, name: str) -> pa.Table:
    """Return rows of a source: all of one that ends, and no more than a look at one that does not."""
    raise NotImplementedError


def find_source(session: Session, name: str) -> pa.Table | None:
    """Return the rows of a source that the lake knows by a name, or None."""
    from quacklake.core.catalog import own_tables

    attached = session.names.default
    if attached is None:
        return None
    with attached.context.catalog.read() as reader:
        known = own_tables.definitions(reader, "source")
    if not any(each.name.lower() == name.lower() for each in known):
        return None
    return source_rows(session, name)


@provided
def read_rows(value: Any) -> Any:
    """Return rows that can be read repeatedly under a name. Raise ``SchemaMismatchError`` for a value without rows."""
    raise NotImplementedError


@provided
def find_frame(frame: FrameType | None, name: str) -> Any:
    """Return the rows of the caller's variable with this name, local before global, or None."""
    raise NotImplementedError


def is_of_access(cursor: Cursor) -> bool:
    """Return whether a statement is about users, roles, grants or policies."""
    words = [word.upper if word.kind == "word" else "" for word in cursor.words[:3]] + ["", "", ""]
    if words[0] in ("CREATE", "DROP"):
        return words[1] in _OF_ACCESS
    if words[0] == "SHOW":
        # SHOW users is about a table
        return words[1] == "GRANTS" or words[1:3] in [["ACCESS", what] for what in ("USERS", "ROLES", "POLICIES")]
    return words[0] in ("GRANT", "REVOKE") or words[:2] == ["ALTER", "USER"]
