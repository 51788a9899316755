"""The meaning of an expression to DuckDB: its tree, the types of its parts, and the values of constant parts.

Translations into other languages rely on this alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import duckdb

from quacklake.engines.duckdb.expressions import check_expression
from quacklake.engines.duckdb.failures import reading
from quacklake.engines.duckdb.queries import select_of
from quacklake.engines.duckdb.trees import nodes, render
from quacklake.errors import InputError, PredicateError, UnsupportedFeatureError
from quacklake.format.names import fold, literal, quote
from quacklake.format.schema import Column, TableSchema
from quacklake.format.texts import parse_column

Node: TypeAlias = Mapping[str, Any]
"""A part of an expression, as DuckDB's parser writes it down."""


_OF_SESSION = frozenset(
    (
        "current_catalog",
        "current_database",
        "current_query",
        "current_role",
        "current_schema",
        "current_schemas",
        "current_setting",
        "current_user",
        "getvariable",
        "in_search_path",
        "session_user",
        "txid_current",
        "user",
    )
)
"""Functions that tell of the session, or of the connection that works for it."""


def session_function(tree: Any) -> str | None:
    """Return the name of a function in a tree that tells of the session it runs in, if there is one."""
    names = (fold(str(each["function_name"])) for each in nodes(tree) if each.get("class") == "FUNCTION")
    return next((name for name in names if name in _OF_SESSION), None)


class ExpressionBinder:
    """Expressions over the columns of some named tables. It queries a connection, and changes nothing."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, tables: Mapping[str, TableSchema]) -> None:
        self.tables = tables
        self._connection = connection
        self._select = select_of(connection, "1")
        self._from = ""

    def parse(self, text: str) -> Node:
        """Return the tree of a text that is one expression of these tables. Raise ``PredicateError``."""
        try:
            check_expression(text)
            node: Node = select_of(self._connection, text)["node"]["select_list"][0]
        except InputError as error:
            raise PredicateError(error.message, hint='write a condition such as "id > 5"') from None
        named = [each["column_names"] for each in nodes(node) if each.get("class") == "COLUMN_REF"]
        self._from = self._relations({fold(name) for names in named for name in names})
        # DuckDB allows no aggregate or window there
        self._run(f"SELECT 1 FROM {self._from} WHERE ({self.text(node)}) IS NULL")
        return node

    def _relations(self, names: Collection[str]) -> str:
        """Return the tables with those of their columns that some names may mean."""
        relations = []
        for table, schema in self.tables.items():
            columns = [column for column in schema.columns if fold(column.name) in names]
            made = [f"NULL::{column.duckdb_type()} AS {quote(column.name)}" for column in columns]
            relations.append(f"(SELECT {', '.join(made or ['NULL AS _ql_nothing'])}) AS {quote(table)}")
        return ", ".join(relations)

    def text(self, node: Node) -> str:
        """Return a part of an expression as text."""
        select = {**self._select["node"], "select_list": [node]}
        return render(self._connection, {**self._select, "node": select}).removeprefix("SELECT ")

    def type_of(self, node: Node) -> Column:
        """Return the type of a part, as that of a column.

        Raise ``UnsupportedFeatureError`` for one that a lake has not.
        """
        return _column(self._run(f"SELECT {self.text(node)} AS v FROM {self._from}").types[0])

    def column(self, node: Node) -> tuple[str, list[Column]] | None:
        """Return the table and the column that a name means, with the fields inside of it that it goes down to."""
        names = node["column_names"]
        owner = next((name for name in self.tables if len(names) > 1 and fold(name) == fold(names[0])), None)
        owners = self.tables if owner is None else [owner]
        path = names if owner is None else names[1:]
        for table in owners:
            own = self.tables[table].get(path[0])
            if own is not None:
                return table, [own, *_fields(own, path[1:])]
        return None

    # -- constants ---------------------------------------------------------------------------------------------------

    def is_constant(self, node: Node) -> bool:
        """Return whether no column of the tables has a part in it."""
        return all(
            each.get("class") != "SUBQUERY" and (each.get("class") != "COLUMN_REF" or self.column(each) is None)
            for each in nodes(node)
        )

    def constant(self, node: Node, type_: Column | None = None) -> tuple[str | None, Column]:
        """Return the value of a constant part as text, and its type, or what a cast to ``type_`` makes of it."""
        value = self._value(node, type_)
        text: str | None = self._one(f"SELECT CAST({value} AS VARCHAR)")
        return text, type_ or self.type_of(node)

    def interval(self, node: Node) -> tuple[int, int, int] | None:
        """Return the months, days and microseconds of a constant interval."""
        with reading():
            value = self._run(f"SELECT {self._value(node, None)} AS v").to_arrow_table().column("v")[0].as_py()
        if value is None:
            return None
        months, days, nanos = value
        return int(months), int(days), int(nanos) // 1000

    def _value(self, node: Node, type_: Column | None) -> str:
        names = sorted({each["function_name"] for each in nodes(node) if each.get("class") == "FUNCTION"})
        if (name := session_function(node)) is not None:
            raise UnsupportedFeatureError(f"{name} needs a SQL session")
        if names:
            known = f"function_name IN ({', '.join(map(literal, names))})"
            if self._one(f"SELECT count(*) FROM duckdb_functions() WHERE stability = 'VOLATILE' AND {known}"):
                raise UnsupportedFeatureError(
                    f"{self.text(node)} has another value for each row, which Spark cannot compute"
                )
        text = self.text(node)
        return text if type_ is None else f"CAST({text} AS {type_.duckdb_type()})"

    # -- asking ------------------------------------------------------------------------------------------------------

    def _run(self, query: str) -> duckdb.DuckDBPyRelation:
        with reading():
            return self._connection.sql(query)

    def _one(self, query: str) -> Any:
        with reading():
            return self._run(query).fetchall()[0][0]


def _column(type_: Any) -> Column:
    text = str(type_)
    try:
        return parse_column("v", text)
    except InputError as error:
        raise UnsupportedFeatureError(f"Spark has no type {text}", hint=error.hint) from None


def _fields(column: Column, path: Sequence[str]) -> Iterator[Column]:
    for name in path:
        field = next((child for child in column.children if fold(child.name) == fold(name)), None)
        if column.type != "struct" or field is None:
            raise PredicateError(f'"{column.name}" has no field {name!r}')
        yield field
        column = field
