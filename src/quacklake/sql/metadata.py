"""The metadata tables of a lake as relations: ``__ducklake_metadata_<alias>.ducklake_…``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake.errors import NotFoundError
from quacklake.sql.attached import Attached

if TYPE_CHECKING:
    from quacklake.sql.session import Session

__all__ = ["relation", "rows"]


def relation(session: Session, names: Sequence[str]) -> pa.Table | None:
    """The rows of a metadata table, or None when the name is not one."""
    attached = session.attachments.metadata_of(names[0]) if len(names) > 1 else None
    if attached is None and len(names) == 1:
        attached = session.attachments.metadata_of(session.names.catalog)
    return None if attached is None else rows(attached, names[-1])


def rows(attached: Attached, name: str) -> pa.Table:
    """A metadata table of a lake. Raises ``NotFoundError``."""
    with attached.shared.catalog.read() as reader:
        found = reader.metadata_table(name)
    if found is None:
        raise NotFoundError(f'the metadata of the lake "{attached.alias}" has no table "{name}"')
    return found
