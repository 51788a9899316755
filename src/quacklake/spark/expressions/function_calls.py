"""A call of a DuckDB function that is translated into Spark SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quacklake.format.schema import Column
from quacklake.spark.expressions.casts import INTEGERS, TEXTS

if TYPE_CHECKING:
    from quacklake.engines.duckdb.trees import Node
    from quacklake.spark.expressions.translator import Translator, Typed

TEXT = Column(0, "v", "varchar")


class TranslatedCall:
    """A function call: its arguments, and its type in DuckDB."""

    def __init__(self, translator: Translator, node: Node, arguments: Sequence[Typed]) -> None:
        self.translator = translator
        self.node = node
        self.arguments = arguments
        self.type = translator.binder.type_of(node)

    @property
    def name(self) -> str:
        return str(self.node["function_name"]).lower()

    @property
    def types(self) -> list[str]:
        return [each.type for each in self.arguments]

    @property
    def count(self) -> int:
        return len(self.arguments)

    def sql(self, number: int) -> str:
        return self.arguments[number].sql

    def cast(self, number: int, type_: Column) -> str:
        return self.translator.cast(self.arguments[number], type_).sql

    def all(self, type_: Column) -> list[str]:
        """Return all arguments as one type."""
        return [self.cast(number, type_) for number in range(self.count)]

    def constant(self, number: int) -> str | None:
        """Return the value of a constant argument as text, or None for any other argument."""
        if number >= self.count or not self.arguments[number].constant:
            return None
        return self.translator.binder.constant(self.arguments[number].node)[0]

    def number(self, number: int) -> int | None:
        """Return the value of an argument that is a constant whole number, or None."""
        text = self.constant(number)
        return int(text) if text is not None and self.types[number] in INTEGERS else None

    def are_texts(self) -> bool:
        return all(type_ in TEXTS or self.arguments[i].loose for i, type_ in enumerate(self.types))


Maker = Callable[[TranslatedCall], "str | None"]
"""Returns the SQL of a call, or None when Spark has no equivalent."""
