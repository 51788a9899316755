"""The properties that a Hudi table gets when it is made, and the settings of writes that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quacklake.errors import ConfigError

TABLE_TYPES = ("copy_on_write", "merge_on_read")


@dataclass(frozen=True)
class Shape:
    """The name of a table, its type, and the columns of its key and its partitions."""

    name: str
    table_type: str
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Shape:
        """Return the shape of a table that is there, from its properties."""
        return cls(
            options["hoodie.table.name"],
            options["hoodie.table.type"].lower(),
            _names(options.get("hoodie.table.recordkey.fields")),
            _names(options.get("hoodie.table.partition.fields")),
        )

    def check(self, *, key: tuple[str, ...], partition_by: tuple[str, ...], table_type: str | None) -> None:
        """Raise ``ConfigError`` for options that ask for another shape. One that is empty asks for nothing."""
        wanted = {"key": key, "partition_by": partition_by, "table_type": (table_type,) if table_type else ()}
        found = {"key": self.key, "partition_by": self.partition_by, "table_type": (self.table_type,)}
        for option, value in wanted.items():
            if value and value != found[option]:
                said = ", ".join(found[option]) or "nothing"
                raise ConfigError(f"the Hudi table has {option}={said}", hint=f"leave out {option}")

    def settings(self) -> dict[str, str]:
        """Return the settings of a write."""
        found = {
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.table.type": self.table_type.upper(),
            "hoodie.datasource.write.partitionpath.field": ",".join(self.partition_by),
        }
        # without a key Hudi numbers the rows
        return found | ({"hoodie.datasource.write.recordkey.field": ",".join(self.key)} if self.key else {})


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name for name in (text or "").split(",") if name)
