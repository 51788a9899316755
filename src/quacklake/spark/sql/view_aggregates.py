"""Translate expressions and aggregates of views into Spark SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import duckdb

from quacklake.engines.duckdb.expressions import ExpressionBinder
from quacklake.engines.duckdb.trees import Node, nodes
from quacklake.format.names import quote as lake_quote
from quacklake.format.schema import Column, TableSchema
from quacklake.format.types import parse_type
from quacklake.spark.expressions.casts import FLOATS, INTEGERS, STAMPS
from quacklake.spark.expressions.translator import Translator, Typed
from quacklake.spark.runtime.types import quote

KEYS = (*INTEGERS, "boolean", "varchar", "uuid", "date", "timestamptz", *STAMPS)
"""Types that DuckDB and Spark compare and sort alike; decimals too."""
_BOOLEAN = Column(0, "v", "boolean")


class ViewBinder(ExpressionBinder):
    """Binds expressions over all columns of the relations of a query."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, tables: Mapping[str, TableSchema]) -> None:
        super().__init__(connection, tables)
        made = (
            ", ".join(f"NULL::{column.duckdb_type()} AS {lake_quote(column.name)}" for column in schema.columns)
            for schema in tables.values()
        )
        relations = [f"(SELECT {each}) AS {lake_quote(name)}" for name, each in zip(tables, made, strict=True)]
        self._from = ", ".join(relations) or "(SELECT 1)"

    @cached_property
    def aggregates(self) -> frozenset[str]:
        """The names of DuckDB's aggregates."""
        query = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
        return frozenset(str(row[0]).lower() for row in self._run(query).fetchall())

    def is_aggregate(self, node: Node) -> bool:
        """Return True for a call of an aggregate."""
        return node.get("class") == "FUNCTION" and str(node["function_name"]).lower() in self.aggregates

    def is_row_wise(self, tree: Any) -> bool:
        """Return True when no part is computed from several rows."""
        return not any(each.get("class") == "WINDOW" or self.is_aggregate(each) for each in nodes(tree))

    def is_constant(self, node: Node) -> bool:
        return super().is_constant(node) and self.is_row_wise(node)

    def title(self, node: Node) -> str:
        """Return the title of a column without a name of its own."""
        return str(self._run(f"SELECT {self.text(node)} FROM {self._from}").columns[0])


class ViewTranslator(Translator):
    """Translates expressions of a query, including aggregates."""

    binder: ViewBinder

    def visit(self, node: Node) -> Typed:
        if self.binder.is_aggregate(node):
            return self._aggregate(node)
        if node["class"] == "COLUMN_REF":
            self.binder.type_of(node)  # DuckDB reports an ambiguous name
        return super().visit(node)

    def condition(self, node: Node) -> str:
        """Translate a part as a condition."""
        return self.cast(self.visit(node), _BOOLEAN).sql

    def value(self, node: Node) -> Typed:
        """Translate a part as a result column, in DuckDB's type."""
        found = self.visit(node)
        if found.type != self.binder.type_of(node).type:  # such as NULL, which takes any type
            raise self.refusal(node)
        return found

    def title(self, node: Node) -> str:
        """Return the name of a result column."""
        return str(node["alias"]) or self.binder.title(node)

    def column_of(self, table: str, column: Column, node: Node) -> Typed:
        """Return a column of a relation."""
        names = [*([table] if len(self.binder.tables) > 1 else []), column.name]
        return Typed(".".join(map(quote, names)), column, {**node, "class": "STAR"})

    def _aggregate(self, node: Node) -> Typed:
        name = str(node["function_name"]).lower()
        arguments = [self.visit(each) for each in node["children"]]
        maker = _AGGREGATES.get(name)
        inner = any(self.binder.is_aggregate(each) for child in node["children"] for each in nodes(child))
        if maker is None or inner or node["order_bys"]["orders"] or node.get("export_state"):
            raise self.refusal(node)
        chosen = f" FILTER (WHERE {self.condition(node['filter'])})" if node["filter"] else ""
        made = maker(arguments, "DISTINCT " if node["distinct"] else "", chosen)
        if made is None:
            raise self.refusal(node)
        self.strict = True
        return self.typed(node, made)


Maker = Callable[[Sequence[Typed], str, str], "str | None"]


def _is_key(one: Typed) -> bool:
    return one.type in KEYS or parse_type(one.type).base == "decimal"


def _count(arguments: Sequence[Typed], distinct: str, chosen: str) -> str | None:
    if not arguments:
        return f"count(*){chosen}"
    if len(arguments) > 1 or (distinct and not _is_key(arguments[0])):
        return None
    return f"count({distinct}{arguments[0].sql}){chosen}"


def _extreme(word: str) -> Maker:
    def made(arguments: Sequence[Typed], distinct: str, chosen: str) -> str | None:
        fits = len(arguments) == 1 and (_is_key(arguments[0]) or arguments[0].type in FLOATS)
        return f"{word}({arguments[0].sql}){chosen}" if fits else None

    return made


def _sum(arguments: Sequence[Typed], distinct: str, chosen: str) -> str | None:
    """Return a sum with all its digits. DuckDB sums whole numbers as HUGEINT."""
    one = arguments[0]
    kind = parse_type(one.type)
    if one.type in INTEGERS:
        return f"CAST(sum({distinct}CAST({one.sql} AS DECIMAL(20,0))){chosen} AS DECIMAL(38,0))"
    if kind.base == "decimal":
        return f"CAST(sum({distinct}{one.sql}){chosen} AS DECIMAL(38,{kind.scale or 0}))"
    return None


def _truth(word: str) -> Maker:
    def made(arguments: Sequence[Typed], distinct: str, chosen: str) -> str | None:
        return f"{word}({arguments[0].sql}){chosen}" if arguments[0].type == "boolean" else None

    return made


_AGGREGATES: Mapping[str, Maker] = {
    "count_star": _count,
    "count": _count,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "sum": _sum,
    "bool_and": _truth("bool_and"),
    "bool_or": _truth("bool_or"),
}
