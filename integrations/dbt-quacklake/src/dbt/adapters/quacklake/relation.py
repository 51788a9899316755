"""Relations and columns as dbt sees them."""

from __future__ import annotations

from dataclasses import dataclass, field

from dbt.adapters.base import BaseRelation, Column
from dbt.adapters.contracts.relation import ComponentName, RelationType

_INTEGERS = ("tinyint", "smallint", "integer", "bigint", "hugeint")
_UNSIGNED = ("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint")


@dataclass(frozen=True, eq=False, repr=False)
class QuacklakeRelation(BaseRelation):
    """A table, view or materialized view of the lake, whose name is the same in capitals."""

    require_alias: bool = False
    renameable_relations: frozenset[RelationType] = field(
        default_factory=lambda: frozenset({RelationType.Table, RelationType.View})
    )
    replaceable_relations: frozenset[RelationType] = field(
        default_factory=lambda: frozenset({RelationType.Table, RelationType.View, RelationType.MaterializedView})
    )

    def _is_exactish_match(self, field: ComponentName, value: str) -> bool:
        return str(self.path.get_part(field) or "").lower() == value.lower()


class QuacklakeColumn(Column):
    """A column with a type of DuckDB."""

    TYPE_LABELS = {  # noqa: RUF012 - dbt's own name
        "STRING": "VARCHAR",
        "TEXT": "VARCHAR",
        "TIMESTAMP": "TIMESTAMP",
        "FLOAT": "DOUBLE",
        "INTEGER": "INTEGER",
        "BOOLEAN": "BOOLEAN",
    }

    @property
    def data_type(self) -> str:
        return self.dtype

    def is_string(self) -> bool:
        return self.dtype.lower() in ("varchar", "text", "string", "character varying")

    def is_integer(self) -> bool:
        return self.dtype.lower() in _INTEGERS + _UNSIGNED

    def is_numeric(self) -> bool:
        return self.dtype.lower().startswith(("decimal", "numeric"))

    def is_float(self) -> bool:
        return self.dtype.lower() in ("float", "double", "real")

    def string_size(self) -> int:
        return 0  # a VARCHAR has no length here

    def can_expand_to(self, other_column: Column) -> bool:
        return False

    @classmethod
    def string_type(cls, size: int) -> str:
        return "VARCHAR"
