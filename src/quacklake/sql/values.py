"""Values of parameters, and of expressions without columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quacklake.duckdb_versions import arrow_table, first_row
from quacklake.format.names import fold, literal
from quacklake.sql import tree
from quacklake.sql.tree import Node

if TYPE_CHECKING:
    from quacklake.sql.session_connection import SessionConnection


@dataclass
class Values:
    """The parameters of one statement, and an evaluator for expressions that use them."""

    session: SessionConnection
    parameters: Any = None

    def used(self, node: Node) -> dict[str, Any] | None:
        """Return the parameters that a tree uses, by name or number. DuckDB refuses any others."""
        given = self.parameters
        if given is None:
            return None
        names = {str(found["identifier"]) for found in tree.nodes(node) if found.get("class") == "PARAMETER"}
        return {name: given[fold(name)] for name in names} or None

    def evaluate(self, expression: Node) -> Any:
        """Return the value of an expression without columns."""
        self.session.guard.value(expression)
        query: Node = tree.parse(self.session.connection, "SELECT 1")
        query["node"]["select_list"] = [{**expression, "alias": ""}]
        values = self.used(query)
        connection = self.session.connection
        found = arrow_table(connection, f"{tree.render(connection, query)} LIMIT 1", values)
        return found.column(0)[0].as_py()

    def constant(self, node: Node) -> Node:
        """Return the constant that a call without columns evaluates to in this query."""
        connection = self.session.connection
        query: Node = tree.parse(connection, "SELECT 1 AS v")
        query["node"]["select_list"] = [{**node, "alias": "v"}]
        question = f"SELECT typeof(v), CAST(v AS VARCHAR) FROM ({tree.render(connection, query)})"
        row = first_row(connection, question)
        assert row is not None
        value = "NULL" if row[1] is None else literal(str(row[1]))
        return {**tree.expression_of(connection, f"CAST({value} AS {row[0]})"), "alias": node["alias"]}

    def evaluate_text(self, sql: str) -> Any:
        """Return the value of an expression without columns, given as text."""
        return self.evaluate(tree.expression_of(self.session.connection, sql))
