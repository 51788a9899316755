"""Whether a Delta table also has Iceberg metadata (UniForm): the option, the property, and what stands against it."""

from __future__ import annotations

import logging
from importlib.util import find_spec

from deltalake import DeltaTable

from quacklake.connectors.options import ConnectorOptions
from quacklake.errors import ConnectorError, MissingExtraError

PROPERTY = "delta.universalFormat.enabledFormats"
_LOG = logging.getLogger("quacklake.connectors")
_HINT = "Say uniform_iceberg=false, or rewrite the table without deletion vectors."


def uniform_option(read: ConnectorOptions) -> bool | None:
    """Return whether Iceberg metadata is wanted, None when the table decides. Raises ``MissingExtraError``."""
    given = read.optional("uniform_iceberg") is not None
    wanted = read.boolean("uniform_iceberg", True)
    if wanted and find_spec("pyiceberg") is None:
        if given:
            raise MissingExtraError(
                "uniform_iceberg needs the package pyiceberg", hint="pip install 'quacklake[iceberg]'"
            )
        _LOG.warning("the Delta sink writes no Iceberg metadata, because the package pyiceberg is not installed")
        return False
    return wanted if given else None


def property_value(wanted: bool) -> dict[str, str]:
    """Return the property of a table with Iceberg metadata, or without."""
    return {PROPERTY: "iceberg" if wanted else ""}


def is_uniform(table: DeltaTable) -> bool:
    """Return True for a table that has Iceberg metadata."""
    return "iceberg" in table.metadata().configuration.get(PROPERTY, "").lower().split(",")


def set_uniform(table: DeltaTable, wanted: bool) -> None:
    """Set the property of a table, if it says something else."""
    if is_uniform(table) != wanted:
        table.alter.set_table_properties(property_value(wanted), raise_if_not_exists=False)


def refuse_deletion_vectors(table: DeltaTable) -> None:
    """Raise ``ConnectorError`` for a table whose files have rows that only a deletion vector leaves out.

    Iceberg metadata would show those rows.
    """
    if "deletionVectors" not in (table.protocol().reader_features or []):
        return
    if table.metadata().configuration.get("delta.enableDeletionVectors", "false").lower() == "true":
        raise ConnectorError("a Delta table with deletion vectors cannot have Iceberg metadata", hint=_HINT)
    if any(batch.num_rows for batch in table.deletion_vectors()):
        raise ConnectorError("files of the Delta table have deletion vectors, which Iceberg would not see", hint=_HINT)
