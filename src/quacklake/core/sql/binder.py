"""Rewrite a query over lakes into one that DuckDB runs: each table name becomes a scan at the requested snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import duckdb

from quacklake.core.duckdb_versions import arrow_table, first_row
from quacklake.core.engines.duckdb.stored_texts import HARMLESS, LAKE
from quacklake.core.format.names import fold, literal, quote
from quacklake.core.sql import tree
from quacklake.core.sql.attached import SYSTEM, Attached, Target, missing
from quacklake.core.sql.equalities import Equalities
from quacklake.core.sql.guard import Size
from quacklake.core.sql.in_place import Aliases, Mention, settle_names, with_names
from quacklake.core.sql.scans import (
    Bound,
    Scan,
    filters_of,
    has_filters,
    hide_virtual,
    is_steady,
    planned,
    scan_filters,
    settle,
    virtual_names,
)
from quacklake.core.sql.texts_as_tables import expand_texts
from quacklake.core.sql.titles import Naming, name_columns
from quacklake.core.sql.tree import Node
from quacklake.errors import InputError, NotFoundError, SqlError, UnsupportedFeatureError

if TYPE_CHECKING:
    from quacklake.core.format.objects import MacroInfo, TableInfo, ViewInfo
    from quacklake.core.sql.session import Session
    from quacklake.core.transaction import Transaction


__all__ = ["Binder", "Bound", "Scan", "StandIns"]

StandIns = Mapping[tuple[str, str, str], str]
Make = Callable[[duckdb.DuckDBPyConnection, bool], None]
"""Creates an object on a connection, with rows or without."""

_TARGET = "_quacklake_target"


@dataclass(frozen=True, slots=True)
class _NameScope:
    """The scope of names: the session for the user's text, or a lake for the text of a view or macro."""

    target: Target | None = None
    tx: Transaction | None = None
    depth: int = 0
    in_macro: bool = False
    outer: Target | None = None
    """The view that the user named, inside of which this text is."""


@dataclass
class Binder:
    """Binds one statement. Creates objects on two connections: one plans over empty tables, one runs over files."""

    session: Session
    parameters: Any = None
    stand_ins: StandIns = field(default_factory=dict)
    """Temporary relations that replace tables, by catalog, schema and name."""
    scans: list[Scan] = field(default_factory=list)
    hidden: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns of relations that ``*`` does not include."""
    wanted: frozenset[str] = frozenset()
    """The virtual columns that the query block around a call uses."""
    made: list[Make] = field(default_factory=list)
    """Functions that create the objects that the query names, with or without rows."""
    guarded: bool = False
    """True when the query contains IS DISTINCT FROM, by which DuckDB's readers do not filter correctly."""
    equalities: Equalities = field(default_factory=Equalities)
    """The columns that the query compares for equality."""
    _makers: dict[str, Make] = field(default_factory=dict)
    _mentions: list[Mention] = field(default_factory=list)
    _aliases: Aliases = field(default_factory=dict)
    _known: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _sizes: dict[str, Size] = field(default_factory=dict)
    _steady: bool = True
    _evaluated: bool = False
    """True when an expression of the user has run besides the query."""

    # -- values --------------------------------------------------------------------------------------------------------

    def used(self, node: Node) -> dict[str, Any] | None:
        """Return the parameters that a tree uses, by name or number. DuckDB refuses any others."""
        given = self.parameters
        if given is None:
            return None
        names = {str(found["identifier"]) for found in tree.nodes(node) if found.get("class") == "PARAMETER"}
        return {name: given[fold(name)] for name in names} or None

    def evaluate(self, expression: Node) -> Any:
        """Return the value of an expression without columns."""
        from quacklake.core.operations.python_values import python_values

        self.session.guard.value(expression)
        self._evaluated = True
        connection = self.session.connection
        query = tree.query_of(connection, {**expression, "alias": ""})
        found = arrow_table(connection, f"{tree.render(connection, query)} LIMIT 1", self.used(query))
        return python_values(found.column(0))[0]

    def evaluate_text(self, sql: str) -> Any:
        """Return the value of an expression without columns, given as text."""
        return self.evaluate(tree.expression_of(self.session.connection, sql))

    def _constant(self, node: Node) -> Node:
        """Return the constant that a call evaluates to, or the call if there is none."""
        connection = self.session.connection
        query = tree.render(connection, tree.query_of(connection, {**node, "alias": "v"}))
        kind = first_row(connection, f"SELECT typeof(v) FROM ({query})")
        assert kind is not None
        # one query gives the text and compares it: now() is another time in the next
        same = f"v IS NOT DISTINCT FROM CAST(CAST(v AS VARCHAR) AS {kind[0]})"
        try:
            row = first_row(connection, f"SELECT CAST(v AS VARCHAR), {same} FROM ({query})")
        except duckdb.Error:  # the text cannot be read as the type
            return node
        # the text of a UNION does not tell its tag, and that with a NUL cannot be written
        if row is None or row[1] is not True or "\0" in str(row[0]):
            return node
        value = f"CAST({'NULL' if row[0] is None else literal(row[0])} AS {kind[0]})"
        return {**tree.expression_of(connection, value), "alias": node["alias"]}

    # -- binding -------------------------------------------------------------------------------------------------------

    def bind(
        self, sql: str, *, target: bool = False, looking: bool = False, change: Callable[[Node], None] | None = None
    ) -> Bound:
        """Return the query with its scans planned. With ``target``, the first table in FROM also returns row positions.

        ``looking`` says that the result changes nothing, so that metadata may answer instead of rows. ``change`` may
        alter the tree before names are looked up. Raise ``SqlError`` or ``NotFoundError``.
        """
        connection = self.session.connection
        parsed = tree.parse(connection, sql)
        # an INSERT may have many rows: ``change`` alters all of their values, and they need no titles
        given = tree.copied(parsed) if change is None else None
        if change is not None:
            change(parsed)
        if target:
            first = parsed["node"]["from_table"]
            while first.get("type") == "JOIN":
                first = first["left"]
            first[_TARGET] = True
        self._rewrite(parsed, _NameScope())
        answered = self._learn(parsed, looking=looking) if self.scans else ()
        values = self.used(parsed)
        text = self._text(sql, given, parsed)
        bound = Bound(text, values, self.scans, next((scan for scan in self.scans if scan.rows), None), answered)
        bound.is_plain = looking and not self._evaluated and self._is_steady(parsed) and self.__is_plain(parsed)
        self._prune(bound, parsed)
        for make in self.made:
            make(connection, False)
        if not self.session.guard.safe:  # a safe session has locked settings
            self.session.footers.prepare(connection, self.scans)
        return bound

    def _text(
        self, sql: str, before: Node | None, after: Node, *, is_stored: bool = False, is_expression: bool = False
    ) -> str:
        """Return the text of a bound tree, with the titles that its columns have in ``before``, the tree of ``sql``.

        It is the user's text where only names have changed. A safe session runs only what it has checked in the tree.
        The only column of an expression gets no title. A text that is stored may be somebody else's.
        """
        connection = self.session.connection
        render = tree.render_own if self.session.guard.trusted and not is_stored else tree.render
        if before is None:
            return render(connection, after)
        untitled = after["node"]["select_list"][0] if is_expression else None

        def namings(*, rendered: bool) -> list[Naming]:
            found = name_columns(connection, sql, before, after, rendered=rendered)
            return [naming for naming in found if naming.item is not untitled]

        if not self.session.guard.safe:
            kept = with_names(connection, sql, before, after, namings(rendered=False))
            if kept is not None:
                return kept
        for naming in namings(rendered=True):
            naming.item["alias"] = naming.title
        return render(connection, after)

    def _learn(self, parsed: Node, *, looking: bool) -> tuple[Scan, ...]:
        """Add statistics and constants to the query. Return the scans that metadata answers, which are left out."""
        from quacklake.core.sql.metadata import answer, tell_statistics

        tell_statistics(self.session, parsed, self.scans)
        settle(parsed, self._constant)
        names = answer(self.session, parsed, self.scans) if looking else set()
        gone = tuple(scan for scan in self.scans if scan.name in names)
        self.scans = [scan for scan in self.scans if scan.name not in names]
        for name in names:
            self.made.remove(self._makers[name])
        return gone

    def _prune(self, bound: Bound, parsed: Node) -> None:
        """Let DuckDB find the filters of each scan."""
        if not any(scan.table.id >= 0 for scan in self.scans) or not has_filters(parsed):
            return
        if not (bound.is_plain or self._is_steady(parsed)):
            return
        plain = bound.is_plain or self.__is_plain(parsed)
        try:
            found = scan_filters(self._connect_planner(plain=plain), bound.sql, bound.values)
        except BaseException as error:
            self.session.attachments.keep_planner()
            if isinstance(error, duckdb.Error):
                return  # the query names an object that only the other connection knows
            raise
        for scan in self.scans:
            scan.predicate = filters_of(found.get(scan.name), scan.table.schema)

    def _is_steady(self, parsed: Node) -> bool:
        return self._steady and is_steady(parsed)

    def __is_plain(self, parsed: Node) -> bool:
        return len(self.made) == len(self.scans) and _is_plain(parsed, {scan.name for scan in self.scans})

    def _connect_planner(self, *, plain: bool = False) -> duckdb.DuckDBPyConnection:
        """Return a connection that has all objects of the query, without rows."""
        planner = self.session.planner(plain=plain)
        for make in self.made:
            make(planner, True)
        return planner

    def check(self, sql: str, target: Target, tx: Transaction, aliases: Sequence[str] = ()) -> str:
        """Return the text of a query for storing it as ``target``. Raise ``SqlError`` when it cannot run."""
        connection = self.session.connection
        parsed = tree.parse(connection, sql)
        text = tree.stored(connection, sql, parsed)
        self._rewrite(parsed, _NameScope(target, tx))
        self._connect_planner().execute(
            _create_view(self.session.fresh_name(), aliases, tree.render(connection, parsed))
        )
        return text

    def columns(self, sql: str) -> list[tuple[str, str]]:
        """Return the names and types of a query's columns. No file is planned, and no row is read."""
        parsed = tree.parse(self.session.connection, sql)
        given = tree.copied(parsed)
        self._rewrite(parsed, _NameScope())
        text = self._text(sql, given, parsed)
        rows = self._connect_planner().execute(f"DESCRIBE {text}").fetchall()
        return [(str(row[0]), str(row[1])) for row in rows]

    def without_rows(
        self, sql: str, change: Callable[[Node], None] | None = None
    ) -> tuple[Node, duckdb.DuckDBPyConnection]:
        """Return the tree of a query over relations without rows, and the connection that has these.

        ``change`` is that of ``bind``.
        """
        parsed = tree.parse(self.session.connection, sql)
        if change is not None:
            change(parsed)
        self._rewrite(parsed, _NameScope())
        return parsed, self._connect_planner()

    def _rewrite(self, parsed: Node, scope: _NameScope) -> Size | None:
        """Resolve the names of a query. Return its size if the session measures it."""
        is_macro = partial(self.is_macro, scope=scope)
        if self.session.guard.trusted and scope.target is None:  # what is stored may be somebody else's
            expand_texts(self.session.connection, parsed, partial(is_macro, is_table=True), self.evaluate)
        self.session.guard.check(parsed, is_macro)
        try:
            self._visit(parsed, frozenset(), frozenset(), scope)
            rows = {fold(name) for scan in self.scans for name in _row_columns(scan.table)}
            settle_names(parsed, self._mentions, rows, self._aliases, in_macro=scope.in_macro)
            size = self.session.guard.measure(parsed, self._sizes)
        except RecursionError:
            raise SqlError("the query is nested too deeply") from None
        self.session.running.check()
        return size

    # -- walking the tree ----------------------------------------------------------------------------------------------

    def _visit(self, node: Any, hidden: frozenset[str], wanted: frozenset[str], scope: _NameScope) -> None:
        """Rewrite the names in a tree. ``hidden`` are common tables, ``wanted`` the virtual columns in use."""
        if isinstance(node, list):
            for item in node:
                self._visit(item, hidden, wanted, scope)
            return
        if not isinstance(node, dict):
            return
        kind = node.get("type")
        self.equalities.note(node)
        self.guarded = self.guarded or kind in ("COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM")
        if kind == "BASE_TABLE":
            self._table(node, hidden, wanted, scope)
            return
        if kind == "SHOW_REF" and self._replace_show(node):
            return
        if isinstance(kind, str) and kind.endswith("_QUERY_NODE"):
            raise SqlError(
                "Not implemented Error: a statement that changes rows inside of a query",
                hint="run it first, and ask for its rows with RETURNING",
            )
        for entry in node["cte_map"]["map"] if isinstance(node.get("cte_map"), dict) else ():
            name = fold(entry["key"])
            query = entry["value"].get("query") or {}
            recursive = (query.get("node") or {}).get("type") == "RECURSIVE_CTE_NODE"
            self._visit(entry["value"], hidden | {name} if recursive else hidden, frozenset(), scope)
            hidden = hidden | {name}
        if kind == "SELECT_NODE":
            wanted = virtual_names(node)
        first = len(self.scans)
        if kind == "RECURSIVE_CTE_NODE":
            hidden = hidden | {fold(str(node.get("cte_name", "")))}
        for key, value in node.items():
            if key == "function" and kind == "TABLE_FUNCTION":
                self._visit(value["children"], hidden, wanted, scope)
            elif key != "cte_map":
                self._visit(value, hidden, wanted, scope)
        if kind == "SELECT_NODE" and wanted:
            hide_virtual(node, {scan.name: scan.virtual for scan in self.scans[first:]} | self.hidden)
        if kind == "TABLE_FUNCTION":
            self._table_function(node, scope, wanted)
        elif kind == "FUNCTION" and not node.get("is_operator"):
            self._function(node, scope)

    # -- tables and views ----------------------------------------------------------------------------------------------

    def _table(self, node: Node, hidden: frozenset[str], wanted: frozenset[str], scope: _NameScope) -> None:
        is_target = node.pop(_TARGET, False)
        names = [node[key] for key in ("catalog_name", "schema_name", "table_name") if node.get(key)]
        if len(names) == 1 and fold(names[0]) in hidden:
            return
        found = None if len(names) > 1 and fold(names[-2]) in SYSTEM else self._look_up(names, node, scope)
        if found is None:  # a lake's metadata, a listing, a Python variable, or a table of DuckDB
            rows = self.session.foreign(names)
            if rows is not None:
                tree.replace(node, tree.base_table(self._register(rows), node["alias"] or names[-1], node))
            return
        from quacklake.core.format.objects import ViewInfo
        from quacklake.core.scan.plan import VIRTUAL, virtual_column

        attached, tx, info = found
        past = node.get("at_clause") is not None
        own = (fold(attached.alias), fold(info.schema_name), fold(info.name))
        stand_in = None if is_target or past or scope.depth else self.stand_ins.get(own)
        if stand_in is not None:
            name = stand_in
        elif isinstance(info, ViewInfo):
            name = self._view(Target(attached, info.schema_name, info.name), tx, info, scope)
        else:
            extra = tuple(sorted(v for v in wanted if virtual_column(info.schema, v) is not None))
            scan = Scan(self.session.fresh_name(), attached, tx, info, extra, rows=bool(is_target), past=past)
            name = scan.name
            self.scans.append(scan)
            self._sizes[name] = Size(1, 1, len(info.schema.columns) + len(extra))
            self._makers[name] = partial(self._make_scan, scan)
            self.made.append(self._makers[name])
        alias = node["alias"] or names[-1]
        columns = None
        if not isinstance(info, ViewInfo):
            columns = frozenset([*map(fold, info.schema.names), *VIRTUAL])
        rows = frozenset() if isinstance(info, ViewInfo) else frozenset(map(fold, _row_columns(info)))
        self._mentions.append(Mention(node, *own, aliased=bool(node["alias"]), columns=columns, rows=rows))
        tree.replace(node, tree.base_table(name, alias, node))

    def _replace_show(self, node: Node) -> bool:
        """Replace a SHOW of what lakes have; return False for one that DuckDB answers."""
        from quacklake.core.sql.listing import shown_inside

        rows = shown_inside(self.session, node)
        if rows is not None:
            tree.replace(node, tree.base_table(self._register(rows), node["alias"] or "shown", node))
        return rows is not None

    def _look_up(
        self, names: Sequence[str], node: Node, scope: _NameScope
    ) -> tuple[Attached, Transaction, TableInfo | ViewInfo] | None:
        past = node.get("at_clause")
        places = list(self._places(names, scope))
        for place in places:
            tx = self._transaction(place.attached, past, scope)
            found = tx.get_table(place.schema, place.name) or tx.objects.get_view(place.schema, place.name)
            if found is not None:
                return place.attached, tx, found
        # tables of DuckDB have no past
        if places and (scope.target is not None or past or self.session.names.explicit(names)):
            tx = self._transaction(places[0].attached, past, scope)
            if scope.target is not None:
                raise NotFoundError(f'there is no table or view "{".".join(names)}"')
            raise missing(places[0], tx, version=tx.base.id if past else None)
        return None

    def _places(self, names: Sequence[str], scope: _NameScope) -> Iterable[Target]:
        own = scope.target
        if own is None:
            yield from self.session.names.places(names)
        elif len(names) == 1:
            yield Target(own.attached, own.schema, names[0])
            yield Target(own.attached, "main", names[0])
        elif len(names) == 2:
            yield Target(own.attached, names[0], names[1])
        elif fold(names[0]) == fold(own.attached.alias):
            yield Target(own.attached, names[1], names[2])

    def _transaction(self, attached: Attached, at: Node | None, scope: _NameScope) -> Transaction:
        if at is not None:
            return self.session.at(attached, str(at["unit"]), self.evaluate(at["expr"]))
        if scope.tx is not None and scope.target is not None and scope.target.attached is attached:
            return scope.tx
        return self.session.view(attached)

    def _register(self, rows: Any) -> str:
        name = self.session.fresh_name()
        self.made.append(lambda connection, _: _do_nothing(connection.register(name, rows)))
        return name

    def _make_scan(self, scan: Scan, connection: duckdb.DuckDBPyConnection, empty: bool) -> None:
        self.session.running.check()
        if empty:
            connection.execute(f"CREATE TEMP TABLE {scan.name} ({scan.columns()})")
            return
        scan.plan = planned(scan)
        columns = scan.virtual or None
        query = scan.attached.context.engine.bind(
            connection,
            scan.plan,
            rows=scan.rows,
            columns=columns,
            prefix=scan.name,
            guarded=self.guarded,
            compared=self.equalities.names(),
        )
        if scan.plan.restriction is not None:
            from quacklake.core.engines.duckdb.visible import barrier_name

            self.session.copied(barrier_name(scan.name))
        if "rowid" in scan.virtual:
            query = scan.with_local_ids(query)
        connection.execute(f"CREATE TEMP VIEW {scan.name} AS {self.session.guard.scanned(query, scan)}")

    def _view(self, target: Target, tx: Transaction, view: ViewInfo, scope: _NameScope) -> str:
        if view.dialect != "duckdb":
            raise UnsupportedFeatureError(f'the view "{view.qualified_name}" is written in {view.dialect}')
        from quacklake.core.operations.views import check_depth

        check_depth(view, scope.depth)
        outer = scope.outer or target
        key = ("view", target.attached.alias, tx.base.id, view.id)
        if key in self._known:
            return self._known[key]
        try:
            text, size = self._bind_stored(
                view.sql.replace(LAKE, ""), _NameScope(target, tx, scope.depth + 1, outer=outer)
            )
        except NotFoundError:
            if tx.rules is None:
                raise
            # a view over something hidden does not exist either, and nothing that it names is told
            raise missing(outer, tx, "View") from None
        name = self._known[key] = self.session.fresh_name()
        if size is not None:
            self._sizes[name] = size
        statement = _create_view(name, view.aliases, text)

        def make(connection: duckdb.DuckDBPyConnection, _: bool) -> None:
            try:
                connection.execute(statement)
            except (duckdb.BinderException, duckdb.CatalogException):
                if tx.rules is None:
                    raise
                raise missing(outer, tx, "View") from None

        self.made.append(make)
        return name

    def _bind_stored(self, sql: str, scope: _NameScope, *, is_expression: bool = False) -> tuple[str, Size | None]:
        """Return the bound text of a stored query, and its size if the session measures it.

        ``is_expression`` says that the query selects one expression, and only this is used.
        """
        parsed = tree.parse(self.session.connection, sql)
        given = tree.copied(parsed)
        size = self._rewrite(parsed, scope)
        self._steady = self._steady and is_steady(parsed)
        return self._text(sql, given, parsed, is_stored=True, is_expression=is_expression), size

    # -- functions and macros ------------------------------------------------------------------------------------------

    def _table_function(self, node: Node, scope: _NameScope, wanted: frozenset[str]) -> None:
        call = node["function"]
        names = [call[key] for key in ("catalog", "schema", "function_name") if call.get(key)]
        macro = self._macro(names, scope, is_table=True)
        if macro is not None:
            call.update(function_name=macro, schema="", catalog="")
            if not node["alias"]:
                node["alias"] = names[-1]
            return
        self.wanted = wanted
        made = self.session.call(self, names, call["children"])
        if made is not None:
            name = made if isinstance(made, str) else self._register(made)
            tree.replace(node, tree.base_table(name, node["alias"] or names[-1], node))
        elif scope.target is not None and (len(names) > 1 or fold(names[-1]) not in HARMLESS):
            raise InputError(f'the query uses "{names[-1]}", which a lake does not have and does not allow')

    def _function(self, node: Node, scope: _NameScope) -> None:
        names = [node[key] for key in ("catalog", "schema", "function_name") if node.get(key)]
        if fold(names[-1]) == "current_setting" and len(node["children"]) == 1:
            given = tree.constant_of(node["children"][0])
            if given is not None and given.type == "VARCHAR" and fold(given.value).startswith("ducklake_"):
                value = self.session.attachments.setting(fold(given.value))
                constant = tree.expression_of(self.session.connection, _setting_literal(value))
                tree.replace(node, {**constant, "alias": node["alias"]})
            return
        macro = self._macro(names, scope, is_table=False)
        if macro is not None:
            node.update(function_name=macro, schema="", catalog="")

    def is_macro(self, names: Sequence[str], is_table: bool, scope: _NameScope | None = None) -> bool:
        """Return True for the name of a lake's macro, as the statement or the part of it in ``scope`` finds it."""
        return self._find_macro(names, scope or _NameScope(), is_table=is_table) is not None

    def _find_macro(
        self, names: Sequence[str], scope: _NameScope, *, is_table: bool
    ) -> tuple[Target, Transaction, MacroInfo] | None:
        for place in self._places(names, scope):
            tx = scope.tx if scope.tx is not None else self.session.view(place.attached)
            found = tx.objects.get_macro(place.schema, place.name, is_table=is_table)
            if found is not None:
                return place, tx, found
        return None

    def create_macro(self, names: Sequence[str]) -> str | None:
        """Create a macro of a lake where the statement runs, and return its name there; None for any other function."""
        name = self._macro(names, _NameScope(), is_table=False)
        for make in self.made:
            make(self.session.connection, False)
        return name

    def _macro(self, names: Sequence[str], scope: _NameScope, *, is_table: bool) -> str | None:
        found = self._find_macro(names, scope, is_table=is_table)
        if found is None:
            return None
        target, tx, macro = found
        key = ("macro", target.attached.alias, tx.base.id, macro.id)
        if key in self._known:
            return self._known[key]
        from quacklake.core.operations.views import MAX_VIEWS, declared

        if scope.depth >= MAX_VIEWS:
            raise InputError(
                f'the macro "{macro.qualified_name}" depends on more than {MAX_VIEWS} others, or on itself'
            )
        forms, sizes = [], []
        for variant in macro.variants:
            sql = variant.sql.replace(LAKE, "")
            inside = _NameScope(target, tx, scope.depth + 1, in_macro=True, outer=scope.outer)
            if not is_table:
                tree.expression_of(self.session.connection, sql)
            body, size = self._bind_stored(sql if is_table else f"SELECT {sql}", inside, is_expression=not is_table)
            sizes.append(size or Size(1, 1, 1))
            text = f"TABLE {body}" if is_table else body.removeprefix("SELECT ")
            forms.append(f"({', '.join(declared(parameter) for parameter in variant.parameters)}) AS {text}")
        name = self._known[key] = self.session.fresh_name(macro=True)
        self._sizes[name] = max(sizes, key=attrgetter("nodes"), default=Size(1, 1, 1))
        statement = f"CREATE TEMP MACRO {name} {', '.join(forms)}"
        self.made.append(lambda connection, _: _do_nothing(connection.execute(statement)))
        return name


def _create_view(name: str, aliases: Sequence[str], sql: str) -> str:
    columns = f"({', '.join(quote(alias) for alias in aliases)})" if aliases else ""
    return f"CREATE TEMP VIEW {name}{columns} AS {sql}"


def _row_columns(table: TableInfo) -> list[str]:
    """Return the columns that have fields."""
    return [column.name for column in table.schema.columns if column.type == "struct"]


def _setting_literal(value: object) -> str:
    """Return the value of a lake's setting as SQL, in the type that the setting has in the extension."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float) or (isinstance(value, int) and value >= 0):
        return f"CAST({value} AS {'DOUBLE' if isinstance(value, float) else 'UBIGINT'})"
    return literal(str(value))


def _do_nothing(_: object) -> None:
    return None


def _is_plain(parsed: Node, scans: Collection[str]) -> bool:
    """Return True for a query of scans and common tables alone, which leaves nothing in the database that explains it.

    That database would open a file, or what a function reads.
    """
    common: set[str] = set()
    named: set[str] = set()
    for node in tree.nodes(parsed):
        kind = node.get("type")
        if kind in ("TABLE_FUNCTION", "SHOW_REF", "PIVOT"):
            return False
        if isinstance(node.get("cte_map"), dict):
            common.update(fold(entry["key"]) for entry in node["cte_map"]["map"])
        if kind == "BASE_TABLE":
            named.add(fold(node["table_name"]))
    # the name of a file is no identifier
    return named <= {name for name in common if name.isidentifier()} | {fold(name) for name in scans}
