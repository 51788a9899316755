"""MERGE INTO in Spark: translate the statement into clauses of the Python builder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from sqlglot import exp

from quacklake.errors import SqlError, UnsupportedFeatureError
from quacklake.format.names import fold
from quacklake.format.objects import TableInfo
from quacklake.operations.reference import TableRef
from quacklake.spark.changes.merge import SparkMerge
from quacklake.spark.runtime.session import has_time, require
from quacklake.spark.sql.merge_keys import with_stored_keys
from quacklake.spark.sql.parsing import Edit, SparkCursor, edited, parse, span
from quacklake.spark.sql.queries import run_query
from quacklake.spark.sql.rows import assignments, default_of
from quacklake.spark.sql.statement import SqlText, Statement
from quacklake.sql.statements.rows import alias_of, prefix_of
from quacklake.sql.timetravel import time_travel

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from quacklake.spark.changes.merge import SparkMerge


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of the two sides of a merge, in the statement and in the builder."""

    known: Mapping[tuple[str, ...], str]
    time: bool
    statement: Statement

    def column(self, text: str) -> SparkColumn:
        """Return an expression of the statement as a column for the builder."""
        return self.made(self.renamed(text))

    def made(self, text: str) -> SparkColumn:
        with self.statement.translating():
            return f.expr(text)

    def condition(self, text: str, rows: DataFrame, table: TableInfo) -> SparkColumn:
        """Return the condition of the merge. Texts of the source are compared in the form that the table stores."""
        with self.statement.translating():
            return self.made(with_stored_keys(self.renamed(text), rows, table.schema, time=self.time))

    def renamed(self, text: str) -> str:
        """Return an expression with the builder's names of the two sides."""
        tree = parse(text)
        if tree.find(exp.Query) is not None:
            raise UnsupportedFeatureError(
                f"a merge cannot have subqueries in its conditions and values: {text}", hint="put them into the source"
            )
        return edited(text, [edit for column in tree.find_all(exp.Column) for edit in self._edits(column)])

    def _edits(self, column: exp.Column) -> list[Edit]:
        for length in range(len(column.parts) - 1, 0, -1):
            side = self.known.get(tuple(fold(part.name) for part in column.parts[:length]))
            if side is not None:
                return [Edit(*span(column.parts[:length]), side)]
        return []

    def keys(self, text: str) -> list[str] | None:
        """Return the columns that must be equal on both sides, or None if the condition says anything else."""
        tree = parse(self.renamed(text))
        found = []
        for part in tree.flatten() if isinstance(tree, exp.And) else [tree]:
            equal = part.unnest()
            if not isinstance(equal, exp.EQ):
                return None
            sides = (equal.this.unnest(), equal.expression.unnest())
            if not all(isinstance(side, exp.Column) and len(side.parts) == 2 for side in sides):
                return None
            owners = {side.parts[0].name: side.name for side in sides}
            if set(owners) != {"target", "source"} or fold(owners["target"]) != fold(owners["source"]):
                return None
            found.append(owners["target"])
        return found


def merge(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run MERGE [WITH SCHEMA EVOLUTION] INTO name [alias] USING source [alias] ON condition WHEN …."""
    prefix = prefix_of(cursor)
    cursor.expect("MERGE")
    evolving = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    names = cursor.names()
    table = statement.table(names)
    if table is None:
        return statement.run(SqlText(cursor.text), cursor.text)
    own = alias_of(cursor, "USING")
    cursor.expect("USING")
    source, other = _source(cursor)
    cursor.expect("ON")
    condition = cursor.until("WHEN")
    rows = run_query(statement, f"{prefix}SELECT * FROM {source}")
    known = _known(statement, table, names, own, other)
    sides = _Names(known, has_time(statement.engine.session), statement)
    keys = sides.keys(condition)
    on = keys or sides.condition(condition, rows, table)
    require(statement.engine.session, "to merge rows")
    builder = SparkMerge(statement.engine, TableRef(table.schema_name, table.name), rows, on)
    while cursor.accept("WHEN"):
        _clause(cursor, builder, table, own or table.name, sides)
    cursor.end()
    if evolving:
        builder.with_schema_evolution()
    done = builder.execute()
    return statement.numbers(
        num_affected_rows=done.rows_updated + done.rows_deleted + done.rows_inserted,
        num_updated_rows=done.rows_updated,
        num_deleted_rows=done.rows_deleted,
        num_inserted_rows=done.rows_inserted,
    )


def _source(cursor: SparkCursor) -> tuple[str, list[str]]:
    """Return the text of the source with its alias, and its name."""
    first = cursor.at
    names: list[str] = []
    if cursor.sees("("):
        cursor.skip_group()
    else:
        names = cursor.names()
        if cursor.sees("("):
            cursor.skip_group()
    cursor.until("ON")
    text = cursor.slice(first, cursor.at)
    travels = time_travel(SparkCursor(text))
    # words that belong neither to the relation nor to its time travel are an alias
    inside = SparkCursor(edited(text, [Edit(each.start, each.end, "") for each in travels])).words
    if inside[-1].kind in ("word", "name") and (not names or len(inside) > 2 * len(names) - 1):
        names = [inside[-1].value]
    return text, names


def _known(
    statement: Statement, table: TableInfo, names: list[str], own: str | None, other: list[str]
) -> dict[tuple[str, ...], str]:
    """Return the qualifiers of columns for the two sides."""
    target = [own] if own else names
    found = {tuple(map(fold, target[at:])): "target" for at in range(len(target))}
    if own is None:
        found[fold(table.schema_name), fold(table.name)] = "target"
        found[fold(statement.attached.alias), fold(table.schema_name), fold(table.name)] = "target"
    for at in range(len(other)):
        key = tuple(map(fold, other[at:]))
        if key in found:
            raise SqlError(
                f'target and source are both called "{".".join(other[at:])}"', hint="give the source an alias"
            )
        found[key] = "source"
    return found


def _clause(cursor: SparkCursor, builder: SparkMerge, table: TableInfo, own: str, sides: _Names) -> None:
    """Parse WHEN [NOT] MATCHED [BY SOURCE | TARGET] [AND condition] THEN action."""
    matched = "both"
    if cursor.accept("NOT", "MATCHED"):
        matched = "target" if cursor.accept("BY", "SOURCE") else "source"
        cursor.accept("BY", "TARGET")
    else:
        cursor.expect("MATCHED")
    when = sides.column(cursor.until("THEN")) if cursor.accept("AND") else None
    cursor.expect("THEN")
    if matched == "source":
        _insert(cursor, builder, table, sides, when)
    elif cursor.accept("DELETE"):
        (builder.when_matched_delete if matched == "both" else builder.when_not_matched_by_source_delete)(when)
    else:
        cursor.expect("UPDATE", "SET")
        if matched == "both" and cursor.accept("*"):
            builder.when_matched_update_all(when)
            return
        values = _values(assignments(cursor, own), table, sides)
        chosen = builder.when_matched_update if matched == "both" else builder.when_not_matched_by_source_update
        chosen(values, when)


def _values(assigned: Mapping[str, str], table: TableInfo, sides: _Names) -> dict[str, SparkColumn]:
    found = {}
    for name, value in assigned.items():
        is_default = fold(value) == "default"
        column = table.schema.find(name) if is_default else None
        found[name] = sides.column(value) if column is None else sides.made(default_of(column, time=sides.time))
    return found


def _insert(
    cursor: SparkCursor, builder: SparkMerge, table: TableInfo, sides: _Names, when: SparkColumn | None
) -> None:
    cursor.expect("INSERT")
    if cursor.accept("*"):
        builder.when_not_matched_insert_all(when)
        return
    columns = [SparkCursor(item).names()[-1] for item in cursor.items()] if cursor.sees("(") else table.schema.names
    cursor.expect("VALUES")
    values = cursor.items()
    if len(values) != len(columns):
        raise cursor.fail(f"{len(columns)} columns are named but {len(values)} values were supplied")
    given = {name: value for name, value in zip(columns, values, strict=True) if fold(value) != "default"}
    builder.when_not_matched_insert({name: sides.column(value) for name, value in given.items()}, when)
