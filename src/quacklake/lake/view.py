"""The ``View`` class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from quacklake.core.catalog.objects import Tags
from quacklake.core.format.objects import ViewInfo
from quacklake.core.operations.context import boundary
from quacklake.core.operations.handles import Handle
from quacklake.core.operations.reference import TableRef
from quacklake.core.operations.rows import Rows
from quacklake.core.operations.views import COMMENT, check_tags
from quacklake.core.sql.views import read_view, view_column
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError


class Tagged:
    """The name, comment and tags of a table or view."""

    handle: Handle
    _ref: TableRef
    _own_tags: tuple[str, ...] = ()
    """Tags that Quacklake keeps itself."""

    def _find(self, tx: Transaction) -> Any:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name with its schema, as ``schema.name``."""
        return f"{self._ref.schema}.{self._ref.name}"

    @property
    def comment(self) -> str | None:
        """The comment."""
        return self._tags().own.get(COMMENT)

    def set_comment(self, text: str | None) -> None:
        """Set the comment; None removes it."""
        self._set_tags({COMMENT: text})

    @property
    def tags(self) -> dict[str, str]:
        """The tags, without the comment and without Quacklake's own tags."""
        return {key: value for key, value in self._tags().own.items() if key not in (COMMENT, *self._own_tags)}

    def set_tags(self, tags: Mapping[str, str | None]) -> None:
        """Set tags; a value of None removes a tag, and other tags stay. Every client sees them."""
        if taken := next((key for key in self._own_tags if key in tags), None):
            raise InputError(f'the tag "{taken}" is reserved for Quacklake')
        self._set_tags(tags)

    def _tags(self) -> Tags:
        view = self.handle.view()
        return view.objects.tags(self._find(view))

    def _set_tags(self, tags: Mapping[str, str | None]) -> None:
        checked = check_tags(tags)
        self.handle.run(lambda tx: tx.objects.set_tags(self._find(tx), checked))


@boundary
class View(Tagged, Rows):
    """A view of a lake, of a past snapshot, or of an open transaction. Each read runs its query."""

    def __init__(self, handle: Handle, ref: TableRef) -> None:
        self.handle, self._ref = handle, ref

    def _find(self, tx: Transaction) -> ViewInfo:
        return tx.objects.find_view(self._ref.schema, self._ref.name)

    @property
    def info(self) -> ViewInfo:
        """The catalog entry of the view."""
        return self._find(self.handle.view())

    @property
    def sql(self) -> str:
        """The query of the view."""
        return self.info.sql

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self._read(limit=0).schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._read()

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._read("count(*)").column(0)[0].as_py())

    def _read(self, select: str = "*", *, limit: int | None = None) -> pa.Table:
        tx = self.handle.view()
        return read_view(self.handle.context, tx, self._find(tx), select, limit=limit)

    @property
    def column_comments(self) -> dict[str, str]:
        """The comments on columns, by column name; columns without a comment are left out."""
        return {name: tags[COMMENT] for name, tags in self._tags().named.items() if COMMENT in tags}

    def set_column_comment(self, column: str, text: str | None) -> None:
        """Set the comment on a column; None removes it. Format version 1.0 does not support this."""
        checked = check_tags({COMMENT: text})

        def work(tx: Transaction) -> None:
            view = self._find(tx)
            tx.objects.set_tags(view, checked, column_name=view_column(self.handle.context, tx, view, column))

        self.handle.run(work)

    def __repr__(self) -> str:
        return f"<View {self.name}>"
