"""Iceberg metadata of a Delta table (UniForm): the option, the property, and what stands against it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib.util import find_spec

from deltalake import DeltaTable

from quacklake.connectors.options import ConnectorOptions
from quacklake.errors import ConnectorError, MissingExtraError

PROPERTY = "delta.universalFormat.enabledFormats"
_LOG = logging.getLogger("quacklake.connectors")
_HINT = "Say uniform_iceberg=false, or rewrite the table without deletion vectors."


@dataclass(frozen=True)
class UniformOption:
    """The value of the option: True, False, or None when it is not given; and whether the metadata can be written."""

    given: bool | None
    possible: bool

    @classmethod
    def of(cls, read: ConnectorOptions) -> UniformOption:
        """Take the option. Raise ``MissingExtraError`` when what it asks for needs another package."""
        given = None if read.optional("uniform_iceberg") is None else read.boolean("uniform_iceberg", True)
        possible = find_spec("pyiceberg") is not None
        if given and not possible:
            raise MissingExtraError(
                "uniform_iceberg needs the package pyiceberg", hint="pip install 'quacklake[iceberg]'"
            )
        if given is None and not possible:
            _LOG.warning("the Delta sink writes no Iceberg metadata, because the package pyiceberg is not installed")
        return cls(given, possible)

    @property
    def for_new_tables(self) -> bool:
        """True when a table that is made gets the metadata."""
        return self.possible and self.given is not False

    def applies(self, table: DeltaTable) -> bool:
        """Return whether a table shall have the metadata. Raise ``ConnectorError`` when it cannot."""
        wanted = self.possible and (is_uniform(table) if self.given is None else self.given)
        if wanted:
            _refuse_deletion_vectors(table)
        return wanted


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


def _refuse_deletion_vectors(table: DeltaTable) -> None:
    """Raise ``ConnectorError`` for a table whose files have rows that only a deletion vector leaves out.

    Iceberg metadata would show those rows.
    """
    if "deletionVectors" not in (table.protocol().reader_features or []):
        return
    if table.metadata().configuration.get("delta.enableDeletionVectors", "false").lower() == "true":
        raise ConnectorError("a Delta table with deletion vectors cannot have Iceberg metadata", hint=_HINT)
    if any(batch.num_rows for batch in table.deletion_vectors()):
        raise ConnectorError("files of the Delta table have deletion vectors, which Iceberg would not see", hint=_HINT)
