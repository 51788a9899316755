"""Analyze the query of a materialized view: which output columns tell its groups apart, and what can be merged.

All functions work on DuckDB's own tree of the query, as ``engines.duckdb.trees`` serializes it, and read nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from quacklake.core.engines.duckdb.trees import Node, bare, constant_of, nodes
from quacklake.core.format.names import fold
from quacklake.core.materialized.collations import EXACT, collation_of, functions_of, is_collated, spelling
from quacklake.core.materialized.ordering import ORDERED, open_orders

#: What DuckDB makes of list(… ORDER BY …).
_SORTED = ("list_sort", "list_reverse_sort")
#: Functions whose value depends on when, where or how often they are called.
_VOLATILE = frozenset(
    """
    age current_catalog current_connection_id current_database current_date current_localtime current_localtimestamp
    current_query current_query_id current_role current_schema current_schemas current_setting current_time
    current_timestamp current_transaction_id current_user currval error gen_random_uuid get_current_time
    get_current_timestamp getvariable in_search_path localtime localtimestamp nextval now random session_user setseed
    sleep_ms stats today transaction_timestamp txid_current user uuid uuidv4 uuidv7 version write_log
    """.split()  # noqa: SIM905
)
#: The aggregate that merges values of an aggregate.
MERGED = {
    "count_star": "sum",
    "count": "sum",
    "count_if": "sum",
    "countif": "sum",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "bool_and": "bool_and",
    "bool_or": "bool_or",
    "bit_and": "bit_and",
    "bit_or": "bit_or",
    "bit_xor": "bit_xor",
}
_AVERAGES = ("avg", "mean")
#: Functions of a time that round it down: the same bucket is one range of times.
_BUCKETS = ("date_trunc", "datetrunc", "time_bucket")


@dataclass(frozen=True)
class Reference:
    """A table in FROM. ``core`` tells that every row of the join has a row of it: no outer join makes it NULL."""

    schema: str
    name: str
    alias: str
    core: bool
    columns: frozenset[str]


@dataclass(frozen=True)
class Item:
    """An output column: ``key`` when rows of different values never meet in one group or window."""

    key: bool
    merge: str | None = None
    of: tuple[int, int] | None = None
    """For an average: the places of the sum and the count of the same values."""
    collation: str = EXACT
    """For a key: the collation by which its values are compared."""


@dataclass(frozen=True)
class Branch:
    """One SELECT of the query; several are joined by UNION ALL. ``linear``: each row gives its own output rows."""

    references: tuple[Reference, ...]
    items: tuple[Item, ...]
    linear: bool
    mergeable: bool
    reads: tuple[frozenset[int], ...]
    """For each item, the references whose columns it reads."""


@dataclass(frozen=True)
class Analysis:
    """The ways of refreshing that a query allows. ``reason`` says why it can only be computed in full, or is None."""

    branches: tuple[Branch, ...] = ()
    keys: tuple[int, ...] = ()
    """Output columns that tell groups apart in every branch, and that no outer join makes NULL."""
    reason: str | None = None
    collations: tuple[str, ...] = ()
    """For each key, the collation by which its values are compared."""

    @property
    def linear(self) -> bool:
        """True when every branch gives each row its own output rows."""
        return all(branch.linear for branch in self.branches)

    @property
    def way(self) -> str:
        """The way in which the view is refreshed in general."""
        if self.reason is not None:
            return "full"
        if self.linear and all(len(branch.references) == 1 for branch in self.branches):
            return "rows"
        return "groups"


_SUBQUERY = "common tables, views and subqueries may only choose rows and columns"


class NotIncremental(Exception):
    """Raised inside the analysis for a query that can only be computed in full."""


Columns = Mapping[tuple[str, str], Sequence[str]]
"""The columns of each table, by folded schema and name."""


def selects(node: Node) -> Iterator[Node]:
    """Yield the SELECTs that UNION ALL joins. Raise ``NotIncremental`` for other set operations."""
    if node["type"] == "SELECT_NODE":
        yield node
        return
    if node["type"] != "SET_OPERATION_NODE" or node.get("setop_type") != "UNION" or not node.get("setop_all"):
        kind = str(node.get("setop_type") or node["type"]).replace("_NODE", "").replace("_", " ")
        raise NotIncremental(f"{kind} compares all rows; only UNION ALL is supported")
    if node["cte_map"]["map"]:
        raise NotIncremental(_SUBQUERY)
    _check_modifiers(node)
    children = node.get("children") or [node["left"], node["right"]]
    for child in children:
        yield from selects(child)


def base_tables(tree: Node) -> Iterator[Node]:
    """Yield every reference to a table that is not a common table of the query."""
    common = {
        fold(entry["key"])
        for node in nodes(tree)
        if isinstance(node.get("cte_map"), dict)
        for entry in node["cte_map"]["map"]
    }
    for node in nodes(tree):
        if node.get("type") != "BASE_TABLE":
            continue
        if node.get("schema_name") or fold(node["table_name"]) not in common:
            yield node


def analyze(tree: Node, columns: Columns, aggregates: frozenset[str]) -> Analysis:
    """Return what a query allows whose tables are all qualified with their schema, and whose stars are expanded."""
    try:
        _check_functions(tree, aggregates)
        branches = tuple(_branch(node, columns, aggregates) for node in selects(tree["node"]))
        width = {len(branch.items) for branch in branches}
        if len(width) != 1:
            raise NotIncremental("the branches of UNION ALL have different columns")
        linear = all(branch.linear for branch in branches)
        single = all(len(branch.references) == 1 for branch in branches)
        found = {place: _collations(branches, place) for place in range(width.pop())}
        keys = tuple(place for place, collations in found.items() if len(collations) == 1)
        merging = len(branches) == 1 and branches[0].mergeable
        if not keys and not (linear and single) and not merging:
            raise NotIncremental(
                "no output column identifies its groups: select the columns of GROUP BY or PARTITION BY"
            )
        for select in selects(tree["node"]):
            _check_order(select, aggregates)
        return Analysis(branches, keys, collations=tuple(found[place][0] for place in keys))
    except NotIncremental as error:
        return Analysis(reason=str(error))


def _collations(branches: Sequence[Branch], place: int) -> tuple[str, ...]:
    """Return the collation by which a column tells groups apart in every branch; none or several where it does not."""
    if not all(_is_key(branch, place) for branch in branches):
        return ()
    # what one branch compares exactly may be compared by the collation of another: that joins groups, and splits none
    return tuple({branch.items[place].collation for branch in branches} - {EXACT}) or (EXACT,)


def _is_key(branch: Branch, place: int) -> bool:
    read = branch.reads[place]
    return branch.items[place].key and all(branch.references[which].core for which in read)


# -- what makes a query impossible to follow ---------------------------------------------------------------------------


def volatile(tree: Node) -> str | None:
    """Return what makes the answer differ from run to run, or None."""
    for node in nodes(tree):
        if "function_name" in node and fold(str(node["function_name"])) in _VOLATILE:
            if fold(str(node["function_name"])) == "age" and len(node.get("children", ())) == 2:
                continue
            return f"{fold(str(node['function_name']))}() returns a different value each time"
        names = node.get("column_names") if node.get("class") == "COLUMN_REF" else None
        word = fold(names[0]) if names is not None and len(names) == 1 else ""
        if word in _VOLATILE and word.startswith(("current_", "local")):
            return f"{word} has a different value each time"
        if node.get("sample"):
            return "a sample has different rows each time"
    return None


def _check_functions(tree: Node, aggregates: frozenset[str]) -> None:
    reason = volatile(tree)
    if reason is not None:
        raise NotIncremental(reason)
    sorted_ = {id(node["children"][0]) for node in nodes(tree) if node.get("function_name") in _SORTED}
    for node in nodes(tree):
        if node.get("class") == "SUBQUERY":
            raise NotIncremental("subqueries in expressions are not supported: use a join")
        name = fold(str(node.get("function_name", "")))
        if name in aggregates and name in ORDERED and not _orders(node) and id(node) not in sorted_:
            raise NotIncremental(f"{name} depends on the order of the rows")


def _check_order(select: Node, aggregates: frozenset[str]) -> None:
    """Raise ``NotIncremental`` where rows that a window orders can change places, and the answer with them."""
    for window in nodes(select["select_list"]):
        if window.get("class") == "WINDOW" and window.get("exclude_clause") in ("GROUP", "TIES"):
            raise NotIncremental("EXCLUDE GROUP and EXCLUDE TIES are not supported")
    for found in open_orders(select, aggregates):
        raise NotIncremental(f"{found.function} depends on the order of rows that its ORDER BY leaves equal")


def _orders(node: Node) -> bool:
    if node.get("class") == "WINDOW":
        return bool(node.get("orders") or node.get("arg_orders"))
    return bool((node.get("order_bys") or {}).get("orders"))


def _check_modifiers(node: Node) -> bool:
    """Return whether a node is DISTINCT. Raise ``NotIncremental`` for what depends on all rows."""
    distinct = False
    for modifier in node["modifiers"]:
        if modifier["type"] == "DISTINCT_MODIFIER":
            if modifier.get("distinct_on_targets"):
                raise NotIncremental("DISTINCT ON depends on the order of the rows")
            distinct = True
        elif modifier["type"] != "ORDER_MODIFIER":  # the rows of a table have no order
            raise NotIncremental("LIMIT depends on all rows")
    return distinct


# -- one SELECT --------------------------------------------------------------------------------------------------------


def _branch(node: Node, columns: Columns, aggregates: frozenset[str]) -> Branch:
    if node["cte_map"]["map"]:
        raise NotIncremental(_SUBQUERY)
    distinct = _check_modifiers(node)
    if distinct and any(collation_of(item) != EXACT for item in node["select_list"]):
        raise NotIncremental("DISTINCT with a collation and windows or groups is not supported")
    if node.get("qualify"):
        raise NotIncremental("QUALIFY depends on all rows")
    references = tuple(_references(node["from_table"], columns, core=True))
    _check_joins(node["from_table"], references)
    items: list[Node] = node["select_list"]
    if any(item.get("class") == "STAR" for item in nodes(items)):
        raise NotIncremental("this kind of star is not supported: name the columns")
    reads = tuple(reads_of(item, references) for item in items)
    grouped = _find_group_keys(node, items, references, aggregates)
    windows = [found for found in nodes(items) if found.get("class") == "WINDOW"]
    _check_collations(node, items)
    keys = [True] * len(items)
    collations: list[set[str]] = [{collation_of(item)} if distinct else set() for item in items]
    if grouped is not None:
        keys = [place in grouped for place in range(len(items))]
        for place, collation in grouped.items():
            collations[place].add(collation)
    for window in windows:
        parts = [(_plain(spelling(part), references), collation_of(part)) for part in window["partitions"]]
        for place, item in enumerate(items):
            same = [collation for part, collation in parts if part == _plain(spelling(item), references)]
            keys[place] = keys[place] and bool(same)
            collations[place].update(same[:1])
    keys = [key and len(found - {EXACT}) <= 1 for key, found in zip(keys, collations, strict=True)]
    if not windows and any(found.get("function_name") in ("unnest", "unlist") for found in nodes(items)):
        keys = [key and not _has(item, ("unnest", "unlist")) for key, item in zip(keys, items, strict=True)]
        if grouped is not None or distinct:
            raise NotIncremental("unnest is not supported in a query with groups")
    merged = _find_merges(node, items, keys, grouped, windows=bool(windows), distinct=distinct)
    made = tuple(
        Item(
            key,
            *(merged[place] if merged is not None else (None, None)),
            next(iter(collations[place] - {EXACT}), EXACT) if key else EXACT,
        )
        for place, key in enumerate(keys)
    )
    linear = grouped is None and not windows and not distinct
    return Branch(references, made, linear, merged is not None, reads)


def _references(node: Node, columns: Columns, *, core: bool) -> Iterator[Reference]:
    if node["type"] == "BASE_TABLE":
        if node.get("at_clause") or node.get("column_name_alias"):
            raise NotIncremental("AT and column aliases in FROM are not supported")
        key = (fold(node["schema_name"]), fold(node["table_name"]))
        if key not in columns:
            raise NotIncremental(f'"{node["table_name"]}" is not a table of the lake')
        alias = node.get("alias") or node["table_name"]
        yield Reference(node["schema_name"], node["table_name"], alias, core, frozenset(map(fold, columns[key])))
        return
    if node["type"] != "JOIN":
        raise NotIncremental(
            _SUBQUERY if node["type"] == "SUBQUERY" else "FROM may only name tables, not functions or values"
        )
    left = node["join_type"] == "LEFT"
    if node["join_type"] not in ("INNER", "LEFT") or node.get("ref_type") not in ("REGULAR", "CROSS"):
        raise NotIncremental("only inner and left joins are supported")
    if left and node["right"]["type"] == "SUBQUERY":
        raise NotIncremental("a subquery that an outer join may make NULL is not followed: join its table")
    if node["right"]["type"] != "BASE_TABLE":
        raise NotIncremental("nested joins are not supported: write the joins one after the other")
    yield from _references(node["left"], columns, core=core)
    yield from _references(node["right"], columns, core=core and not left)


def _check_joins(node: Node, references: Sequence[Reference]) -> None:
    """Raise ``NotIncremental`` for a condition over a table that an outer join may make NULL, unless it is that one."""
    place = len(references) - 1
    while node["type"] == "JOIN":
        using = [fold(name) for name in node.get("using_columns") or ()]
        for reference in references[:place]:
            if not reference.core and reference.columns.intersection(using):
                raise NotIncremental("a join on a column of an outer join is not supported")
        read = reads_of(node.get("condition"), references[: place + 1]) if node.get("condition") else frozenset()
        if any(not references[which].core for which in read if which != place):
            raise NotIncremental("a join on a column of an outer join is not supported")
        node, place = node["left"], place - 1


def reads_of(expression: Node | None, references: Sequence[Reference]) -> frozenset[int]:
    """Return the references whose columns an expression may read."""
    found: set[int] = set()
    for node in nodes(expression):
        if node.get("class") != "COLUMN_REF":
            continue
        names = [fold(name) for name in node["column_names"]]
        aliased = [which for which, reference in enumerate(references) if fold(reference.alias) in names[:-1]]
        named = [which for which, reference in enumerate(references) if names[0] in reference.columns]
        # a name may be a column, a field of a column, or an alias of another item: then anything
        found.update(aliased or named or range(len(references)))
    return frozenset(found)


def _plain(node: Node, references: Sequence[Reference]) -> object:
    """Return an expression without alias and places, with columns that one table has named without it."""
    tree = bare(node)
    tree = {**tree, "alias": ""}
    if tree.get("class") == "COLUMN_REF":
        names = [fold(name) for name in tree["column_names"]]
        if len(names) > 1 and sum(names[-1] in reference.columns for reference in references) == 1:
            names = names[-1:]
        tree = {**tree, "column_names": names}
    return tree


def _check_collations(select: Node, items: Sequence[Node]) -> None:
    """Raise ``NotIncremental`` for collations that a group is not told apart by, or of which nobody knows how."""
    parts = [spelling(item) for item in items]
    windows = [node for node in nodes(items) if node.get("class") == "WINDOW"]
    grouping = [*select["group_expressions"], *(part for window in windows for part in window["partitions"])]
    for part in (*items, *grouping):
        collation = collation_of(part)
        if functions_of(collation) is None:
            raise NotIncremental(f'the collation "{collation}" is not supported')
    ordered = {id(order) for window in windows for order in [*window["partitions"], *window["orders"]]}
    inner = [_without(part, ordered) for part in parts]
    if is_collated([inner, [spelling(part) for part in grouping], select.get("having")]):
        raise NotIncremental("a collation inside an expression is not supported: give it to the whole of a column")
    if select["aggregate_handling"] == "FORCE_AGGREGATES" and any(collation_of(item) != EXACT for item in items):
        raise NotIncremental("GROUP BY ALL with a collation is not supported: name the columns of GROUP BY")


def _without(part: object, left_out: set[int]) -> object:
    """Return a tree without some of its nodes."""
    if isinstance(part, list):
        return [_without(each, left_out) for each in part if id(each) not in left_out]
    if isinstance(part, dict):
        return {key: _without(value, left_out) for key, value in part.items() if id(value) not in left_out}
    return part


def _has(node: Node, names: Sequence[str] | frozenset[str]) -> bool:
    return any(
        fold(str(found.get("function_name", ""))) in names and found.get("class") != "WINDOW" for found in nodes(node)
    )


def _find_group_keys(
    node: Node, items: Sequence[Node], references: Sequence[Reference], aggregates: frozenset[str]
) -> dict[int, str] | None:
    """Return the items that are grouped by, by their places, with their collations; None for a query without groups."""
    aggregated = [_has(item, aggregates) for item in items]
    if node["aggregate_handling"] == "FORCE_AGGREGATES":
        return {place: EXACT for place, one in enumerate(aggregated) if not one}
    groups = node["group_expressions"]
    if not groups:
        return {} if any(aggregated) or node.get("having") else None
    if len(node["group_sets"]) != 1:
        raise NotIncremental("GROUPING SETS, ROLLUP and CUBE are not supported")
    columns = {name for reference in references for name in reference.columns}
    found: dict[int, str] = {}
    for group in groups:
        constant = constant_of(group)
        if constant is not None and isinstance(constant.value, int):
            found[constant.value - 1] = collation_of(items[constant.value - 1])
            continue
        collation = collation_of(group)
        plain = _plain(group, references)
        names = group.get("column_names", ())
        for place, item in enumerate(items):
            by_alias = len(names) == 1 and fold(item.get("alias", "")) == fold(names[0])
            # a column of a table comes before an alias
            if _plain(item, references) == plain or (by_alias and fold(names[0]) not in columns):
                found[place] = collation_of(item)
            elif (
                collation != EXACT
                and _shows_spelling(item)
                and _plain(item["children"][0], references) == _plain(spelling(group), references)
            ):
                found[place] = collation
    return found


def _shows_spelling(item: Node) -> bool:
    """Return whether an item is the least or the greatest of some values: of a group, that is a value of it."""
    plain = item.get("class") == "FUNCTION" and not item.get("distinct") and not item.get("filter")
    return plain and fold(str(item["function_name"])) in ("min", "max") and len(item["children"]) == 1


def key_of(item: Node, collation: str) -> Node:
    """Return what the groups of a SELECT compare of an item, which may show the least of its spellings."""
    return item["children"][0] if collation != EXACT and _shows_spelling(item) else spelling(item)


def _find_merges(
    node: Node,
    items: Sequence[Node],
    keys: Sequence[bool],
    grouped: Mapping[int, str] | None,
    *,
    windows: bool,
    distinct: bool,
) -> list[tuple[str | None, tuple[int, int] | None]] | None:
    """Return how each item merges with that of more rows of its group, or None when the items do not tell."""
    if grouped is None or windows or distinct or node.get("having"):
        return None
    if node["aggregate_handling"] != "FORCE_AGGREGATES" and len(node["group_expressions"]) != len(grouped):
        return None
    found: list[tuple[str | None, tuple[int, int] | None]] = []
    for item, key in zip(items, keys, strict=True):
        if key:
            found.append((MERGED[fold(item["function_name"])] if _shows_spelling(item) else None, None))
            continue
        name = fold(str(item.get("function_name", ""))) if item.get("class") == "FUNCTION" else ""
        plain = not item.get("distinct") and not item.get("export_state")
        if not plain or (name not in MERGED and name not in _AVERAGES):
            return None
        if name in MERGED:
            found.append((MERGED[name], None))
            continue
        total, count = _same(items, item, "sum"), _same(items, item, "count")
        if total is None or count is None:
            return None
        found.append(("avg", (total, count)))
    return found


def _same(items: Sequence[Node], average: Node, function: str) -> int | None:
    """Return the place of a sum or count of the values of an average."""
    for place, item in enumerate(items):
        same = all(bare(item.get(key)) == bare(average.get(key)) for key in ("children", "filter"))
        if item.get("class") == "FUNCTION" and item["function_name"] == function and same and not item.get("distinct"):
            return place
    return None


# -- buckets -----------------------------------------------------------------------------------------------------------


def bucket(item: Node) -> tuple[Node, str] | None:
    """Return the column that an item rounds down and the width of its buckets as SQL, or None.

    >>> bucket({"class": "COLUMN_REF"}) is None
    True
    """
    if item.get("class") == "CAST":
        child: Node = item["child"]
        return (child, "INTERVAL 1 DAY") if _target(item) == "DATE" and child.get("class") == "COLUMN_REF" else None
    name, children = fold(str(item.get("function_name", ""))), item.get("children") or []
    if name not in _BUCKETS or len(children) != 2 or children[1].get("class") != "COLUMN_REF":
        return None
    constant = constant_of(children[0])
    if name == "time_bucket":
        width = _interval(children[0])
        return None if width is None else (children[1], width)
    unit = fold(str(constant.value)) if constant is not None else ""
    if unit in ("second", "minute", "hour", "day", "week", "month", "quarter", "year"):
        return children[1], f"INTERVAL 1 {unit.upper()}"
    return None


def _target(cast: Node) -> str:
    """Return the type that a cast is to, in the trees of either version of DuckDB."""
    known = cast.get("cast_type") or {}
    return str(known.get("id") or cast.get("type_expr", {}).get("type_name", ""))


def _interval(node: Node) -> str | None:
    """Return the text of an interval that is written as a literal."""
    for found in nodes(node):
        value = found.get("value")
        if isinstance(value, dict) and isinstance(value.get("value"), dict) and "months" in value["value"]:
            parts = value["value"]
            return (
                f"(to_months({int(parts['months'])}) + to_days({int(parts['days'])})"
                f" + to_microseconds({int(parts['micros'])}))"
            )
    constant = None
    name = fold(str(node.get("function_name", "")))
    if name.startswith("to_") and len(node.get("children", ())) == 1:
        child = node["children"][0]
        while child.get("class") in ("CAST", "FUNCTION") and (child.get("child") or child.get("children")):
            child = child["child"] if child.get("class") == "CAST" else child["children"][0]
        constant = constant_of(child)
        if constant is not None and isinstance(constant.value, int) and name in _SPANS:
            return f"{name}({constant.value})"
    if node.get("class") == "CAST" and _target(node) == "INTERVAL":
        constant = constant_of(node["child"])
        if constant is not None and isinstance(constant.value, str) and "'" not in constant.value:
            return f"INTERVAL '{constant.value}'"
    return None


_SPANS = ("to_days", "to_hours", "to_minutes", "to_seconds", "to_weeks", "to_months", "to_years", "to_milliseconds")
