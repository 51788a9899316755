"""Translate expressions of the lake into Spark SQL with the same values.

DuckDB itself supplies the tree, the types of its parts and the values of constants. Only what is listed here and in
``functions`` is translated, into a form with the same result in Spark; everything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from quacklake.engines.duckdb.binder import ExpressionBinder, Node
from quacklake.engines.duckdb.trees import constant_of
from quacklake.errors import PredicateError, UnsupportedFeatureError
from quacklake.format.schema import Column, TableSchema
from quacklake.format.types import parse_type
from quacklake.operations.expression import Expression
from quacklake.spark.expressions.functions import called
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.types import RAISED, TEXT_KEYS, initial_value, literal, quote, shown_type, text_as_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.engines.duckdb import DuckDBEngine


SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float32", "float64")
TEXTS = ("varchar", "json")
STAMPS = ("timestamp", "timestamp_s", "timestamp_ms")
_EXACT = 1 << 53
"""Up to this value, a double represents every whole number exactly."""


def is_number(type_: str) -> bool:
    """Return True for a number type that Spark has with all its digits."""
    return type_ in INTEGERS or type_ in FLOATS or parse_type(type_).base == "decimal"


def type_name(type_: str) -> str:
    """Return the Spark type that values of a type have in expressions."""
    return shown_type(Column(0, "v", type_), time=True)


def precision(type_: str) -> tuple[int, int]:
    """Return the most digits of a whole number or decimal, and the number of digits after the point."""
    found = parse_type(type_)
    if found.base == "decimal":
        return found.precision or 0, found.scale or 0
    return {"int8": 3, "uint8": 3, "int16": 5, "uint16": 5, "int32": 10, "uint32": 10, "int64": 19}.get(type_, 20), 0


def failing(message: str) -> str:
    """Return SQL that ends the statement with an error message."""
    return f"raise_error({literal(f'{RAISED}{message}{chr(10)}')})"


def checked(value: str, type_: str) -> str:
    """Return the SQL of a whole number that must fit an unsigned type, which Spark lacks."""
    bits = UNSIGNED.get(type_)
    if bits is None:
        return value
    most = (1 << bits) - 1
    wrong = failing(f"a value is out of range: it is no {type_}")
    return f"CAST(CASE WHEN {value} NOT BETWEEN 0 AND {most} THEN {wrong} ELSE {value} END AS {type_name(type_)})"


def converted(value: str, source: str, target: str) -> str:
    """Return a value as another type. Raises ``UnsupportedFeatureError`` when Spark would give another value."""
    if source == target:
        return value
    have, want = parse_type(source), parse_type(target)
    plain = f"CAST({value} AS {type_name(target) if target not in ('json', 'uuid') else 'STRING'})"
    if have.base == "decimal" and target in INTEGERS:
        return _whole(f"round({value})", target)
    if source in FLOATS and target in INTEGERS:
        return _whole(f"bround(CAST({value} AS DOUBLE))", target)
    if have.base == "decimal" and target == "float64":
        return _float_of(value, plain, have.precision or 0, have.scale or 0)
    if source in INTEGERS and target in INTEGERS:
        return checked(value, target) if source in SIGNED and target in UNSIGNED else _whole(value, target)
    if source in INTEGERS and target == "boolean":
        return f"({value} <> 0)"
    if source == "json" and target == "varchar":
        return value
    if (source, target) in _PLAIN or (source in STAMPS and target == "timestamp"):
        return plain
    numbers = source in INTEGERS and (target in FLOATS or want.base == "decimal")
    texts = source == "varchar" and (target in INTEGERS or want.base == "decimal")
    if numbers or (texts and target not in UNSIGNED) or (have.base == want.base == "decimal"):
        return plain
    if target == "varchar" and (source in INTEGERS or have.base == "decimal"):
        return plain
    raise UnsupportedFeatureError(f"a cast from {source} to {target} is not the same in Spark")


_PLAIN = frozenset(
    {
        ("boolean", "varchar"),
        ("uuid", "varchar"),
        ("varchar", "boolean"),
        ("varchar", "float64"),
        ("varchar", "date"),
        ("float32", "float64"),
        ("date", "timestamp"),
        ("timestamp", "date"),
        *(("boolean", name) for name in INTEGERS),
    }
)


def _whole(value: str, target: str) -> str:
    return checked(value, target) if target in UNSIGNED else f"CAST({value} AS {type_name(target)})"


def _float_of(value: str, plain: str, precision: int, scale: int) -> str:
    """Return a decimal as a double, like DuckDB: a whole number divided by a power of ten, rounded once if both fit."""
    if precision <= 15:
        return plain
    wrong = failing("a decimal has more digits than a double")
    most = f"{Decimal(_EXACT).scaleb(-scale):f}BD"
    return f"CASE WHEN {value} NOT BETWEEN -{most} AND {most} THEN {wrong} ELSE {plain} END"


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
_BOOLEAN = Column(0, "v", "boolean")
_CONSTANTS = (*TEXTS, *_ALIKE, *STAMPS)
"""Types other than numbers whose constants Spark reads from DuckDB's text."""


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

    @classmethod
    def of(cls, engine: DuckDBEngine, session: SparkSession, **tables: TableSchema) -> ExpressionScope:
        """Return the scope of expressions that a session will compute."""
        return cls(engine, tables, session.conf.get("spark.sql.ansi.enabled") == "true", has_time(session))

    def condition(self, text: str | Expression) -> str:
        """Return a condition in Spark SQL. Raises ``PredicateError`` or ``UnsupportedFeatureError``."""
        return self._translated(text, lambda translator, found: translator.cast(found, _BOOLEAN).sql)

    def value(self, text: str | Expression) -> str:
        """Return an expression of any type in Spark SQL. Raises the errors of :meth:`condition`."""
        return self._translated(text, lambda _, found: found.sql)

    def _translated(self, given: str | Expression, use: Callable[[Translator, Typed], str]) -> str:
        text = given.sql if isinstance(given, Expression) else given
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


_HINT = "say it to Spark itself: with spark.sql(…), or a column of pyspark.sql.functions; or use lake.table(…)"


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
            case "COLUMN_REF":
                return self._column(node)
            case "COMPARISON":
                return self._comparison(node)
            case "CONJUNCTION":
                word = f" {node['type'].removeprefix('CONJUNCTION_')} "
                return self._true(node, word.join(self._conditions(node["children"])))
            case "BETWEEN":
                value, low, high = (self.visit(node[side]) for side in ("input", "lower", "upper"))
                return self._true(node, f"{self.compared(value, '>=', low)} AND {self.compared(value, '<=', high)}")
            case "CASE":
                return self._case(node)
            case "CAST" if not node["try_cast"]:
                return self.cast(self.visit(node["child"]), self.binder.type_of(node), node)
            case "OPERATOR":
                return self._operator(node)
            case "FUNCTION" if not (node["distinct"] or node["filter"] or node["order_bys"]["orders"]):
                return called(self, node, [self.visit(each) for each in node["children"]])
        raise self.refusal(node)

    def refusal(self, node: Node) -> UnsupportedFeatureError:
        """Return the error for a part that differs in Spark."""
        return UnsupportedFeatureError(f"{self.binder.text(node)} cannot be said in Spark with the same meaning")

    def typed(self, node: Node, sql: str, type_: Column | None = None) -> Typed:
        """Return a part with its SQL and its type in DuckDB."""
        return Typed(f"({sql})", type_ or self.binder.type_of(node), node)

    def _true(self, node: Node, sql: str) -> Typed:
        return Typed(f"({sql})", _BOOLEAN, node)

    def _conditions(self, nodes: Sequence[Node]) -> list[str]:
        return [self.cast(self.visit(each), _BOOLEAN).sql for each in nodes]

    # -- names and constants -----------------------------------------------------------------------------------------

    def _column(self, node: Node) -> Typed:
        found = self.binder.column(node)
        if found is None:
            raise self.refusal(node)
        table, path = found
        names = [*([table] if len(self.binder.tables) > 1 else []), *(column.name for column in path)]
        return Typed(".".join(map(quote, names)), path[-1], node)

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
        if kind.type == "interval":
            return Typed(self._interval(node), kind, node, constant=True)
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

    def _interval(self, node: Node) -> str:
        """Return an interval as text, in the form in which Spark shows those of a lake."""
        found = self.binder.interval(node)
        if found is None:
            return "CAST(NULL AS STRING)"
        months, days, micros = found
        return literal(f"{months} months {days} days {Decimal(micros).scaleb(-6):f} seconds")

    # -- types -------------------------------------------------------------------------------------------------------

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
        if value.type == type_.type == "list" and _is_empty_list(value.node):
            return self.empty(type_)
        if _shape(value.column) != _shape(type_):
            raise self.refusal(value.node)
        return value.sql

    def empty(self, type_: Column) -> str:
        """Return an empty list of a type."""
        return f"CAST(array() AS {shown_type(type_, time=self.time)})"

    def paired(self, one: Typed, two: Typed) -> tuple[Typed, Typed]:
        """Cast two parts to the type in which DuckDB compares them."""
        if one.loose and not two.loose:
            return self.cast(one, two.column), two
        if two.loose and not one.loose:
            return one, self.cast(two, one.column)
        kinds = {one.type, two.type}
        if "varchar" in kinds and kinds & set(TEXT_KEYS):
            return self._as_key(one, two), self._as_key(two, one)
        if all(map(is_number, kinds)):
            common = next((type_ for type_ in reversed(FLOATS) if type_ in kinds), None)
            if common is None:
                return one, two
            wanted = Column(0, "v", common)
            return self.cast(one, wanted), self.cast(two, wanted)
        if kinds <= set(TEXTS) or (len(kinds) == 1 and one.type in _ALIKE):
            return one, two
        if kinds <= {"date", *STAMPS}:
            wanted = Column(0, "v", "timestamp")
            return self.cast(one, wanted), self.cast(two, wanted)
        raise UnsupportedFeatureError(f"{one.type} and {two.type} are not compared in the same way in Spark")

    def _as_key(self, value: Typed, other: Typed) -> Typed:
        """Cast a text to the type of the value that it is compared with."""
        if value.type != "varchar":
            return value
        return Typed(text_as_key(value.sql, other.column, time=self.time), other.column, value.node)

    def compared(self, one: Typed, operator: str, two: Typed) -> str:
        """Return the comparison of two parts."""
        left, right = self.paired(one, two)
        return f"({left.sql} {operator} {right.sql})"

    # -- operators ---------------------------------------------------------------------------------------------------

    def _comparison(self, node: Node) -> Typed:
        one, two = self.visit(node["left"]), self.visit(node["right"])
        if node["type"] == "COMPARE_DISTINCT_FROM":
            return self._true(node, f"NOT {self.compared(one, '<=>', two)}")
        if node["type"] not in _COMPARED:
            raise self.refusal(node)
        return self._true(node, self.compared(one, _COMPARED[node["type"]], two))

    def _case(self, node: Node) -> Typed:
        type_ = self.binder.type_of(node)
        when = self._conditions([each["when_expr"] for each in node["case_checks"]])
        then = [self._branch(each["then_expr"], type_) for each in node["case_checks"]]
        checks = " ".join(f"WHEN {one} THEN {two}" for one, two in zip(when, then, strict=True))
        return self.typed(node, f"CASE {checks} ELSE {self._branch(node['else_expr'], type_)} END", type_)

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
                word = "NOT " if kind == "COMPARE_NOT_IN" else ""
                return self._true(node, word + self._among(self.visit(children[0]), children[1:]))
            case "ARRAY_EXTRACT":
                return self._extract(node, *map(self.visit, children))
        raise self.refusal(node)

    def _among(self, value: Typed, nodes: Sequence[Node]) -> str:
        pairs = [self.paired(value, self.visit(each)) for each in nodes]
        if all(left.sql == pairs[0][0].sql for left, _ in pairs):
            return f"({pairs[0][0].sql} IN ({', '.join(right.sql for _, right in pairs)}))"
        return f"({' OR '.join(f'({left.sql} = {right.sql})' for left, right in pairs)})"

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


def _is_empty_list(node: Node) -> bool:
    return node["class"] == "FUNCTION" and node["function_name"] == "list_value" and not node["children"]


def _shape(column: Column) -> object:
    return column.type, tuple((child.name, _shape(child)) for child in column.children)
