"""Checks for features that only some versions of the format have, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quacklake.errors import InvalidNameError, UnsupportedFeatureError
from quacklake.format.inline import PREFIX
from quacklake.format.layout import EPOCH, PartitionSpec
from quacklake.format.names import fold
from quacklake.format.objects import EXPRESSION, MacroVariant
from quacklake.format.schema import TableSchema

if TYPE_CHECKING:
    from quacklake.catalog import Catalog

NEW_TYPES = ("null", "timestamptz_ns")
READ_ONLY_TYPES = ("timestamptz_ns",)


def require_next(catalog: Catalog, what: str) -> None:
    """Raise ``UnsupportedFeatureError`` unless the lake has the format version 1.1."""
    if not catalog.is_next:
        raise UnsupportedFeatureError(
            f"{what} needs version 1.1 of the format, which this lake does not have",
            hint='lake.migrate("1.1") brings it there',
        )


def check_columns(catalog: Catalog, columns: TableSchema, before: TableSchema | None = None) -> None:
    """Raise for new columns whose type 1.0 lacks, or whose name 1.1 keeps for itself."""
    known = set() if before is None else {(node.id, node.type) for node in before.walk()}
    for node in columns.walk():
        if node.type in NEW_TYPES and (node.id, node.type) not in known:
            require_next(catalog, f"the type {node.type}")
            if node.type in READ_ONLY_TYPES:
                raise UnsupportedFeatureError(f"columns of the type {node.type} can be read, but not created")
    if catalog.is_next:
        _check_names((column.name for column in columns.columns), () if before is None else before.names)


def _check_names(names: Iterable[str], before: Iterable[str]) -> None:
    old = {fold(name) for name in before}
    for name in names:
        if fold(name).startswith(PREFIX) and fold(name) not in old:
            raise InvalidNameError(
                f'the column name "{name}" is reserved by DuckLake: names that begin with "{PREFIX}" are not allowed',
                hint="give the column another name",
            )


def check_partition(catalog: Catalog, spec: PartitionSpec | None) -> None:
    """Raise for a partitioning by epochs in a lake of 1.0."""
    epoch = next((key.transform for key in (spec.keys if spec else ()) if key.transform in EPOCH), None)
    if epoch is not None:
        require_next(catalog, f"the partition function {epoch}")


def check_macro(catalog: Catalog, variants: Iterable[MacroVariant]) -> None:
    """Raise for a default that is an expression in a lake of 1.0."""
    for variant in variants:
        for parameter in variant.parameters:
            if parameter.default_type == EXPRESSION:
                require_next(catalog, f'an expression as the default of the parameter "{parameter.name}"')
