"""Translate queries of views from DuckDB's SQL into Spark SQL with the same rows.

DuckDB supplies the tree of a query and the types of its parts. Expressions are translated as everywhere else
(``quacklake.spark.expressions``); around them, only what is listed here is translated. Everything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from quacklake.core.engines.duckdb.expressions import ExpressionBinder
from quacklake.core.engines.duckdb.trees import constant_of, nodes, serialize
from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.names import fold
from quacklake.extend.names import quote as lake_quote
from quacklake.extend.schemas import Column, TableSchema, parse_type
from quacklake.spark.expressions.casts import FLOATS, INTEGERS, STAMPS
from quacklake.spark.expressions.translator import BOOLEAN, Node, Translator, Typed, shape
from quacklake.spark.runtime.types import quote

KEYS = (*INTEGERS, "boolean", "varchar", "uuid", "date", "timestamptz", *STAMPS)
"""Types that DuckDB and Spark compare and sort alike; decimals too."""


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
        query = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
        return frozenset(str(row[0]).lower() for row in self._run(query).fetchall())

    def is_aggregate(self, node: Node) -> bool:
        return node.get("class") == "FUNCTION" and str(node["function_name"]).lower() in self.aggregates

    def is_row_wise(self, tree: Any) -> bool:
        """Return True when no part is computed from several rows."""
        return not any(each.get("class") == "WINDOW" or self.is_aggregate(each) for each in nodes(tree))

    def is_constant(self, node: Node) -> bool:
        return super().is_constant(node) and self.is_row_wise(node)

    def title(self, node: Node) -> str:
        """Return the title of a column without a name."""
        return str(self._run(f"SELECT {self.text(node)} FROM {self._from}").columns[0])


class ViewTranslator(Translator):
    """Translates expressions of a query, including aggregates.

    With ``fractions``, also sums and averages of floating-point numbers, whose last digits depend on the order of rows.
    """

    binder: ViewBinder
    fractions = False

    def visit(self, node: Node) -> Typed:
        if self.binder.is_aggregate(node):
            return self._aggregate(node)
        if node["class"] == "COLUMN_REF":
            self.binder.type_of(node)  # DuckDB reports an ambiguous name
        return super().visit(node)

    def condition(self, node: Node) -> str:
        return self.cast(self.visit(node), BOOLEAN).sql

    def value(self, node: Node) -> Typed:
        """Translate a part as a result column, in DuckDB's type."""
        found = self.visit(node)
        if found.type != self.binder.type_of(node).type:  # such as NULL, which takes any type
            raise self.refusal(node)
        return found

    def _aggregate(self, node: Node) -> Typed:
        name = str(node["function_name"]).lower()
        arguments = [self.visit(each) for each in node["children"]]
        inner = any(self.binder.is_aggregate(each) for child in node["children"] for each in nodes(child))
        distinct = "DISTINCT " if node["distinct"] else ""
        if inner or node["order_bys"]["orders"] or node.get("export_state"):
            raise self.refusal(node)
        chosen = f" FILTER (WHERE {self.condition(node['filter'])})" if node["filter"] else ""
        known = {*INTEGERS, *FLOATS} if self.fractions and not distinct else INTEGERS
        if name in ("avg", "mean") and len(arguments) == 1 and arguments[0].type in known:
            total, count = (
                _translate_aggregate(part, arguments, distinct, fractions=True) for part in ("sum", "count")
            )
            # NULL for no values; an exact sum is divided, as in DuckDB
            made: str | None = f"CAST({total}{chosen} AS DOUBLE) / nullif(CAST({count}{chosen} AS DOUBLE), 0D)"
        else:
            made = _translate_aggregate(name, arguments, distinct, fractions=self.fractions)
            made = None if made is None else made + chosen
        if made is None:
            raise self.refusal(node)
        if name == "sum" and arguments[0].type not in FLOATS:  # with all its digits
            made = f"CAST({made} AS DECIMAL(38,{parse_type(arguments[0].type).scale or 0}))"
        self.strict = True
        return self.typed(node, made)


def _is_key(type_: str) -> bool:
    return type_ in KEYS or parse_type(type_).base == "decimal"


def _translate_aggregate(name: str, arguments: Sequence[Typed], distinct: str, *, fractions: bool) -> str | None:
    """Return an aggregate in Spark SQL, or None for one that may differ. ``distinct`` is a word, or nothing."""
    if len(arguments) != 1:
        return "count(*)" if not arguments and name in ("count", "count_star") else None
    sql, type_ = arguments[0].sql, arguments[0].type
    match name:
        case "count" if not distinct or _is_key(type_):
            return f"count({distinct}{sql})"
        case "min" | "max" if _is_key(type_) or type_ in FLOATS:
            return f"{name}({sql})"
        case "bool_and" | "bool_or" if type_ == "boolean":
            return f"{name}({sql})"
        case "sum" if type_ in INTEGERS:  # DuckDB sums whole numbers as HUGEINT
            return f"sum({distinct}CAST({sql} AS DECIMAL(20,0)))"
        case "sum" if parse_type(type_).base == "decimal":
            return f"sum({distinct}{sql})"
        case "sum" if type_ in FLOATS and fractions and not distinct:
            return f"sum(CAST({sql} AS DOUBLE))"
    return None


@dataclass(frozen=True, slots=True)
class Relation:
    """A source of rows: SQL for a FROM clause, with names of DataFrames in braces, and the columns."""

    sql: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A table or view that a query names. ``where`` are conditions on its rows in the SQL of the lake.

    ``outputs`` maps the column names of the query's rows to those of the table, if each row of the query is one row of
    the table; otherwise it is None. ``*`` stands for columns with unchanged names, and computed columns have an empty
    name.
    """

    schema: str | None
    name: str
    where: tuple[str, ...] = ()
    outputs: Mapping[str, str] | None = None


def escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def unescaped(text: str) -> str:
    """Unescape the braces in a text without names of DataFrames."""
    return text.replace("{{", "{").replace("}}", "}")


_JOINS = {"INNER": "JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN", "OUTER": "FULL JOIN"}
_UNKNOWN = ("catalog_name", "column_name_alias", "at_clause", "sample")
"""Parts of a table in FROM that are not translated."""
_NULLS = {"NULLS FIRST": "NULLS FIRST", "NULLS LAST": "NULLS LAST", "ORDER_DEFAULT": "NULLS LAST"}
_DIRECTIONS = {"ASCENDING": "ASC", "ORDER_DEFAULT": "ASC", "DESCENDING": "DESC"}


class ViewQuery:
    """Translates queries of views. ``find`` resolves a name. ``strict`` says whether ANSI mode is needed.

    See ``ViewTranslator`` for ``fractions``.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        find: Callable[[Named], Relation],
        *,
        time: bool,
        fractions: bool = False,
    ) -> None:
        self.connection = connection
        self.strict = False
        self._find = find
        self.time = time
        self.fractions = fractions

    def translated(self, sql: str) -> Relation:
        """Return the rows of a query as a relation. Raise ``UnsupportedFeatureError``, or DuckDB's own error."""
        document = serialize(self.connection, sql)
        if document["error"] or len(document["statements"]) != 1:
            raise UnsupportedFeatureError("the query cannot be read")
        try:
            return self.subquery(document["statements"][0]["node"], {})
        except (KeyError, IndexError) as error:  # a tree in an unknown form
            raise _unsupported_error(f"a part of the query ({error})") from error

    def _query(self, node: Node, common: Mapping[str, Node]) -> Relation:
        for entry in node["cte_map"].get("map") or []:
            query = entry["value"]["query"]["node"]
            if entry["value"].get("aliases") or query["type"] == "RECURSIVE_CTE_NODE":
                raise _unsupported_error("a WITH clause with names for columns, or that is recursive,")
            common = {**common, fold(entry["key"]): {"node": query, "common": common}}
        match node["type"]:
            case "SELECT_NODE":
                return _Select(self, node, common).relation()
            case "SET_OPERATION_NODE":
                sides = [self._query(node[side], common) for side in ("left", "right")]
                word, types = node["setop_type"], [[shape(column) for column in side.columns] for side in sides]
                if word not in ("UNION", "EXCEPT", "INTERSECT") or types[0] != types[1] or node["modifiers"]:
                    raise _unsupported_error("a set operation of other types, or with an order,")
                if not node["setop_all"]:
                    _check_keys(sides[0].columns)
                elif word != "UNION":
                    raise _unsupported_error(f"{word} ALL")
                word += " ALL" if node["setop_all"] else ""
                return Relation(f"({sides[0].sql}) {word} ({sides[1].sql})", sides[0].columns)
        raise _unsupported_error("such a query")

    def named(self, given: Named, common: Mapping[str, Node]) -> Relation:
        """Return the relation of a name: a common table, or an object of the lake."""
        entry = common.get(fold(given.name)) if given.schema is None else None
        return self._find(given) if entry is None else self.subquery(entry["node"], entry["common"])

    def subquery(self, node: Node, common: Mapping[str, Node]) -> Relation:
        found = self._query(node, common)
        return Relation(f"({found.sql})", found.columns)


class _Select:
    def __init__(self, query: ViewQuery, node: Node, common: Mapping[str, Node]) -> None:
        self.query = query
        self.node = node
        self.common = common
        self.tables: dict[str, TableSchema] = {}

    def relation(self) -> Relation:
        node = self.node
        if node.get("qualify") or node.get("sample") or node["aggregate_handling"] != "STANDARD_HANDLING":
            raise _unsupported_error("QUALIFY, a sample or GROUP BY ALL")
        plan = self._from(node["from_table"])
        translator = ViewTranslator(ViewBinder(self.query.connection, self.tables), time=self.query.time)
        translator.fractions = self.query.fractions
        items = list(self._items(translator))
        groups = self._groups(translator, items)
        where, having = (
            escaped(translator.condition(node[part])) if node[part] else "" for part in ("where_clause", "having")
        )
        distinct, order = self._modifiers(translator, items)
        self.query.strict = self.query.strict or translator.strict
        columns = ", ".join(f"{escaped(one.sql)} AS {escaped(quote(name))}" for name, one in items)
        sql = [f"SELECT {'DISTINCT ' if distinct else ''}{columns}"]
        sql += [f"FROM {self._translate_join(plan, translator)}"] if plan is not None else []
        sql += [f"WHERE {where}"] if where else []
        sql += [f"GROUP BY {', '.join(escaped(each) for each in groups)}"] if groups else []
        sql += [f"HAVING {having}"] if having else []
        sql += [f"ORDER BY {', '.join(escaped(each) for each in order)}"] if order else []
        return Relation(
            " ".join(sql), tuple(Column(0, name, one.type, children=one.column.children) for name, one in items)
        )

    def _from(self, node: Node) -> object | None:
        """Return the relations of FROM as SQL. Joins are tuples whose conditions are translated once all are known."""
        match node["type"]:
            case "EMPTY":
                return None
            case "BASE_TABLE" if not any(node.get(part) for part in _UNKNOWN):
                alias = node["alias"] or node["table_name"]
                named = Named(node["schema_name"] or None, node["table_name"], *self._narrow(alias))
                return self._add(alias, self.query.named(named, self.common))
            case "SUBQUERY" if not (node["column_name_alias"] or node.get("sample")) and node["alias"]:
                return self._add(node["alias"], self.query.subquery(node["subquery"]["node"], self.common))
            case "JOIN" if node["ref_type"] in ("REGULAR", "CROSS") and not node["using_columns"]:
                word = "CROSS JOIN" if node["ref_type"] == "CROSS" else _JOINS.get(node["join_type"])
                if word is not None:
                    return (self._from(node["left"]), word, self._from(node["right"]), node.get("condition"))
        raise _unsupported_error("a part of FROM")

    def _add(self, alias: str, found: Relation) -> str:
        names = [fold(column.name) for column in found.columns]
        if fold(alias) in map(fold, self.tables) or len(set(names)) != len(names):
            raise _unsupported_error("a relation or column whose name is there twice")
        self.tables[alias] = TableSchema(found.columns)
        return f"{found.sql} AS {escaped(quote(alias))}"

    def _translate_join(self, plan: object, translator: ViewTranslator) -> str:
        if isinstance(plan, str):
            return plan
        assert isinstance(plan, tuple)
        left, word, right, condition = plan
        sides = [self._translate_join(side, translator) for side in (left, right)]
        sides = [f"({sql})" if isinstance(side, tuple) else sql for side, sql in zip((left, right), sides, strict=True)]
        on = f" ON {escaped(translator.condition(condition))}" if condition else ""
        return f"{sides[0]} {word} {sides[1]}{on}"

    def _narrow(self, alias: str) -> tuple[tuple[str, ...], Mapping[str, str] | None]:
        """Return the conditions on the only table of the query, and its output columns."""
        node, binder = self.node, ViewBinder(self.query.connection, {})
        if node["from_table"]["type"] != "BASE_TABLE":
            return (), None
        where = () if not node["where_clause"] else (binder.text(_bare(node["where_clause"], alias)),)
        if (
            node["group_expressions"]
            or node["having"]
            or node["modifiers"]
            or not binder.is_row_wise(node["select_list"])
        ):
            return where, None
        outputs: dict[str, str] = {}
        for each in node["select_list"]:
            if each["class"] == "STAR":
                outputs["*"] = "*"
            elif each["class"] == "COLUMN_REF":
                outputs[fold(each["alias"] or each["column_names"][-1])] = each["column_names"][-1]
            else:
                outputs[fold(each["alias"])] = ""
        return where, outputs

    def _items(self, translator: ViewTranslator) -> Iterator[tuple[str, Typed]]:
        for node in self.node["select_list"]:
            if node["class"] != "STAR":
                yield str(node["alias"]) or translator.binder.title(node), translator.value({**node, "alias": ""})
                continue
            changed = ("exclude_list", "replace_list", "rename_list", "qualified_exclude_list", "expr")
            if node["columns"] or any(node.get(part) for part in changed):
                raise _unsupported_error("a star with exceptions")
            for alias, schema in self.tables.items():
                if not node["relation_name"] or fold(node["relation_name"]) == fold(alias):
                    for column in schema.columns:
                        names = [alias, column.name] if len(self.tables) > 1 else [column.name]
                        yield column.name, Typed(".".join(map(quote, names)), column, node)

    def _groups(self, translator: ViewTranslator, items: Sequence[tuple[str, Typed]]) -> list[str]:
        node = self.node
        if len(node["group_sets"]) > 1 or (
            node["group_sets"] and len(node["group_sets"][0]) != len(node["group_expressions"])
        ):
            raise _unsupported_error("GROUPING SETS")
        found = []
        for each in node["group_expressions"]:
            number = constant_of(each)
            if number is not None:
                if number.type != "INTEGER" or any(item["class"] == "STAR" for item in node["select_list"]):
                    raise _unsupported_error("such a GROUP BY")
                one = items[int(number.value) - 1][1]
            else:
                one = translator.visit(each)
            if one.constant:
                raise _unsupported_error("GROUP BY a constant")
            _check_keys([one.column])
            found.append(one.sql)
        return found

    def _modifiers(self, translator: ViewTranslator, items: Sequence[tuple[str, Typed]]) -> tuple[bool, list[str]]:
        distinct, order = False, []
        for modifier in self.node["modifiers"]:
            match modifier["type"]:
                case "DISTINCT_MODIFIER" if not modifier["distinct_on_targets"]:
                    distinct = True
                    _check_keys([each.column for _, each in items])
                case "ORDER_MODIFIER":
                    order = [self._order(each, translator, items) for each in modifier["orders"]]
                case _:
                    raise _unsupported_error("LIMIT or DISTINCT ON")
        if distinct and order:
            raise _unsupported_error("DISTINCT with an order")
        return distinct, order

    def _order(self, given: Node, translator: ViewTranslator, items: Sequence[tuple[str, Typed]]) -> str:
        node = given["expression"]
        by_name = {fold(name): each for name, each in items}
        if constant_of(node) is not None:
            raise _unsupported_error("an order by the number of a column")
        if (
            node["class"] == "COLUMN_REF"
            and len(node["column_names"]) == 1
            and fold(node["column_names"][0]) in by_name
        ):
            one = by_name[fold(node["column_names"][0])]
        else:
            one = translator.visit(node)
        if not _is_key(one.type):
            raise _unsupported_error(f"an order by {one.type}")
        return f"{one.sql} {_DIRECTIONS[given['type']]} {_NULLS[given['null_order']]}"


def _bare(node: Node, alias: str) -> Node:
    found: Node = json.loads(json.dumps(node))
    for each in nodes(found):
        names = each.get("column_names") or []
        if each.get("class") == "COLUMN_REF" and len(names) > 1 and fold(names[0]) == fold(alias):
            each["column_names"] = names[1:]
    return found


def _check_keys(columns: Sequence[Column]) -> None:
    """Refuse to compare values whose equality differs between Spark and DuckDB."""
    wrong = next((column for column in columns if not _is_key(column.type)), None)
    if wrong is not None:
        raise _unsupported_error(f"to compare values of type {wrong.type}")


def _unsupported_error(what: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"{what} is not known to mean the same in Spark")
