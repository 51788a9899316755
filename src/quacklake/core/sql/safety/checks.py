"""The limits of a safe session: the allow lists over statements and parsed queries, and the size of a query.

Anything not known to be harmless is refused. DuckDB runs the text rendered from the checked tree and never the user's
text, so comments, quotes and look-alike characters change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from quacklake.core.engines.duckdb.expressions import FUNCTIONS
from quacklake.core.engines.duckdb.stored_texts import HARMLESS
from quacklake.core.format.names import fold, quote
from quacklake.core.sql import statements, tree
from quacklake.core.sql.attached import PREFIX
from quacklake.core.sql.binder import Binder
from quacklake.core.sql.extensions import is_of_access, is_of_pipelines, is_of_views
from quacklake.core.sql.guard import Size
from quacklake.core.sql.statements import inserting, queries, rows
from quacklake.core.sql.tree import Node
from quacklake.core.sql.words import Cursor
from quacklake.errors import NotPermittedError, StatementTooLargeError

if TYPE_CHECKING:
    from quacklake.core.sql.safety.guard import Safety
    from quacklake.core.sql.session import Session

# -- statements --------------------------------------------------------------------------------------------------------

_CHANGES = (inserting.insert, inserting.merge, rows.delete, rows.truncate, rows.update)
_TRANSACTIONS = {"ABORT": "ROLLBACK", "END": "COMMIT", "START": "BEGIN"} | {
    word: word for word in ("BEGIN", "COMMIT", "ROLLBACK")
}
_OWN_CLAUSES = frozenset({"OPTIONS", "ORDER", "PARTITION"})
"""First words of clauses of CREATE TABLE and ALTER TABLE that DuckDB does not parse."""
_PLAN_FORMATS = frozenset({"TEXT", "JSON", "HTML", "GRAPHVIZ", "YAML", "MERMAID"})


def admit(session: Session, cursor: Cursor, *, read_only: bool) -> Cursor:
    """Return the statement in the form that may run. Raise ``NotPermittedError`` for any other statement."""
    first = cursor.peek()
    word = "" if first is None else first.upper
    if word in _TRANSACTIONS and not is_of_pipelines(cursor):
        return Cursor(_TRANSACTIONS[word])
    if word in _FORMS:
        return _FORMS[word](session, Cursor(cursor.text, cursor.words))
    handler = statements.handler(cursor)
    if handler in _CHANGES and not read_only:
        _check_returning(session, cursor)
        return cursor
    if handler is queries.query:
        return cursor
    check_syntax(session, cursor)
    raise NotPermittedError(
        f"a safe session does not run {word or 'such a statement'}",
        hint="it only reads" if read_only else "it reads and changes the rows of tables",
    )


def check_syntax(session: Session, cursor: Cursor) -> None:
    """Raise ``SqlError`` with the position for a statement that DuckDB does not parse and Quacklake does not add.

    A refused statement passes here first, so a misspelt one is told from a forbidden one. Nothing is looked up.
    """
    if is_of_pipelines(cursor) or is_of_views(cursor) or is_of_access(cursor):
        return
    if (cursor.sees("CREATE") or cursor.sees("ALTER")) and any(word.upper in _OWN_CLAUSES for word in cursor.words):
        return
    with suppress(tree.Unserializable):  # it is not a query, but understood
        tree.parse(session.connection, cursor.text)


def _check_returning(session: Session, cursor: Cursor) -> None:
    """Check RETURNING before the statement does any work. It is evaluated later, though before the commit."""
    ahead = Cursor(cursor.text, cursor.words)
    ahead.until("RETURNING")
    if ahead.accept("RETURNING"):
        is_macro = Binder(session, None).is_macro
        for expression in tree.select_list_of(session.connection, ahead.rest()):
            session.guard.value(expression, is_macro)


def _prepare(session: Session, ahead: Cursor) -> Cursor:
    """Admit the statement now, so that errors show early. It is admitted again when it is executed."""
    ahead.expect("PREPARE")
    ahead.name()
    ahead.expect("AS")
    session.guard.admit(session, Cursor(ahead.rest()))
    return Cursor(ahead.text, ahead.words)


def _explain(session: Session, ahead: Cursor) -> Cursor:
    ahead.expect("EXPLAIN")
    analyze = ahead.accept("ANALYZE")
    head = "EXPLAIN"
    if ahead.accept("(", "FORMAT"):
        word = ahead.take()
        if fold(word.value).upper() not in _PLAN_FORMATS or not ahead.accept(")"):
            raise NotPermittedError("a safe session explains with (FORMAT …) only")
        head += f" (FORMAT {word.value})"
    if analyze:
        head = "EXPLAIN (ANALYZE, FORMAT JSON)"  # a JSON plan can be shown without file names
    query = Cursor(ahead.rest())
    if query.sees("(") or statements.handler(query) is not queries.query:  # parentheses may hold other options
        check_syntax(session, ahead)
        raise NotPermittedError("a safe session explains queries only")
    return Cursor(f"{head} {query.text}")


def _pivot(_: Session, cursor: Cursor) -> Cursor:
    """Turn PIVOT into a query. This needs the values in the text; otherwise DuckDB would create types first."""
    return Cursor(f"FROM ({cursor.text})")


def _show(session: Session, ahead: Cursor) -> Cursor:
    word = ahead.take().upper
    if ahead.accept("ALL", "TABLES"):
        ahead.end()
        return Cursor("SHOW ALL TABLES")
    if word == "SHOW" and ahead.accept("TABLES"):
        names = ahead.names() if ahead.accept("FROM") else []
        ahead.end()
        if session.attachments.get(names[0]) is None if names else session.names.default is None:
            raise NotPermittedError("a safe session shows the tables of lakes only", hint="SHOW TABLES FROM lake")
        return Cursor(f"SHOW TABLES{f' FROM {_join_names(names)}' if names else ''}")
    if word == "SHOW" and ahead.accept("CREATE", "TABLE"):
        names = ahead.names()
        ahead.end()
        return Cursor(f"SHOW CREATE TABLE {_join_names(names)}")
    ahead.accept("TABLE")
    following, rest = ahead.peek(), Cursor(ahead.text, ahead.words[ahead.at :])
    if following is not None and following.kind == "word" and statements.handler(rest) is queries.query:
        return Cursor(f"DESCRIBE {ahead.rest()}")
    names = ahead.names()
    ahead.end()
    # DuckDB reads SHOW GRANTS as the columns of a table, and so it is asked for again where there is no such table
    if [fold(name) for name in names] == ["grants"] and session.names.relation(names) is None:
        raise NotPermittedError("a safe session does not show grants", hint="it shows tables and their columns")
    return Cursor(f"DESCRIBE {_join_names(names)}")


def _use(session: Session, ahead: Cursor) -> Cursor:
    ahead.expect("USE")
    names = ahead.names()
    ahead.end()
    used = session.names.default
    of_lake = session.attachments.get(names[0]) is not None and len(names) <= 2
    if not of_lake and not (len(names) == 1 and used is not None and session.names.has_schema(used, names[0])):
        raise NotPermittedError("a safe session uses lakes only", hint="USE lake or USE lake.schema")
    return Cursor(f"USE {_join_names(names)}")


def _join_names(names: Sequence[str]) -> str:
    return ".".join(quote(name) for name in names)


_FORMS: Mapping[str, Callable[[Session, Cursor], Cursor]] = {
    **dict.fromkeys(("CALL", "DEALLOCATE", "EXECUTE"), lambda _, cursor: cursor),
    **dict.fromkeys(("DESC", "DESCRIBE", "SHOW"), _show),
    **dict.fromkeys(("PIVOT", "UNPIVOT"), _pivot),
    "EXPLAIN": _explain,
    "PREPARE": _prepare,
    "USE": _use,
}

# -- parsed queries ----------------------------------------------------------------------------------------------------

#: Returns True for the name of a lake's macro, which is checked where it is used.
Known = Callable[[Sequence[str], bool], bool]

#: Lake functions that only read, and reveal neither keys nor file locations.
_OF_LAKES = frozenset(
    """
    current_snapshot last_committed_snapshot snapshots table_changes table_deletions table_info table_insertions
    """.split()  # noqa: SIM905
)
#: Listings of the objects in lakes.
LISTINGS = frozenset({"duckdb_columns", "duckdb_constraints", "duckdb_schemas", "duckdb_tables", "duckdb_views"})
_EXPRESSIONS = frozenset(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT DEFAULT FUNCTION LAMBDA LAMBDA_REF OPERATOR
    PARAMETER POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW
    """.split()  # noqa: SIM905
)
_QUERIES = frozenset({"CTE_NODE", "RECURSIVE_CTE_NODE", "SELECT_NODE", "SET_OPERATION_NODE"})
#: Queries, relations and sort orders.
_KINDS = _QUERIES | frozenset(
    """
    BASE_TABLE EMPTY EXPRESSION_LIST JOIN PIVOT SHOW_REF SUBQUERY TABLE_FUNCTION
    ORDER_DEFAULT ASCENDING DESCENDING INVALID
    """.split()  # noqa: SIM905
)
_PARTS = ("_MODIFIER", "_TYPE_INFO")
_SHOWN = frozenset({"", '"tables"', "__show_tables_expanded"})
#: Prefixes of the names of DuckDB's own tables, and of Quacklake's.
_OWN = ("duckdb_", "pg_", "pragma_", "sqlite_", PREFIX)
_PLAIN = re.compile(r"[^\W\d]\w*")


def check(parsed: Node, known: Known) -> None:
    """Raise ``NotPermittedError`` for the first part of a query or expression that is not on the list."""
    done: set[int] = set()
    for node in tree.nodes(parsed):
        _check_kind(node)
        # where a common table is not visible, DuckDB reads its own table or a file of that name
        for entry in node["cte_map"]["map"] if isinstance(node.get("cte_map"), dict) else ():
            if not _PLAIN.fullmatch(entry["key"]) or fold(entry["key"]).startswith(_OWN):
                raise NotPermittedError(f'a safe session has no common table of the name "{entry["key"]}"')
        if node.get("type") == "TABLE_FUNCTION":
            done.add(id(node["function"]))
            _check_table_function(node["function"], known)
        elif "function_name" in node and id(node) not in done:
            if node.get("export_state"):
                raise NotPermittedError("a safe session does not export the states of aggregates")
            if fold(node["function_name"]) not in FUNCTIONS:
                _check_macro(node, known, is_table=False)


def check_value(expression: Node, is_macro: Known | None = None) -> None:
    """Check an expression on its own, which may not read any table."""
    check(expression, is_macro or (lambda *_: False))
    if any(node.get("class") == "SUBQUERY" for node in tree.nodes(expression)):
        raise NotPermittedError("a safe session computes no queries here")


def _check_kind(node: Node) -> None:
    kind, class_ = node.get("type"), node.get("class")
    if class_ is not None:
        known = class_ in _EXPRESSIONS
    else:
        known = not isinstance(kind, str) or kind in _KINDS or kind.endswith(_PARTS)
    if "qualified_name" in node and kind != "SHOW_REF":
        known = False  # the name has not been resolved
    if kind == "SHOW_REF" and node.get("query") is None and node.get("table_name") not in _SHOWN:
        known = False
    if not known:
        raise NotPermittedError(f"a safe session does not know {class_ or kind}")


def _check_table_function(call: Node, known: Known) -> None:
    if call.get("class") != "FUNCTION":
        raise NotPermittedError(f"a safe session does not know rows of {call.get('class')}")
    name = fold(call["function_name"])
    harmless = name in HARMLESS or name.removeprefix("ducklake_") in _OF_LAKES
    if not harmless and not (name in LISTINGS and not call["children"]):
        _check_macro(call, known, is_table=True)


def _check_macro(call: Node, known: Known, *, is_table: bool) -> None:
    if not known([call[key] for key in ("catalog", "schema", "function_name") if call.get(key)], is_table):
        raise NotPermittedError(
            f'a safe session does not call the function "{call["function_name"]}"',
            hint="functions may work on their arguments and on the tables of lakes only",
        )


# -- sizes -------------------------------------------------------------------------------------------------------------
# DuckDB binds a query with its common tables, views and macros expanded, without regard to the timeout. Every level of
# ``SELECT * FROM c a, c b`` doubles the columns, so a short text can take minutes and gigabytes.

#: Functions whose result is as large as an argument says, with the position of that argument.
_SIZED = {
    **dict.fromkeys(("repeat", "lpad", "rpad", "bitstring", "list_resize", "array_resize"), (1,)),
    **dict.fromkeys(("range", "generate_series"), (0, 1)),
    "bar": (3,),
}
#: Functions whose sizes multiply, because they may be nested, even through a common table.
_MULTIPLYING = ("repeat", "range", "generate_series")
_FORMATS = ("format", "printf")
_NUMBER = re.compile(r"[0-9]+")
_VARIABLE_WIDTH = re.compile(r"\{[^{}]*:[^{}]*\{|%[^a-zA-Z]*\*")
_FUNCTION_COLUMNS = 8
"""The most columns that a table function has."""


def check_shape(parsed: Node, safety: Safety) -> None:
    """Raise ``StatementTooLargeError`` for a deeply nested or long query, before anything recurses into it."""
    level: list[Any] = [parsed]
    depth = parts = 0
    most = safety.max_depth
    while level:
        below: list[Any] = []
        for node in level:
            for value in node.values() if isinstance(node, dict) else node:
                if isinstance(value, dict | list):
                    below.append(value)
                    parts += isinstance(value, dict) and "class" in value
        depth += 1
        if depth > 3 * most:  # each part of an expression is a mapping in a list in a mapping
            raise StatementTooLargeError(f"the statement is nested more than {most} levels deep")
        if safety.max_nodes is not None and parts > safety.max_nodes:
            raise StatementTooLargeError(f"the statement has more than {safety.max_nodes} parts")
        level = below


class Measure:
    """Measures one query. ``made`` holds the sizes of its scans, views and macros by name."""

    def __init__(self, made: Mapping[str, Size], safety: Safety) -> None:
        self._made = made
        self._safety = safety
        self._repeats = 1
        self._references = 0

    def of(self, parsed: Node) -> Size:
        """Return the size of the query. Raise ``StatementTooLargeError`` or ``NotPermittedError``."""
        size = self._query(parsed.get("node", parsed), {})
        self._check(size)
        return Size(size.nodes, size.tables, size.columns, max(1, self._references))

    def _check(self, size: Size) -> None:
        for what in ("nodes", "tables", "columns"):
            count, most = getattr(size, what), getattr(self._safety, f"max_{what}")
            if most is not None and count > most:
                raise StatementTooLargeError(
                    f"the statement comes to {count} {'parts' if what == 'nodes' else what} with its common tables,"
                    f" views and macros, {most} are allowed"
                )

    def _query(self, node: Node, known: Mapping[str, Size]) -> Size:
        """Return the size of a query node. ``known`` are the common tables that are visible in it."""
        nodes = tables = 0
        for entry in node["cte_map"]["map"] if isinstance(node.get("cte_map"), dict) else ():
            name, query = fold(entry["key"]), entry["value"]["query"]["node"]
            found = self._query(query, {**known, name: Size(1, 1, 1)})
            known = {**known, name: found}
            nodes, tables = nodes + found.nodes, tables + found.tables
        inner = self._node(node, known)
        total = Size(nodes + inner.nodes, tables + inner.tables, inner.columns)
        self._check(total)
        return total

    def _node(self, node: Node, known: Mapping[str, Size]) -> Size:
        if node.get("type") != "SELECT_NODE":
            parts = [part for key in ("left", "right", "children", "child", "query") for part in _nodes(node.get(key))]
            found = [self._query(part, known) for part in parts]
            sums = [sum(size.nodes for size in found), sum(size.tables for size in found)]
            return Size(sums[0] + 1, sums[1], max((size.columns for size in found), default=1))
        source = self._relation(node["from_table"], known)
        rest = [value for key, value in node.items() if key not in ("from_table", "cte_map", "select_list")]
        nodes, tables = self._parts([node["select_list"], rest], known, source)
        columns = sum(source.columns if item.get("class") == "STAR" else 1 for item in node["select_list"])
        return Size(nodes + source.nodes, tables + source.tables, max(columns, source.columns))

    def _relation(self, node: Node, known: Mapping[str, Size]) -> Size:
        match node.get("type"):
            case "EMPTY":
                return Size(0, 0, 0)
            case "BASE_TABLE":
                name = fold(node["table_name"])
                return known.get(name) or self._made.get(node["table_name"]) or Size(1, 1, 1)
            case "JOIN":
                left, right = self._relation(node["left"], known), self._relation(node["right"], known)
                nodes, tables = self._parts(node.get("condition"), known, left)
                return Size(
                    left.nodes + right.nodes + nodes,
                    left.tables + right.tables + tables,
                    left.columns + right.columns,
                )
            case "SUBQUERY":
                return self._query(node["subquery"]["node"], known)
            case "TABLE_FUNCTION":
                call = node["function"]
                nodes, tables = self._parts(call["children"], known, Size(0, 0, 1))
                found = self._made.get(call["function_name"], Size(1, 1, _FUNCTION_COLUMNS))
                return Size(found.nodes + found.uses * nodes, found.tables + found.uses * tables, found.columns)
        nodes, tables = self._parts(node, known, Size(0, 0, 1))
        source = node.get("source")
        inner = self._relation(source, known) if isinstance(source, dict) else Size(0, 0, 0)
        return Size(nodes + inner.nodes, tables + inner.tables + 1, inner.columns + nodes)

    def _parts(self, part: Any, known: Mapping[str, Size], source: Size) -> tuple[int, int]:
        """Return the number of expression parts, and of table references in their subqueries."""
        if isinstance(part, list):
            found = [self._parts(item, known, source) for item in part]
            return sum(nodes for nodes, _ in found), sum(tables for _, tables in found)
        if not isinstance(part, dict):
            return 0, 0
        if part.get("class") == "CONSTANT":
            return 1, 0
        if isinstance(part.get("type"), str) and part["type"] in _QUERIES:
            size = self._query(part, known)
            return size.nodes, size.tables
        nodes, tables = self._parts(list(part.values()), known, source)
        if part.get("class") is None:
            return nodes, tables
        if part["class"] == "COLUMN_REF":
            self._references += 1
        if part["class"] == "STAR":
            nodes += source.columns
        if "function_name" in part:
            self._check_size(part)
            macro = self._made.get(part["function_name"])
            if macro is not None:
                nodes, tables = macro.nodes + macro.uses * nodes, macro.tables + macro.uses * tables
        if self._safety.max_nodes is not None and nodes > self._safety.max_nodes:
            self._check(Size(nodes, tables, 1))
        return nodes + 1, tables

    def _check_size(self, call: Node) -> None:
        """Refuse a call that may create a value larger than the limit, since DuckDB cannot be stopped while it does."""
        most, name = self._safety.max_repeats, fold(call["function_name"])
        if most is None or (name not in _SIZED and name not in _FORMATS):
            return
        arguments = call["children"]
        places = _SIZED.get(name, (0,))
        counts = [_count(arguments[place], name) for place in places if place < len(arguments)]
        if any(count is None for count in counts):
            raise NotPermittedError(
                f'a safe session calls "{name}" with a constant size only', hint=f"least(size, {most}) bounds a size"
            )
        largest = max([1, *(abs(count) for count in counts if count is not None)])
        if name in _MULTIPLYING:
            self._repeats *= largest
        if max(largest, self._repeats) > most:
            raise StatementTooLargeError(f"the statement makes values of more than {most} parts")


def _nodes(value: Any) -> list[Node]:
    if isinstance(value, list):
        return [item for item in value if isinstance(item, dict)]
    if isinstance(value, dict):
        return [value["node"] if isinstance(value.get("node"), dict) else value]
    return []


def _count(node: Node, function: str) -> int | None:
    """Return the size that an argument gives, or None when it depends on the rows."""
    while node.get("class") == "CAST":
        node = node["child"]
    if fold(str(node.get("function_name", ""))) == "least":
        found = [count for child in node["children"] if (count := _count(child, function)) is not None]
        return min(found, default=None)
    constant = tree.constant_of(node)
    if constant is None:
        return None
    if function in _FORMATS:
        text = str(constant.value)
        return None if _VARIABLE_WIDTH.search(text) else max(map(int, _NUMBER.findall(text)), default=1)
    if isinstance(constant.value, int):
        return constant.value
    return 1 if constant.type == "NULL" else None
