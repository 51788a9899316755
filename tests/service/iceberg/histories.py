"""Random histories of one table, of everything that changes what its snapshots look like in files."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from quacklake import Lake

__all__ = ["History"]

_DAY = dt.date(2020, 1, 1)
_TYPES = (
    "INTEGER", "BIGINT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "DECIMAL(12,3)", "BOOLEAN", "SMALLINT",
    "FLOAT", "BLOB", "UUID", "UINTEGER", "TIMESTAMP_MS", "STRUCT(x INTEGER, y VARCHAR)", "INTEGER[]",
)  # fmt: skip
_WIDER = {"SMALLINT": "INTEGER", "INTEGER": "BIGINT", "FLOAT": "DOUBLE"}
_DEFAULTS: dict[str, Any] = {
    "INTEGER": -7, "BIGINT": 5_000_000_000, "DOUBLE": 1.25, "VARCHAR": "d'é\"", "DATE": dt.date(1999, 12, 31),
    "TIMESTAMP": dt.datetime(2001, 2, 3, 4, 5, 6, 7), "DECIMAL(12,3)": Decimal("-1.500"), "BOOLEAN": True, "SMALLINT": 3,
    "FLOAT": -0.5, "UINTEGER": 4_000_000_000,
}  # fmt: skip


class History:
    """A table ``h`` with a key ``k`` that is never changed, and random columns."""

    def __init__(self, lake: Lake, random_: random.Random) -> None:
        self.lake = lake
        self.random = random_
        self.columns: dict[str, str] = {"a": "INTEGER", "b": "VARCHAR"}
        self.next_key = 0
        self.next_column = 0
        self.done: list[str] = []
        lake.create_table("h", {"k": "BIGINT", "a": "INTEGER", "b": "VARCHAR"})

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        choice = self.random
        step = choice.choices(
            [
                self.insert_few, self.insert_many, self.delete, self.update, self.add_column, self.rename_column,
                self.drop_column, self.widen, self.partition, self.flush, self.merge_files, self.rewrite, self.vectors,
            ],
            [5, 4, 5, 3, 2, 2, 1, 2, 1, 1, 1, 1, 1],
        )[0]  # fmt: skip
        self.done.append(step.__name__)
        step()

    @property
    def table(self) -> Any:
        return self.lake.table("h")

    def value(self, type_: str) -> Any:
        if self.random.random() < 0.15:
            return None
        number = self.random.randrange(-1000, 1000)
        match type_:
            case "DOUBLE" | "FLOAT":
                return self.random.choice([number / 4, 0.0, -0.0])
            case "VARCHAR":
                return self.random.choice(["", "é", "a%b/c", "x" * 300, f"v{number}"])
            case "DATE":
                return _DAY + dt.timedelta(days=number)
            case "TIMESTAMP" | "TIMESTAMPTZ":
                zone = dt.UTC if type_ == "TIMESTAMPTZ" else None
                return dt.datetime(2020, 1, 1, tzinfo=zone) + dt.timedelta(
                    seconds=number * 997, microseconds=number % 7
                )
            case "DECIMAL(12,3)":
                return Decimal(number).scaleb(-3)
            case "BOOLEAN":
                return number % 2 == 0
            case "BLOB":
                return bytes([number % 256, 0, 255])
            case "UINTEGER":
                return 3_000_000_000 + number
            case "TIMESTAMP_MS":
                return dt.datetime(2020, 1, 1) + dt.timedelta(milliseconds=number)
            case "STRUCT(x INTEGER, y VARCHAR)":
                return {"x": number, "y": self.value("VARCHAR")}
            case "INTEGER[]":
                return [number, None]
            case "UUID":
                return f"{number % 256:02x}000000-0000-4000-8000-0000000000ff"
        return number

    def rows(self, count: int) -> list[dict[str, Any]]:
        keys = range(self.next_key, self.next_key + count)
        self.next_key += count
        return [{"k": key, **{name: self.value(type_) for name, type_ in self.columns.items()}} for key in keys]

    def insert_few(self) -> None:
        self.table.append(pa.Table.from_pylist(self.rows(self.random.randint(1, 5)), self.table.schema))

    def insert_many(self) -> None:
        self.table.append(pa.Table.from_pylist(self.rows(self.random.randint(20, 60)), self.table.schema))

    def delete(self) -> None:
        self.table.delete(f"k % {self.random.randint(2, 12)} = {self.random.randint(0, 3)}")

    def update(self) -> None:
        self.table.update({"a": self.random.randint(-99, 99)}, f"k % {self.random.randint(3, 15)} = 1")

    def add_column(self) -> None:
        if len(self.columns) > 8:
            return
        name, type_ = f"c{self.next_column}", self.random.choice(_TYPES)
        self.next_column += 1
        default = _DEFAULTS.get(type_) if self.random.random() < 0.7 else None
        self.table.add_column(name, type_, default)
        self.columns[name] = type_

    def _other(self) -> str | None:
        names = [name for name in self.columns if name != "a"]
        return self.random.choice(names) if names else None

    def rename_column(self) -> None:
        name = self._other()
        if name is not None:
            new = f"r{self.next_column}"
            self.next_column += 1
            self.table.rename_column(name, new)
            self.columns = {new if each == name else each: type_ for each, type_ in self.columns.items()}

    def drop_column(self) -> None:
        name = self._other()
        if name is not None and len(self.columns) > 2:
            self.table.reset_partitioned_by()
            self.table.drop_column(name)
            del self.columns[name]

    def widen(self) -> None:
        names = [name for name, type_ in self.columns.items() if type_ in _WIDER]
        if names:
            name = self.random.choice(names)
            self.table.alter_column(name, _WIDER[self.columns[name]])
            self.columns[name] = _WIDER[self.columns[name]]

    def partition(self) -> None:
        if self.random.random() < 0.3:
            self.table.reset_partitioned_by()
        else:
            self.table.set_partitioned_by(self.random.choice(["bucket(3, k)", "a", "bucket(2, a)"]))

    def flush(self) -> None:
        self.table.flush_inlined_data()

    def merge_files(self) -> None:
        self.table.merge_adjacent_files()

    def rewrite(self) -> None:
        self.table.rewrite_data_files(delete_threshold=self.random.choice([0.0, 0.3]))

    def vectors(self) -> None:
        self.lake.options.set("write_deletion_vectors", self.random.choice(["true", "false"]))
