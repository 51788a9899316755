"""Settings of SQLAlchemy's suite for a lake: tables that are temporary, and keys for its rows."""

from __future__ import annotations

import itertools
from typing import Any

from sqlalchemy import ColumnDefault, Engine, Integer, Table, event
from sqlalchemy.testing import provision

_KEYS = itertools.count(1)


@provision.temp_table_keyword_args.for_db("quacklake")  # type: ignore[untyped-decorator]
def temporary_tables(config: Any, engine: Engine) -> dict[str, Any]:
    """Return what makes a table of the suite temporary."""
    return {"prefixes": ["TEMPORARY"]}


@event.listens_for(Table, "after_parent_attach")
def number_rows(table: Table, metadata: Any) -> None:
    """Give the tables of the suite a default for their keys: a lake makes none."""
    key = table.autoincrement_column
    if key is not None and key.default is None and key.server_default is None and isinstance(key.type, Integer):
        ColumnDefault(lambda: next(_KEYS))._set_parent_with_dispatch(key)
