"""Tables of a shared lake that the database keeps in parts, chosen by the hash of ``catalog_id``."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateTable

from quacklake.catalog.scoped import CATALOG_ID
from quacklake.errors import UnsupportedFeatureError

__all__ = ["making"]


def making(
    table: sa.Table, dialect: Dialect, partitions: int | None, *, if_not_exists: bool
) -> Iterator[sa.schema.ExecutableDDLElement]:
    """What makes a table, as a whole or in parts. Raises ``UnsupportedFeatureError`` where tables have none."""
    create = CreateTable(table, if_not_exists=if_not_exists)
    if partitions is None:
        yield create
        return
    text = f"{str(create.compile(dialect=dialect)).rstrip()} PARTITION BY HASH ({CATALOG_ID})"
    if dialect.name in ("mysql", "mariadb"):
        yield _ddl(f"{text} PARTITIONS {partitions:d}")
    elif dialect.name == "postgresql":
        yield _ddl(text)
        whole = dialect.identifier_preparer.format_table(table)
        for number in range(partitions):
            part = dialect.identifier_preparer.format_table(table, name=f"{table.name}_{number}")
            bounds = f"FOR VALUES WITH (MODULUS {partitions:d}, REMAINDER {number:d})"
            yield _ddl(f"CREATE TABLE {part} PARTITION OF {whole} {bounds}")
    else:
        raise UnsupportedFeatureError(
            f"tables of {dialect.name} have no partitions", hint="leave metadata_partitions out"
        )


def _ddl(text: str) -> sa.DDL:
    return sa.DDL(text.replace("%", "%%"))  # type: ignore[no-untyped-call]
