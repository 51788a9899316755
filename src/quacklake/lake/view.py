"""The ``View`` class."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from quacklake.format.objects import ViewInfo
from quacklake.operations.context import LakeContext, boundary
from quacklake.operations.handles import Handle
from quacklake.operations.reference import TableRef
from quacklake.operations.rows import Rows
from quacklake.operations.views import COMMENT, check_tags
from quacklake.sql.views import read_view, view_column
from quacklake.transaction import Transaction


@boundary
class View(Rows):
    """A view of a lake, of a past snapshot, or of an open transaction. Each read runs its query."""

    def __init__(self, handle: Handle, ref: TableRef) -> None:
        self.handle = handle
        self._ref = ref

    @property
    def _context(self) -> LakeContext:
        return self.handle.context

    def _find(self, tx: Transaction) -> ViewInfo:
        return tx.objects.find_view(self._ref.schema, self._ref.name)

    @property
    def name(self) -> str:
        """The name of the view as ``schema.view``."""
        return f"{self._ref.schema}.{self._ref.name}"

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

    # -- reading -----------------------------------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._read()

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._read("count(*)").column(0)[0].as_py())

    def _read(self, select: str = "*", *, limit: int | None = None) -> pa.Table:
        tx = self.handle.view()
        return read_view(self._context, tx, self._find(tx), select, limit=limit)

    # -- comments and tags -------------------------------------------------------------------------------------------

    @property
    def comment(self) -> str | None:
        """The comment on the view."""
        return self._tags().get(COMMENT)

    def set_comment(self, text: str | None) -> None:
        """Set the comment on the view; None removes it."""
        self.set_tags({COMMENT: text})

    @property
    def column_comments(self) -> dict[str, str]:
        """The comments on columns, by column name; columns without a comment are left out."""
        view = self.handle.view()
        named = view.objects.tags(self._find(view)).named
        return {name: tags[COMMENT] for name, tags in named.items() if COMMENT in tags}

    def set_column_comment(self, column: str, text: str | None) -> None:
        """Set the comment on a column; None removes it. Format version 1.0 does not support this."""
        checked = check_tags({COMMENT: text})

        def work(tx: Transaction) -> None:
            view = self._find(tx)
            tx.objects.set_tags(view, checked, column_name=view_column(self._context, tx, view, column))

        self.handle.run(work)

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the view, without the comment."""
        return {key: value for key, value in self._tags().items() if key != COMMENT}

    def _tags(self) -> dict[str, str]:
        view = self.handle.view()
        return view.objects.tags(self._find(view)).own

    def set_tags(self, tags: Mapping[str, str | None]) -> None:
        """Set tags; a value of None removes a tag, and other tags stay."""
        checked = check_tags(tags)
        self.handle.run(lambda tx: tx.objects.set_tags(self._find(tx), checked))

    def __repr__(self) -> str:
        return f"<View {self.name}>"
