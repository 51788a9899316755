"""MERGE INTO in Spark: translate the statement into clauses of the Python builder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StringType
from sqlglot import exp

from quacklake.core.sql.timetravel import time_travel
from quacklake.errors import SqlError, UnsupportedFeatureError
from quacklake.extend.names import TableRef, fold
from quacklake.extend.schemas import Column, TableInfo, TableSchema
from quacklake.spark.changes.merge import SPELLED, SparkMerge
from quacklake.spark.runtime.session import has_time, require
from quacklake.spark.runtime.types import TEXT_KEYS, text_as_key
from quacklake.spark.runtime.words import SparkCursor
from quacklake.spark.sql.parsing import Edit, edited, parse, span
from quacklake.spark.sql.queries import run_query
from quacklake.spark.sql.rows import assignments
from quacklake.spark.sql.statement import SqlText, Statement
from quacklake.spark.write.rows import default_of

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from quacklake.core.sql.words import Word


_OPEN, _CLOSE = ("(", "[", "CASE"), (")", "]", "END")
_HINT = "compare the column with one value of the source, beside AND alone; or compute that in the source"


def with_stored_keys(text: str, rows: DataFrame, schema: TableSchema, *, time: bool) -> str:
    """Return a condition on ``target`` and ``source`` with texts in the form of the columns they are compared with.

    Raise ``UnsupportedFeatureError`` for a column of unknown form, or an equality nested in another condition.
    """
    own = {fold(column.name): column for column in schema.columns if column.type in (*TEXT_KEYS, *SPELLED)}
    if not own:
        return text
    given = set(map(fold, rows.columns))
    left = sum(_pair(equal, own, given) is not None for equal in parse(text).find_all(exp.EQ, exp.NullSafeEQ))
    edits = []
    for start, middle, end in _equalities(text, SparkCursor(text).words):
        sides = (text[start : middle.start], text[middle.end : end])
        pair = _pair(exp.EQ(this=parse(sides[0]), expression=parse(sides[1])), own, given)
        if pair is None:
            continue
        left -= 1
        column, number = pair
        kind = rows.alias("source").select(f.expr(sides[number])).schema.fields[0].dataType
        if not isinstance(kind, StringType):
            continue
        if column.type in SPELLED:
            raise UnsupportedFeatureError(
                f'Spark cannot compare keys of type {column.type}, as "{column.name}" has', hint="use lake.sql"
            )
        place = (start, middle.start) if number == 0 else (middle.end, end)
        edits.append(Edit(*place, f" {text_as_key(f'({sides[number]})', column, time=time)} "))
    if left:
        raise UnsupportedFeatureError(f"Spark compares texts in a part of {text!r}", hint=_HINT)
    return edited(text, edits)


def _pair(equal: exp.Expr, own: Mapping[str, Column], given: Set[str]) -> tuple[Column, int] | None:
    """Return the column of the table in an equality, and the number of the side that is a value of the source.

    ``own`` are the columns that Spark shows as texts, ``given`` those of the source.
    """

    def is_target(column: exp.Column) -> bool:
        first = fold(column.parts[0].name)
        return first not in given if len(column.parts) == 1 else first == "target"

    sides = [equal.this.unnest(), equal.expression.unnest()]
    for number, (one, two) in enumerate((sides, sides[::-1])):
        named = isinstance(one, exp.Column) and len(one.parts) <= 2 and is_target(one)
        column = own.get(fold(one.name)) if named else None
        if column is not None and not any(map(is_target, two.find_all(exp.Column))):
            return column, 1 - number
    return None


def _equalities(text: str, words: list[Word]) -> Iterator[tuple[int, Word, int]]:
    """Yield the equalities that must all hold: the start of each, its operator, and its end."""
    words = _bare(words)
    parts: list[list[Word]] = [[]]
    between = 0
    for word, depth in _depths(words):
        if depth == 0 and word.upper in ("OR", "NOT", "!"):
            return
        between += depth == 0 and word.upper == "BETWEEN"
        if depth == 0 and word.upper == "AND" and not between:
            parts.append([])
            continue
        between -= depth == 0 and word.upper == "AND"
        parts[-1].append(word)
    for part in parts:
        if len(parts) > 1 or len(_bare(part)) < len(part):
            yield from _equalities(text, part)
            continue
        signs = [word for word, depth in _depths(part) if depth == 0 and word.upper in ("=", "==", "<=>")]
        if len(signs) == 1:
            yield part[0].start, signs[0], part[-1].end


def _depths(words: list[Word]) -> Iterator[tuple[Word, int]]:
    """Yield words with the number of brackets around them. A bracket counts itself."""
    depth = 0
    for word in words:
        depth += word.upper in _OPEN
        yield word, depth
        depth -= word.upper in _CLOSE


def _bare(words: list[Word]) -> list[Word]:
    """Return words without the parentheses around all of them."""
    while len(words) > 2 and words[0].text == "(" and all(depth > 0 for _, depth in _depths(words)):
        words = words[1:-1]
    return words


@dataclass(frozen=True, slots=True)
class _SideNames:
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
    prefix = cursor.prefix()
    cursor.expect("MERGE")
    evolving = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    names = cursor.names()
    table = statement.table(names)
    if table is None:
        return statement.run(SqlText(cursor.text), cursor.text)
    own = cursor.alias("USING")
    cursor.expect("USING")
    source, other = _source(cursor)
    cursor.expect("ON")
    condition = cursor.until("WHEN")
    rows = run_query(statement, f"{prefix}SELECT * FROM {source}")
    known = _name_target(statement, table, names, own, other)
    sides = _SideNames(known, has_time(statement.engine.session), statement)
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


def _name_target(
    statement: Statement, table: TableInfo, names: list[str], own: str | None, other: list[str]
) -> dict[tuple[str, ...], str]:
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


def _clause(cursor: SparkCursor, builder: SparkMerge, table: TableInfo, own: str, sides: _SideNames) -> None:
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


def _values(assigned: Mapping[str, str], table: TableInfo, sides: _SideNames) -> dict[str, SparkColumn]:
    found = {}
    for name, value in assigned.items():
        is_default = fold(value) == "default"
        column = table.schema.find(name) if is_default else None
        found[name] = sides.column(value) if column is None else sides.made(default_of(column, time=sides.time))
    return found


def _insert(
    cursor: SparkCursor, builder: SparkMerge, table: TableInfo, sides: _SideNames, when: SparkColumn | None
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
