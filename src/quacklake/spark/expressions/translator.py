"""Translate expressions of the lake into Spark SQL with the same values.

DuckDB itself supplies the tree, the types of its parts and the values of constants. Only what is listed here and in
``functions`` is translated, into a form with the same result in Spark; everything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow.compute as pc

from quacklake import Expression
from quacklake.core.engines.duckdb import DuckDBEngine
from quacklake.core.engines.duckdb.expressions import ExpressionBinder
from quacklake.core.engines.duckdb.trees import constant_of
from quacklake.errors import PredicateError, UnsupportedFeatureError
from quacklake.extend.schemas import Column, TableSchema
from quacklake.spark.expressions.casts import FLOATS, STAMPS, TEXTS, converted, is_number
from quacklake.spark.expressions.functions import called
from quacklake.spark.runtime.types import TEXT_KEYS, initial_value, literal, quote, shown_type, text_as_key

Node: TypeAlias = "dict[str, Any]"
"""A part of the tree in which DuckDB describes a query."""
Filter: TypeAlias = "str | pc.Expression"
"""A condition in the SQL of the lake, or of ``pyarrow.compute``."""

_COMPARED = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_NOT_DISTINCT_FROM": "<=>",
}
_ALIKE = ("boolean", "uuid", "blob", "date", "timestamptz", "time", "timestamp_ns")
"""Types whose values Spark compares like DuckDB, with values of the same type."""
BOOLEAN = Column(0, "v", "boolean")
_CONSTANTS = (*TEXTS, *_ALIKE, *STAMPS)  # types other than numbers whose constants Spark reads from DuckDB's text


@dataclass(frozen=True, slots=True)
class Typed:
    """A part of an expression in Spark SQL, with its node and type in DuckDB."""

    sql: str
    column: Column
    node: Node
    constant: bool = False

    @property
    def type(self) -> str:
        return self.column.type

    @property
    def loose(self) -> bool:
        """True for a literal text or NULL, which takes the type of the value beside it."""
        found = constant_of(self.node)
        return found is not None and found.type in ("VARCHAR", "NULL")


@dataclass(frozen=True, slots=True)
class ExpressionScope:
    """The columns of tables by their aliases. With several tables, Spark must know them by these aliases too.

    ``ansi`` says whether Spark raises an error for a number that is too large, as DuckDB does; ``time`` whether it has
    the type TIME.
    """

    engine: DuckDBEngine
    tables: Mapping[str, TableSchema]
    ansi: bool
    time: bool = False

    def condition(self, text: Filter | Expression) -> str:
        """Return a condition in Spark SQL. Raise ``PredicateError`` or ``UnsupportedFeatureError``."""
        return self._translate_with(text, lambda translator, found: translator.cast(found, BOOLEAN).sql)

    def value(self, text: str | Expression) -> str:
        """Return an expression of any type in Spark SQL. Raise the errors of :meth:`condition`."""
        return self._translate_with(text, lambda _, found: found.sql)

    def _translate_with(self, given: Filter | Expression, use: Callable[[Translator, Typed], str]) -> str:
        text = given.sql if isinstance(given, Expression) else given
        if isinstance(text, pc.Expression):
            from quacklake.core.scan.substrait import to_sql

            text = to_sql(text, next(iter(self.tables.values())))
        with self.engine.connection() as connection:
            translator = Translator(ExpressionBinder(connection, self.tables), time=self.time)
            try:
                found = use(translator, translator.visit(translator.binder.parse(text)))
            except RecursionError:
                raise PredicateError("the expression is too deep") from None
            except UnsupportedFeatureError as error:
                raise UnsupportedFeatureError(f"{error.message}, in {text!r}", hint=_HINT) from None
        if translator.strict and not self.ansi:
            raise UnsupportedFeatureError(
                f"the session would go on with a wrong number where one is too large, in {text!r}",
                hint="set spark.sql.ansi.enabled to true, as it is by default in Spark 4",
            )
        return found


_HINT = "compute it in Spark itself: with spark.sql(…), or a column of pyspark.sql.functions; or use lake.table(…)"


class Translator:
    """Translates one expression. Afterwards ``strict`` says whether it relies on the errors of ANSI mode."""

    def __init__(self, binder: ExpressionBinder, *, time: bool) -> None:
        self.binder = binder
        self.time = time
        self.strict = False

    def visit(self, node: Node) -> Typed:
        """Translate a part of the expression, with everything in it."""
        if self.binder.is_constant(node) and (found := self._constant(node)) is not None:
            return found
        match node["class"]:
            case "COLUMN_REF" if (named := self.binder.column(node)) is not None:
                table, path = named
                names = [*([table] if len(self.binder.tables) > 1 else []), *(column.name for column in path)]
                return Typed(".".join(map(quote, names)), path[-1], node)
            case "COMPARISON":
                one, two = self.visit(node["left"]), self.visit(node["right"])
                if node["type"] == "COMPARE_DISTINCT_FROM":
                    return self._true(node, f"NOT {self.compared(one, '<=>', two)}")
                if node["type"] in _COMPARED:
                    return self._true(node, self.compared(one, _COMPARED[node["type"]], two))
            case "CONJUNCTION":
                word = f" {node['type'].removeprefix('CONJUNCTION_')} "
                return self._true(node, word.join(self._conditions(node["children"])))
            case "BETWEEN":
                value, low, high = (self.visit(node[side]) for side in ("input", "lower", "upper"))
                return self._true(node, f"{self.compared(value, '>=', low)} AND {self.compared(value, '<=', high)}")
            case "CASE":
                type_ = self.binder.type_of(node)
                when = self._conditions([each["when_expr"] for each in node["case_checks"]])
                then = [self._branch(each["then_expr"], type_) for each in node["case_checks"]]
                checks = " ".join(f"WHEN {one} THEN {two}" for one, two in zip(when, then, strict=True))
                return self.typed(node, f"CASE {checks} ELSE {self._branch(node['else_expr'], type_)} END", type_)
            case "CAST" if not node["try_cast"]:
                return self.cast(self.visit(node["child"]), self.binder.type_of(node), node)
            case "OPERATOR":
                return self._operator(node)
            case "FUNCTION" if not (node["distinct"] or node["filter"] or node["order_bys"]["orders"]):
                return called(self, node, [self.visit(each) for each in node["children"]])
        raise self.refusal(node)

    def refusal(self, node: Node) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(f"{self.binder.text(node)} cannot be said in Spark with the same meaning")

    def typed(self, node: Node, sql: str, type_: Column | None = None) -> Typed:
        return Typed(f"({sql})", type_ or self.binder.type_of(node), node)

    def _true(self, node: Node, sql: str) -> Typed:
        return Typed(f"({sql})", BOOLEAN, node)

    def _conditions(self, nodes: Sequence[Node]) -> list[str]:
        return [self.cast(self.visit(each), BOOLEAN).sql for each in nodes]

    def _constant(self, node: Node, type_: Column | None = None) -> Typed | None:
        """Return a constant, in a type if one is given; None for a value whose parts can be translated one by one."""
        known = constant_of(node) if type_ is None else None
        if known is not None and known.type in ("INTEGER", "VARCHAR"):
            whole = known.type == "INTEGER"
            kind = Column(0, "v", "int32" if whole else "varchar")
            return Typed(str(known.value) if whole else literal(known.value), kind, node, constant=True)
        kind = type_ or self.binder.type_of(node)
        if kind.type == "int128":
            kind = Column(0, "v", "decimal(38,0)")
        if kind.nested:
            return None
        if kind.type == "interval":  # a text, in the form in which Spark shows intervals of a lake
            span = self.binder.interval(node)
            sql = "CAST(NULL AS STRING)"
            if span is not None:
                sql = literal(f"{span[0]} months {span[1]} days {Decimal(span[2]).scaleb(-6):f} seconds")
            return Typed(sql, kind, node, constant=True)
        text, _ = self.binder.constant(node, kind)
        if text == "-nan" and kind.type in FLOATS:  # Spark has only one NaN
            text = "nan"
        if text is not None and not (kind.type in _CONSTANTS or is_number(kind.type)):
            raise self.refusal(node)
        dated = kind.type in ("date", "timestamptz", "timestamp_ns", *STAMPS)
        if text is not None and dated and (text.endswith("(BC)") or not text[:4].isdigit()):
            raise self.refusal(node)
        default = Column(0, "v", kind.type, initial_default=text)
        return Typed(initial_value(default, time=self.time), kind, node, constant=True)

    def cast(self, value: Typed, type_: Column, node: Node | None = None) -> Typed:
        """Cast a part to another type. DuckDB casts constants."""
        if type_.nested or value.column.nested:
            raise self.refusal(node or value.node)
        if value.type == type_.type:
            return value
        found = self._constant(value.node, type_) if value.constant else None
        if found is not None:
            return found
        self.strict = True
        return Typed(converted(value.sql, value.type, type_.type), type_, node or value.node)

    def shaped(self, value: Typed, type_: Column) -> str:
        """Cast a part to another type. A part of a nested type must have that type, or be NULL or an empty list."""
        if not type_.nested:
            return self.cast(value, type_).sql
        if value.loose:
            return f"CAST(NULL AS {shown_type(type_, time=self.time)})"
        node = value.node
        is_list = node["class"] == "FUNCTION" and node["function_name"] == "list_value"
        if value.type == type_.type == "list" and is_list and not node["children"]:
            return self.empty(type_)
        if shape(value.column) != shape(type_):
            raise self.refusal(value.node)
        return value.sql

    def empty(self, type_: Column) -> str:
        return f"CAST(array() AS {shown_type(type_, time=self.time)})"

    def paired(self, one: Typed, two: Typed) -> tuple[Typed, Typed]:
        """Cast two parts to the type in which DuckDB compares them."""
        if one.loose and not two.loose:
            return self.cast(one, two.column), two
        if two.loose and not one.loose:
            return one, self.cast(two, one.column)
        kinds = {one.type, two.type}
        if "varchar" in kinds and kinds & set(TEXT_KEYS):
            text, other = (one, two) if one.type == "varchar" else (two, one)
            key = Typed(text_as_key(text.sql, other.column, time=self.time), other.column, text.node)
            return (key, two) if text is one else (one, key)
        if all(map(is_number, kinds)):
            common = next((type_ for type_ in reversed(FLOATS) if type_ in kinds), None)
            return (one, two) if common is None else self._both(one, two, common)
        if kinds <= set(TEXTS) or (len(kinds) == 1 and one.type in _ALIKE):
            return one, two
        if kinds <= {"date", *STAMPS}:
            return self._both(one, two, "timestamp")
        raise UnsupportedFeatureError(f"{one.type} and {two.type} are not compared in the same way in Spark")

    def _both(self, one: Typed, two: Typed, type_: str) -> tuple[Typed, Typed]:
        wanted = Column(0, "v", type_)
        return self.cast(one, wanted), self.cast(two, wanted)

    def compared(self, one: Typed, operator: str, two: Typed) -> str:
        left, right = self.paired(one, two)
        return f"({left.sql} {operator} {right.sql})"

    def _branch(self, node: Node, type_: Column) -> str:
        return self.shaped(self.visit(node), type_)

    def _operator(self, node: Node) -> Typed:
        kind, children = node["type"], node["children"]
        match kind:
            case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
                word = kind.removeprefix("OPERATOR_").replace("_", " ")
                return self._true(node, f"{self.visit(children[0]).sql} {word}")
            case "OPERATOR_NOT":
                return self._true(node, f"NOT {self._conditions(children)[0]}")
            case "OPERATOR_COALESCE":
                type_ = self.binder.type_of(node)
                return self.typed(node, f"coalesce({', '.join(self._branch(each, type_) for each in children)})", type_)
            case "COMPARE_IN" | "COMPARE_NOT_IN":
                value = self.visit(children[0])
                pairs = [self.paired(value, self.visit(each)) for each in children[1:]]
                if all(left.sql == pairs[0][0].sql for left, _ in pairs):
                    sql = f"({pairs[0][0].sql} IN ({', '.join(right.sql for _, right in pairs)}))"
                else:
                    sql = f"({' OR '.join(f'({left.sql} = {right.sql})' for left, right in pairs)})"
                return self._true(node, ("NOT " if kind == "COMPARE_NOT_IN" else "") + sql)
            case "ARRAY_EXTRACT":
                return self._extract(node, *map(self.visit, children))
        raise self.refusal(node)

    def _extract(self, node: Node, value: Typed, key: Typed) -> Typed:
        if not key.constant:
            raise self.refusal(node)
        type_ = self.binder.type_of(node)
        text, _ = self.binder.constant(key.node)
        if value.type == "struct" and text is not None:
            known = next((child.name for child in value.column.children if child.name.lower() == text.lower()), text)
            return self.typed(node, f"{value.sql}.{quote(known)}", type_)
        if value.type == "list" and text not in (None, "0"):
            return self.typed(node, f"try_element_at({value.sql}, CAST({key.sql} AS INT))", type_)
        if value.type == "map":
            wanted = self.cast(key, value.column.children[0])
            return self.typed(node, f"try_element_at({value.sql}, {wanted.sql})", type_)
        raise self.refusal(node)


def shape(column: Column) -> object:
    """Return the type of a column with the names and types of its fields, to compare it."""
    return column.type, tuple((child.name, shape(child)) for child in column.children)
