"""Statements and relations of packages above this one, which an entry point of the group ``quacklake.sql`` names.

A session knows the words of such statements and asks for the package only when one is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from quacklake.catalog import own_tables
from quacklake.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from quacklake.sql.result import Result
    from quacklake.sql.session import Session
    from quacklake.sql.words import Cursor

GROUP = "quacklake.sql"
PIPELINES = "pipelines"
_KINDS = ("SOURCE", "SINK", "PIPELINE")
_SHOWN = ("SOURCES", "SINKS", "PIPELINES")
_OF_PIPELINES: Mapping[str, tuple[str, ...]] = {
    "CREATE": _KINDS,
    "DROP": _KINDS,
    "DESCRIBE": _KINDS,
    "DESC": _KINDS,
    "SHOW": _SHOWN,
    "START": ("PIPELINE",),
    "STOP": ("PIPELINE",),
}


class Extension(Protocol):
    """What a package offers: statements, and relations that queries may name."""

    def run(self, session: Session, cursor: Cursor, params: Any) -> Result:
        """Run a statement."""

    def relation(self, session: Session, name: str) -> Any:
        """Return the rows of a relation, or None."""


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
    return extension(PIPELINES).run(session, cursor, params)


def source_rows(session: Session, name: str) -> Any:
    """Return the rows of a source that the lake knows by a name, or None."""
    attached = session.names.default
    if attached is None:
        return None
    with attached.context.catalog.read() as reader:
        known = own_tables.definitions(reader, "source")
    if not any(each.name.lower() == name.lower() for each in known):
        return None
    return extension(PIPELINES).relation(session, name)


@cache
def extension(name: str) -> Extension:
    """Return the package that offers statements under a name. Raises ``UnsupportedFeatureError`` without one."""
    for found in entry_points(group=GROUP, name=name):
        loaded: Extension = found.load()
        return loaded
    raise UnsupportedFeatureError(f"no installed package runs the statements of {name}", hint="pip install quacklake")
