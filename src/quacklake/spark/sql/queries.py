"""Spark queries over a lake: replace names of the lake by DataFrames, and keep the rest of the text.

Views of the lake are translated if that is known to give the same rows; else DuckDB computes them, if that is little.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.compute as pc
from pyspark.errors import ParseException
from pyspark.sql import DataFrame
from sqlglot import exp

from quacklake.core.engines.duckdb.expressions import session_function
from quacklake.core.engines.duckdb.stored_texts import LAKE
from quacklake.core.engines.duckdb.trees import serialize
from quacklake.core.format.objects import ViewInfo
from quacklake.core.operations.views import check_depth
from quacklake.core.scan.plan import column_key
from quacklake.core.sql.timetravel import NO_ALIAS, TimeTravel, time_travel
from quacklake.core.sql.views import view_rows, view_tables
from quacklake.errors import NotFoundError, QuacklakeError, SqlError, UnsupportedFeatureError
from quacklake.extend.names import DEFAULT_SCHEMA, fold
from quacklake.extend.predicates import ANYTHING, Predicate, every
from quacklake.extend.schemas import TableInfo, TableSchema
from quacklake.extend.writes import Transaction
from quacklake.spark.engine import SparkEngine
from quacklake.spark.runtime.local import inlined_rows, shown_columns
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.stored_texts import query_text
from quacklake.spark.runtime.types import quote
from quacklake.spark.runtime.words import SparkCursor
from quacklake.spark.sql import metadata
from quacklake.spark.sql.parsing import Edit, declaration, edited, names_of, parse, span
from quacklake.spark.sql.pruning import conditions, outside_conditions, predicate_of, where_predicate
from quacklake.spark.sql.statement import SqlText, Statement, unknown
from quacklake.spark.sql.view_queries import Named, Relation, ViewQuery, escaped, unescaped

_MAX_BYTES = 1 << 30  # the most bytes of files that DuckDB reads for a view, in the driver
_MAX_ROWS = 100_000  # the most rows of a view that the driver holds in memory
TARGET = "_ql_target"  # the name, in a query, of the rows of the table that a statement changes


def run_query(statement: Statement, text: str, head: str = "") -> DataFrame:
    """Run a query, or the query of a Spark command that begins with ``head``."""
    plain = f"{head}{text}"
    rewriter = Rewriter(statement)
    try:
        found = rewriter.text(text, head)
    except SqlError as error:
        if rewriter.frames or error.hint is not None:
            raise
        return _as_it_is(statement, plain, error)
    try:
        return statement.run(found, None if found.frames else plain)
    except SqlError as error:
        if rewriter.views:
            error.hint = error.hint or f"translated from the SQL of DuckDB: the view {', '.join(rewriter.views)}"
        if rewriter.views or not isinstance(error.__cause__, ParseException) or not found.frames:
            raise
        # Spark's positions refer to the rewritten text, so let Spark find the error in the original one
        statement.run(SqlText(rewriter.plain(plain)), plain)
        raise


def run_stored_query(statement: Statement, text: str, own: Collection[str]) -> DataFrame:
    """Run a query of somebody else over the lake and some views of the session alone.

    ``own`` names these views.
    Raise ``NotPermittedError`` for what might do harm, and ``NotFoundError`` for any other relation.
    """
    return statement.run(Rewriter(statement, own={fold(name) for name in own}).text(query_text(text)))


def _as_it_is(statement: Statement, text: str, error: SqlError) -> DataFrame:
    """Let Spark run a text that cannot be parsed here. It may name nothing of the lake, or be wrong."""
    try:
        return statement.run(SqlText(text), text)
    except SqlError:
        if time_travel(SparkCursor(text)):
            raise error from None
        raise
    except NotFoundError:
        words = {fold(word.value) for word in SparkCursor(text).words if word.kind in ("word", "name")}
        if any(fold(info.name) in words for info in statement.view().tables()):
            raise error from None
        raise


@dataclass(frozen=True, slots=True)
class _QueryScope:
    """The scope of names: the session for the user's text, or the lake for the text of a view."""

    view: ViewInfo | None = None
    tx: Transaction | None = None
    depth: int = 0
    outside: Sequence[exp.Expr] = ()


@dataclass
class _Walk:
    """The state of rewriting one query: its text, its time travel clauses, and tables that lose their qualifiers."""

    query: str
    travels: Sequence[TimeTravel]
    scope: _QueryScope
    twice: Set[str] = frozenset()
    """Names that tables of several schemas share."""
    renamed: dict[tuple[str, ...], str] = field(default_factory=dict)


@dataclass
class Rewriter:
    statement: Statement
    target: tuple[DataFrame, TableInfo] | None = None
    whole: bool = False
    """True when tables are read whole, without skipping files."""
    own: Collection[str] | None = None
    """The views of the session that a query of somebody else may read; None for a query of the session's user."""
    frames: dict[str, DataFrame] = field(default_factory=dict)
    has_views: bool = False
    """True when the texts of views are in the query."""
    read: list[tuple[TableInfo, Transaction]] = field(default_factory=list)
    """The tables that were read, each with its transaction."""
    views: list[str] = field(default_factory=list)
    """The views that were translated."""
    _known: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _computed: dict[tuple[Any, ...], Relation] = field(default_factory=dict)

    def text(self, query: str, head: str = "") -> SqlText:
        """Return a query as Spark runs it. Raise ``SqlError``, and ``NotFoundError`` for a name of the lake."""
        try:
            sql = self._query(query, _QueryScope())
        except RecursionError:
            raise SqlError("the query is nested too deeply") from None
        if self.frames:
            return SqlText(escaped(head) + sql, self.frames)
        # a view may name no table
        return SqlText(f"{head}{unescaped(sql) if self.has_views else query}")

    def add(self, frame: DataFrame) -> str:
        """Add a DataFrame, and return the placeholder for it in the text."""
        name = f"ql_{len(self.frames)}"
        self.frames[name] = frame
        return f"{{{name}}}"

    @staticmethod
    def plain(query: str) -> str:
        """Return a query with blanks for time travel clauses, so that all other words keep their positions."""
        found = time_travel(SparkCursor(query))
        return edited(query, [Edit(each.start, each.end, " " * (each.end - each.start)) for each in found])

    def _query(self, query: str, scope: _QueryScope) -> str:
        cursor = SparkCursor(query)
        if cursor.sees("TABLE"):
            cursor.take()
            query = f"SELECT * FROM {cursor.rest()}"
        walk = _Walk(query, time_travel(SparkCursor(query)), scope)
        tree = parse(self.plain(query))
        edits: list[Edit] = []
        # a hint only repeats a name
        every_table = tree.find_all(exp.Table)
        tables = [each for each in every_table if declaration(each) is None and each.find_ancestor(exp.Hint) is None]
        several: dict[str, set[tuple[str, ...]]] = {}  # tables without an alias, by the last part of their names
        for names in (names_of(each) for each in tables if not each.alias and not isinstance(each.this, exp.Func)):
            if len(names) <= 3:
                several.setdefault(fold(names[-1]), set()).add(tuple(_whole(self.statement, names)))
        walk.twice = {name for name, found in several.items() if len(found) > 1}
        for table in tables:
            edits += self._relation(walk, table)
        # remove schemas from qualified columns, because the DataFrames have none
        for parts in (column.parts for column in tree.find_all(exp.Column)) if walk.renamed else ():
            for length in range(len(parts) - 1, 1, -1):
                known = walk.renamed.get(tuple(fold(part.name) for part in parts[:length]))
                if known is not None:
                    edits.append(Edit(*span(parts[:length]), escaped(quote(known))))
                    break
        return edited(query, edits, escaped)

    def _relation(self, walk: _Walk, table: exp.Table) -> list[Edit]:
        """Return the edits that replace a relation; none for a relation outside the lake."""
        first, last = span(table.parts)
        names = names_of(table)
        if self.target is not None and walk.scope.view is None and names == [TARGET]:
            rows, info = self.target
            if fold(table.alias) == fold(info.name):
                walk.renamed.update(_qualify_names(self.statement, [info.schema_name, info.name], info.name))
            return [Edit(first, last, self.add(rows))]
        if self.own is not None and walk.scope.view is None and len(names) == 1 and fold(names[0]) in self.own:
            return []  # before a table of the lake that has the same name
        travel = _travel(walk.query, last, walk.travels)
        if isinstance(table.this, exp.Func):
            made, last = self._function(walk.query, first)
        else:
            made = self._replace_name(names, table, travel, walk.scope)
            if made is None and walk.scope.view is not None:
                raise unknown(names, f'the view "{walk.scope.view.qualified_name}" names it')
            if made is None and self.own is not None:
                raise unknown(names, "the query reads its source and the lake only")
        if made is None:
            return []
        edits = [Edit(first, last, made)]
        if travel is not None:
            edits.append(Edit(travel.start, travel.end, ""))
        if not table.alias:
            alias = names[-1]
            if fold(alias) in walk.twice:
                alias = ".".join(_whole(self.statement, names)[-2:])
            walk.renamed.update(_qualify_names(self.statement, names, alias))
            place = _alias_place(walk.query, last, travel)
            edits.append(Edit(place, place, f" AS {escaped(quote(alias))}"))
        return edits

    def _replace_name(
        self, names: Sequence[str], table: exp.Table, travel: TimeTravel | None, scope: _QueryScope
    ) -> str | None:
        """Return the replacement for a name of the lake, or None for any other name."""
        statement = self.statement
        tx = scope.tx
        if travel is not None or tx is None:
            if not self._may_be_ours(names, travel):
                return None
            tx = statement.view(travel)
        found = self._in_view(names, tx, scope.view) if scope.view is not None else statement.find(names, tx)
        if isinstance(found, ViewInfo):
            return self._view(found, tx, scope, table)
        if found is not None:
            predicate = predicate_of(conditions(table, scope.outside), found.schema, zone_of(statement))
            return self._frame(found, tx, predicate)
        about = metadata.described(statement, names, tx)
        return None if about is None else self.add(about)

    def _may_be_ours(self, names: Sequence[str], travel: TimeTravel | None) -> bool:
        """Return False for a past state of an unqualified name that the lake lacks now, and that Spark has."""
        if travel is None:
            return True
        view = self.statement.view()
        return (
            (len(names) <= 3 and self.statement.session.names.explicit(names))
            or self.statement.find(names, view) is not None
            or metadata.owner(self.statement, names, view) is not None
            or not self.statement.engine.session.catalog.tableExists(".".join(map(quote, names)))
        )

    def _in_view(self, names: Sequence[str], tx: Transaction, view: ViewInfo) -> TableInfo | ViewInfo | None:
        own = names[1:] if len(names) == 3 and fold(names[0]) == fold(self.statement.attached.alias) else names
        if len(own) > 2:
            return None
        schemas = own[:1] if len(own) == 2 else dict.fromkeys((view.schema_name, DEFAULT_SCHEMA))
        found = (tx.get_table(schema, own[-1]) or tx.objects.get_view(schema, own[-1]) for schema in schemas)
        return next((each for each in found if each is not None), None)

    def _frame(self, info: TableInfo, tx: Transaction, predicate: Predicate) -> str:
        """Return the relation with the rows of a table that a predicate does not rule out."""
        self.read.append((info, tx))
        predicate = ANYTHING if self.whole else predicate
        key = (info.id, tx.base.id, predicate)
        if key not in self._known:
            self._known[key] = self.add(self.statement.engine.frame(tx, info, predicate))
        return self._known[key]

    def _view(self, view: ViewInfo, tx: Transaction, scope: _QueryScope, table: exp.Table) -> str:
        self.has_views = True
        if view.dialect == "duckdb":
            self.views.append(view.qualified_name)
            return self._view_relation(view, tx, scope.depth, conditions(table, scope.outside)).sql
        check_depth(view, scope.depth)
        if view.dialect != "spark":
            raise UnsupportedFeatureError(f'the view "{view.qualified_name}" is written in {view.dialect}')
        outside = () if view.aliases else conditions(table, scope.outside)
        inner = self._query(query_text(view.sql.replace(LAKE, "")), _QueryScope(view, tx, scope.depth + 1, outside))
        if not view.aliases:
            return f"({inner})"
        return f"(SELECT * FROM ({inner}) AS {_view_alias(view.aliases)})"

    def _view_relation(self, view: ViewInfo, tx: Transaction, depth: int, outside: Sequence[exp.Expr]) -> Relation:
        """Return a view written in DuckDB's SQL: translated, or with rows that DuckDB computes."""
        check_depth(view, depth)
        try:
            return self.translated(view, tx, depth, outside)
        except NotFoundError:
            raise
        except QuacklakeError as error:
            key = ("view", view.id, tx.base.id)
            if key not in self._computed:
                frame, schema = _computed_view(self.statement.engine, tx, view, error)
                self._computed[key] = Relation(self.add(frame), schema.columns)
            return self._computed[key]

    def translated(self, view: ViewInfo, tx: Transaction, depth: int = 0, outside: Sequence[exp.Expr] = ()) -> Relation:
        """Translate a view from DuckDB's SQL. Raise ``UnsupportedFeatureError`` if Spark cannot compute it."""

        def find(named: Named) -> Relation:
            names = [part for part in (named.schema, named.name) if part is not None]
            found = self._in_view(names, tx, view)
            if found is None:
                raise unknown(names, f'the view "{view.qualified_name}" names it')
            inside = [] if view.aliases else outside_conditions(named, outside)
            if isinstance(found, ViewInfo):
                if found.dialect != "duckdb":
                    raise UnsupportedFeatureError(f'the view "{found.qualified_name}" is written in {found.dialect}')
                return self._view_relation(found, tx, depth + 1, inside)
            predicate = predicate_of(inside, found.schema, zone_of(self.statement))
            return Relation(
                self._frame(found, tx, every([predicate, where_predicate(named, found.schema)])), found.schema.columns
            )

        session, context = self.statement.engine.session, self.statement.engine.context
        with context.engine.connection() as connection:
            query = ViewQuery(connection, find, time=has_time(session))
            made = query.translated(view.sql.replace(LAKE, ""))
        if query.strict and session.conf.get("spark.sql.ansi.enabled") != "true":
            raise UnsupportedFeatureError("the session continues with a wrong number if one is too large")
        if not view.aliases:
            return made
        names = [*view.aliases, *(column.name for column in made.columns[len(view.aliases) :])]
        columns = tuple(replace(column, name=name) for column, name in zip(made.columns, names, strict=True))
        return Relation(f"(SELECT * FROM {made.sql} AS {_view_alias(names)})", columns)

    def _function(self, query: str, first: int) -> tuple[str | None, int]:
        """Return the replacement for a lake function, or None for any other, and the end of the call."""
        cursor = _cursor_at(query, first)
        names = cursor.names()
        if not metadata.is_function(names) or not cursor.sees("("):
            return None, first
        frame = metadata.called(self.statement, names, cursor.items())
        return self.add(frame), cursor.words[cursor.at - 1].end


def _view_alias(names: Sequence[str]) -> str:
    return f"ql_view({', '.join(escaped(quote(name)) for name in names)})"


def _computed_view(
    engine: SparkEngine, tx: Transaction, view: ViewInfo, reason: QuacklakeError
) -> tuple[DataFrame, TableSchema]:
    """Return a view that DuckDB computes in the driver. Raise ``UnsupportedFeatureError`` if that is too much."""
    context = engine.context
    what = f'the view "{view.qualified_name}" cannot be computed by Spark with the same meaning ({reason.message})'
    with context.engine.connection() as connection:
        if session_function(serialize(connection, view.sql.replace(LAKE, ""))) is not None:
            raise UnsupportedFeatureError(what, hint="read it with lake.sql")
    plans = [tx.plan(table) for table in view_tables(context, tx, view)]
    size = sum(pc.sum(plan.files.column("file_size_bytes")).as_py() or 0 for plan in plans)
    if size > _MAX_BYTES:
        raise UnsupportedFeatureError(
            f"{what}, and it reads {size >> 20} MB, too much for DuckDB in the driver",
            hint="read it with lake.sql, or give its query to Spark",
        )
    schema, rows = view_rows(context, tx, view, _MAX_ROWS + 1)
    if rows.num_rows > _MAX_ROWS:
        raise UnsupportedFeatureError(
            f"{what}, and it has more than {_MAX_ROWS} rows, too many for DuckDB in the driver",
            hint="read it with lake.sql, or give its query to Spark",
        )
    columns = schema.columns
    select = shown_columns(columns, time=has_time(engine.session))
    for number, column in enumerate(columns):
        if column.type == "int128":  # with all its digits
            select[number] = f"{column_key(column)} AS {quote(column.name)}"
    return inlined_rows(engine.session, rows, columns).selectExpr(*select), schema


def _cursor_at(query: str, place: int) -> SparkCursor:
    cursor = SparkCursor(query)
    while (word := cursor.peek()) is not None and word.start < place:
        cursor.take()
    return cursor


def _whole(statement: Statement, names: Sequence[str]) -> list[str]:
    """Return a name with its lake and schema, in one spelling."""
    alias, full = fold(statement.attached.alias), [fold(part) for part in names]
    if len(full) == 2 and full[0] == alias and not statement.session.names.has_schema(statement.attached, full[0]):
        return [alias, DEFAULT_SCHEMA, full[1]]
    return full if len(full) > 2 else [alias, *full] if len(full) == 2 else [alias, DEFAULT_SCHEMA, *full]


def _qualify_names(statement: Statement, names: Sequence[str], known: str) -> dict[tuple[str, ...], str]:
    """Return the qualified names by which columns may refer to their table, each with the new name ``known``."""
    whole = _whole(statement, names)
    found = {tuple(whole[at:]): known for at in range(len(whole) - 1)}
    if whole[1] == DEFAULT_SCHEMA:
        found[whole[0], whole[-1]] = known
    return {**found, tuple(fold(part) for part in names): known}


def _travel(query: str, last: int, travels: Sequence[TimeTravel]) -> TimeTravel | None:
    """Return the time travel clause after the name or the alias of a relation that ends here, or None."""
    found = next((each for each in travels if each.start >= last), None)
    if found is None:
        return None
    between = SparkCursor(query[last : found.start]).words
    if between and between[0].upper == "AS":
        between = between[1:]
    is_alias = len(between) == 1 and between[0].kind in ("word", "name") and between[0].upper not in NO_ALIAS
    return found if not between or is_alias else None


def _alias_place(query: str, last: int, travel: TimeTravel | None) -> int:
    """Return the position for the alias of a relation, which is after its sample."""
    place = last if travel is None else travel.end
    cursor = _cursor_at(query, place)
    if cursor.accept("TABLESAMPLE"):
        cursor.skip_group()
        if cursor.accept("REPEATABLE"):
            cursor.skip_group()
        return cursor.words[cursor.at - 1].end
    return place


def zone_of(statement: Statement) -> Callable[[], str]:
    """Return a function that asks for the time zone of the session."""
    return lambda: str(statement.engine.session.conf.get("spark.sql.session.timeZone"))
