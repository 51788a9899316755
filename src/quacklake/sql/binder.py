"""Rewrite a query over lakes into one that DuckDB runs: each table name becomes a scan at the requested snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import duckdb

from quacklake.engines.duckdb.queries import HARMLESS, LAKE
from quacklake.errors import InputError, SqlError, UnsupportedFeatureError
from quacklake.format.names import fold, literal, quote
from quacklake.format.objects import MacroInfo, TableInfo, ViewInfo
from quacklake.operations.context import declared
from quacklake.scan import virtual as virtual_columns
from quacklake.sql import tree
from quacklake.sql.attached import Attached, Target
from quacklake.sql.in_place import with_names
from quacklake.sql.names import SYSTEM, missing
from quacklake.sql.scans import Bound, Scan, first_table, has_filters, hide_virtual, virtual_names, with_local_ids
from quacklake.sql.scopes import Mention, settle_names
from quacklake.sql.sizes import Size
from quacklake.sql.titles import titles
from quacklake.sql.tree import Node
from quacklake.sql.values import Values
from quacklake.sql.volatility import is_steady, settle

if TYPE_CHECKING:
    from quacklake.transaction import Transaction

__all__ = ["Binder", "Bound", "Scan", "StandIns"]

StandIns = Mapping[tuple[str, str, str], str]

_DEPTH = 16
_TARGET = "_quacklake_target"
_ONE = Size(1, 1, 1)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The scope of names: the session for the user's text, or a lake for the text of a view or macro."""

    target: Target | None = None
    tx: Transaction | None = None
    depth: int = 0


@dataclass
class Binder(Values):
    """Binds one statement. Creates objects on two connections: one plans over empty tables, one runs over files."""

    stand_ins: StandIns = field(default_factory=dict)
    """Temporary relations that replace tables, by catalog, schema and name."""
    scans: list[Scan] = field(default_factory=list)
    hidden: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns of relations that ``*`` does not include."""
    wanted: frozenset[str] = frozenset()
    """The virtual columns that the query block around a call uses."""
    _made: list[Callable[[duckdb.DuckDBPyConnection, bool], None]] = field(default_factory=list)
    _makers: dict[str, Callable[[duckdb.DuckDBPyConnection, bool], None]] = field(default_factory=dict)
    _mentions: list[Mention] = field(default_factory=list)
    _known: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _sizes: dict[str, Size] = field(default_factory=dict)
    _steady: bool = True
    guarded: bool = False
    """True when the query contains IS DISTINCT FROM, by which DuckDB's readers do not filter correctly."""

    # -- binding -------------------------------------------------------------------------------------------------------

    def bind(
        self, sql: str, *, target: bool = False, looking: bool = False, change: Callable[[Node], None] | None = None
    ) -> Bound:
        """Return the query with its scans planned. With ``target``, the first table in FROM also returns row positions.

        ``looking`` says that the result changes nothing, so that metadata may answer instead of rows. ``change`` may
        alter the tree before names are looked up. Raises ``SqlError`` or ``NotFoundError``.
        """
        parsed = tree.parse(self.session.connection, sql)
        # an INSERT may have many rows: ``change`` alters all of their values, and they need no titles
        given = tree.copied(parsed) if change is None else None
        if change is not None:
            change(parsed)
        if target:
            first_table(parsed["node"]["from_table"])[_TARGET] = True
        self._rewrite(parsed, _Scope())
        answered = self._learn(parsed, looking=looking) if self.scans else ()
        values = self.used(parsed)
        kept = self._kept(sql, given, parsed)
        text = tree.render(self.session.connection, parsed) if kept is None else kept
        found = next((scan for scan in self.scans if scan.rows), None)
        bound = Bound(text, values, self.scans, found, answered)
        if looking and given is not None and text != sql:
            bound.titles = titles(self.session.connection, given, parsed, rendered=kept is None)
        self._prune(bound, parsed)
        self._install()
        return bound

    def _kept(self, sql: str, before: Node | None, after: Node) -> str | None:
        """Return the user's text with its names replaced, or None when the tree has changed in other ways too.

        Always None in a safe session, which runs only what it has checked in the tree.
        """
        if before is None or self.session.guard.safe:
            return None
        return with_names(self.session.connection, sql, before, after)

    def _text(self, sql: str, before: Node, after: Node) -> str:
        kept = self._kept(sql, before, after)
        return tree.render(self.session.connection, after) if kept is None else kept

    def _learn(self, parsed: Node, *, looking: bool) -> tuple[Scan, ...]:
        """Add statistics and constants to the query. Return the scans that metadata answers."""
        from quacklake.sql.metadata_answers import answer, tell_statistics

        tell_statistics(self.session, parsed, self.scans)
        settle(parsed, self.constant)
        return self._leave_out(answer(self.session, parsed, self.scans)) if looking else ()

    def check(self, sql: str, target: Target, tx: Transaction, aliases: Sequence[str] = ()) -> str:
        """Return the text of a query for storing it as ``target``. Raises ``SqlError`` when it cannot run."""
        connection = self.session.connection
        parsed = tree.parse(connection, sql)
        text = tree.stored(connection, sql, parsed)
        self._rewrite(parsed, _Scope(target, tx))
        columns = f"({', '.join(quote(alias) for alias in aliases)})" if aliases else ""
        with self.session.planning() as planner:
            for make in self._made:
                make(planner, True)
            bound = tree.render(connection, parsed)
            planner.execute(f"CREATE TEMP VIEW {self.session.fresh_name()}{columns} AS {bound}")
        return text

    def _rewrite(self, parsed: Node, scope: _Scope) -> Size | None:
        """Resolve the names of a query. Return its size if the session measures it."""
        self.session.guard.check(parsed, lambda names, is_table: self._has_macro(names, scope, is_table))
        try:
            self._visit(parsed, frozenset(), frozenset(), scope)
            settle_names(parsed, self._mentions)
            size = self.session.guard.measure(parsed, self._sizes)
        except RecursionError:
            raise SqlError("the query is nested too deeply") from None
        self.session.running.check()
        return size

    # -- walking the tree ----------------------------------------------------------------------------------------------

    def _visit(self, node: Any, hidden: frozenset[str], wanted: frozenset[str], scope: _Scope) -> None:
        """Rewrite the names in a tree. ``hidden`` are common tables, ``wanted`` the virtual columns in use."""
        if isinstance(node, list):
            for item in node:
                self._visit(item, hidden, wanted, scope)
            return
        if not isinstance(node, dict):
            return
        kind = node.get("type")
        self.guarded = self.guarded or kind in ("COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM")
        if kind == "BASE_TABLE":
            self._table(node, hidden, wanted, scope)
            return
        if isinstance(kind, str) and kind.endswith("_QUERY_NODE"):
            raise SqlError(
                "Not implemented Error: a statement that changes rows inside of a query",
                hint="run it first, and ask for its rows with RETURNING",
            )
        if isinstance(node.get("cte_map"), dict):
            hidden = self._common_tables(node, hidden, scope)
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

    def _common_tables(self, node: Node, hidden: frozenset[str], scope: _Scope) -> frozenset[str]:
        for entry in node["cte_map"]["map"]:
            name = fold(entry["key"])
            query = entry["value"].get("query") or {}
            recursive = (query.get("node") or {}).get("type") == "RECURSIVE_CTE_NODE"
            self._visit(entry["value"], hidden | {name} if recursive else hidden, frozenset(), scope)
            hidden = hidden | {name}
        return hidden

    # -- tables and views ----------------------------------------------------------------------------------------------

    def _table(self, node: Node, hidden: frozenset[str], wanted: frozenset[str], scope: _Scope) -> None:
        is_target = node.pop(_TARGET, False)
        names = [node[key] for key in ("catalog_name", "schema_name", "table_name") if node.get(key)]
        if len(names) == 1 and fold(names[0]) in hidden:
            return
        found = None if len(names) > 1 and fold(names[-2]) in SYSTEM else self._look_up(names, node, scope)
        if found is None:
            self._other(node, names)
            return
        attached, tx, info = found
        past = node.get("at_clause") is not None
        stand_in = None if is_target or past or scope.depth else self._stand_in(attached, info)
        if stand_in is not None:
            name = stand_in
        elif isinstance(info, ViewInfo):
            name = self._view(Target(attached, info.schema_name, info.name), tx, info, scope)
        else:
            extra = tuple(sorted(v for v in wanted if virtual_columns.get(info.schema, v) is not None))
            scan = Scan(self.session.fresh_name(), attached, tx, info, extra, rows=bool(is_target), past=past)
            self.scans.append(scan)
            self._sizes[scan.name] = Size(1, 1, len(info.schema.columns) + len(extra))
            make = self._makers[scan.name] = self._maker(scan)
            self._made.append(make)
            name = scan.name
        alias = node["alias"] or names[-1]
        if not node["alias"]:
            self._mentions.append(Mention(node, fold(attached.alias), fold(info.schema_name), fold(info.name)))
        replaced = tree.base_table(name, alias, node)
        node.clear()
        node.update(replaced)

    def _stand_in(self, attached: Attached, info: TableInfo | ViewInfo) -> str | None:
        return self.stand_ins.get((fold(attached.alias), fold(info.schema_name), fold(info.name)))

    def _look_up(
        self, names: Sequence[str], node: Node, scope: _Scope
    ) -> tuple[Attached, Transaction, TableInfo | ViewInfo] | None:
        places = list(self._places(names, scope))
        for place in places:
            tx = self._transaction(place.attached, node.get("at_clause"), scope)
            found = tx.get_table(place.schema, place.name) or tx.objects.get_view(place.schema, place.name)
            if found is not None:
                return place.attached, tx, found
        past = node.get("at_clause")  # tables of DuckDB have no past
        if places and (scope.target is not None or past or self.session.names.explicit(names)):
            tx = self._transaction(places[0].attached, past, scope)
            raise missing(places[0], tx, version=tx.base.id if past else None)
        return None

    def _places(self, names: Sequence[str], scope: _Scope) -> Iterable[Target]:
        if scope.target is None:
            yield from self.session.names.places(names)
            return
        own = scope.target
        if len(names) == 1:
            yield Target(own.attached, own.schema, names[0])
            yield Target(own.attached, "main", names[0])
        elif len(names) == 2:
            yield Target(own.attached, names[0], names[1])
        elif fold(names[0]) == fold(own.attached.alias):
            yield Target(own.attached, names[1], names[2])

    def _transaction(self, attached: Attached, at: Node | None, scope: _Scope) -> Transaction:
        if at is not None:
            return self.session.at(attached, str(at["unit"]), self.evaluate(at["expr"]))
        if scope.tx is not None and scope.target is not None and scope.target.attached is attached:
            return scope.tx
        return self.session.view(attached)

    def _other(self, node: Node, names: Sequence[str]) -> None:
        """Resolve a table outside the lakes: a lake's metadata, a listing, a Python variable, or a table of DuckDB."""
        rows = self.session.foreign(names)
        if rows is not None:
            replaced = tree.base_table(self._register(rows), node["alias"] or names[-1], node)
            node.clear()
            node.update(replaced)

    def _register(self, rows: Any) -> str:
        name = self.session.fresh_name()
        self._made.append(lambda connection, _: _done(connection.register(name, rows)))
        return name

    def _maker(self, scan: Scan) -> Callable[[duckdb.DuckDBPyConnection, bool], None]:
        def make(connection: duckdb.DuckDBPyConnection, empty: bool) -> None:
            self.session.running.check()
            if empty:
                connection.execute(f"CREATE TEMP TABLE {scan.name} ({scan.columns()})")
                return
            context = scan.attached.context
            scan.plan = self.session.plan(scan)
            query = context.engine.bind(
                connection,
                scan.plan,
                rows=scan.rows,
                columns=scan.virtual or None,
                prefix=scan.name,
                guarded=self.guarded,
            )
            if "rowid" in scan.virtual:
                query = with_local_ids(query, scan)
            query = self.session.guard.scanned(query, scan)
            connection.execute(f"CREATE TEMP VIEW {scan.name} AS {query}")

        return make

    def _view(self, target: Target, tx: Transaction, view: ViewInfo, scope: _Scope) -> str:
        if view.dialect != "duckdb":
            raise UnsupportedFeatureError(f'the view "{view.qualified_name}" is written in {view.dialect}')
        if scope.depth >= _DEPTH:
            raise InputError(f'the view "{view.qualified_name}" stands on more than {_DEPTH} other views, or on itself')
        key = ("view", target.attached.alias, tx.base.id, view.id)
        if key in self._known:
            return self._known[key]
        sql = view.sql.replace(LAKE, "")
        parsed = tree.parse(self.session.connection, sql)
        given = tree.copied(parsed)
        size = self._rewrite(parsed, _Scope(target, tx, scope.depth + 1))
        self._steady = self._steady and is_steady(parsed)
        name = self._known[key] = self.session.fresh_name()
        if size is not None:
            self._sizes[name] = size
        columns = f"({', '.join(quote(alias) for alias in view.aliases)})" if view.aliases else ""
        statement = f"CREATE TEMP VIEW {name}{columns} AS {self._text(sql, given, parsed)}"
        self._made.append(lambda connection, _: _done(connection.execute(statement)))
        return name

    # -- functions and macros ------------------------------------------------------------------------------------------

    def _table_function(self, node: Node, scope: _Scope, wanted: frozenset[str]) -> None:
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
        if made is None:
            if scope.target is not None and (len(names) > 1 or fold(names[-1]) not in HARMLESS):
                raise InputError(f'the query uses "{names[-1]}", which a lake does not have and does not allow')
            return
        name = made if isinstance(made, str) else self._register(made)
        replaced = tree.base_table(name, node["alias"] or names[-1], node)
        node.clear()
        node.update(replaced)

    def made(self, make: Callable[[duckdb.DuckDBPyConnection, bool], None]) -> None:
        """Add an object to create before the query runs. ``make`` is told whether to create it without rows."""
        self._made.append(make)

    def _function(self, node: Node, scope: _Scope) -> None:
        names = [node[key] for key in ("catalog", "schema", "function_name") if node.get(key)]
        if fold(names[-1]) == "current_setting" and len(node["children"]) == 1:
            self._setting(node)
            return
        macro = self._macro(names, scope, is_table=False)
        if macro is not None:
            node.update(function_name=macro, schema="", catalog="")

    def _setting(self, node: Node) -> None:
        """Replace ``current_setting`` of a lake's setting by its value."""
        argument = node["children"][0]
        given = tree.constant_of(argument)
        if given is not None and given.type == "VARCHAR" and fold(given.value).startswith("ducklake_"):
            value = self.session.attachments.setting(fold(given.value))
            known = "NULL" if value is None else value if isinstance(value, int | float) else literal(str(value))
            replaced = tree.expression_of(self.session.connection, str(known))
            alias = node["alias"]
            node.clear()
            node.update(replaced, alias=alias)

    def _macro(self, names: Sequence[str], scope: _Scope, *, is_table: bool) -> str | None:
        found = self._find_macro(names, scope, is_table)
        return None if found is None else self._make_macro(*found, scope)

    def _has_macro(self, names: Sequence[str], scope: _Scope, is_table: bool) -> bool:
        return self._find_macro(names, scope, is_table) is not None

    def _find_macro(
        self, names: Sequence[str], scope: _Scope, is_table: bool
    ) -> tuple[Target, Transaction, MacroInfo] | None:
        for place in self._places(names, scope):
            tx = scope.tx if scope.tx is not None else self.session.view(place.attached)
            found = tx.objects.get_macro(place.schema, place.name, is_table=is_table)
            if found is not None:
                return place, tx, found
        return None

    def _make_macro(self, target: Target, tx: Transaction, macro: MacroInfo, scope: _Scope) -> str:
        key = ("macro", target.attached.alias, tx.base.id, macro.id)
        if key in self._known:
            return self._known[key]
        if scope.depth >= _DEPTH:
            raise InputError(f'the macro "{macro.qualified_name}" stands on more than {_DEPTH} others, or on itself')
        connection = self.session.connection
        inside = _Scope(target, tx, scope.depth + 1)
        forms, sizes = [], []
        for variant in macro.variants:
            sql = variant.sql.replace(LAKE, "")
            query = sql if macro.is_table else f"SELECT {sql}"
            parsed = tree.parse(connection, query)
            given = tree.copied(parsed)
            sizes.append(self._rewrite(parsed, inside))
            self._steady = self._steady and is_steady(parsed)
            body = self._text(query, given, parsed)
            text = f"TABLE {body}" if macro.is_table else body.removeprefix("SELECT ")
            forms.append(f"({', '.join(declared(parameter) for parameter in variant.parameters)}) AS {text}")
        name = self._known[key] = self.session.fresh_name(macro=True)
        self._sizes[name] = max((size for size in sizes if size is not None), key=attrgetter("nodes"), default=_ONE)
        statement = f"CREATE TEMP MACRO {name} {', '.join(forms)}"
        self._made.append(lambda connection, _: _done(connection.execute(statement)))
        return name

    # -- planning ------------------------------------------------------------------------------------------------------

    def _prune(self, bound: Bound, parsed: Node) -> None:
        """Let DuckDB find the filters of each scan."""
        from quacklake.sql.pruning import filters_of, scan_filters

        if not any(scan.table.id >= 0 for scan in self.scans) or not has_filters(parsed):
            return
        if not (self._steady and is_steady(parsed)):
            return
        with self.session.planning() as planner:
            try:
                for make in self._made:
                    make(planner, True)
                found = scan_filters(planner, bound.sql, bound.values)
            except duckdb.Error:
                return  # the query names an object that only the other connection knows
        for scan in self.scans:
            scan.predicate = filters_of(found.get(scan.name), scan.table.schema)

    def _leave_out(self, names: set[str]) -> tuple[Scan, ...]:
        """Remove scans that are not needed, and return them."""
        gone = tuple(scan for scan in self.scans if scan.name in names)
        self.scans = [scan for scan in self.scans if scan.name not in names]
        for name in names:
            self._made.remove(self._makers[name])
        return gone

    def _install(self) -> None:
        for make in self._made:
            make(self.session.connection, False)
        self.session.keep_footers(self.scans)


def _done(_: object) -> None:
    return None
