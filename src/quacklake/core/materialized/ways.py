"""The ways to bring the rows of a view from its position to a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from quacklake.core.engines.duckdb.trees import Node, nodes
from quacklake.core.format.bounds import every
from quacklake.core.format.names import fold, quote
from quacklake.core.materialized import rewriting
from quacklake.core.materialized.collations import EXACT, comparable, comparable_node
from quacklake.core.materialized.definition import MaterializedView
from quacklake.core.materialized.query import Analysis, Branch, bucket, key_of, reads_of
from quacklake.core.materialized.spans import Key, Span, apart, by_text
from quacklake.core.materialized.spark_text import FEEDS, for_spark
from quacklake.core.materialized.survey import BaseChange, Survey
from quacklake.core.materialized.workspace import FEW, Feed, Match, Workspace, size_of
from quacklake.core.operations.row_changes import PLACES
from quacklake.core.sql import tree
from quacklake.core.sql.scans import Bound


@dataclass
class Outcome:
    """The changes that a refresh made to the rows of a view."""

    way: str
    reason: str | None = None
    keys: int = 0
    deleted: int = 0
    inserted: int = 0
    changes: int = 0


@dataclass
class Prepared:
    """A query that was parsed, checked and analyzed, with texts that were made of it, for the next refresh too."""

    query: Node
    analysis: Analysis
    texts: dict[Hashable, str] = field(default_factory=dict)

    def text(self, key: Hashable, make: Callable[[], str]) -> str:
        """Return a text, which is made once."""
        if key not in self.texts:
            self.texts[key] = make()
        return self.texts[key]


@dataclass
class Refresh:
    """One refresh of a view in a workspace. With ``dry`` it finds out what to do, and changes no row."""

    work: Workspace
    view: MaterializedView
    prepared: Prepared
    survey: Survey
    dry: bool = False

    @property
    def query(self) -> Node:
        """The tree of the query, which nobody changes."""
        return self.prepared.query

    @property
    def analysis(self) -> Analysis:
        """The ways that the query allows."""
        return self.prepared.analysis

    def run(self) -> Outcome:
        """Bring the view to the snapshot of the workspace by the cheapest way that is right."""
        if self.survey.reason is not None or self.survey.since is None:
            return self.full(self.survey.reason)
        if self.analysis.reason is not None:
            return self.full(self.analysis.reason)
        feeds = {base.table.id: self._feed(base) for base in self.survey.bases if base.changed}
        feeds = {id_: feed for id_, feed in feeds.items() if feed.inserted or feed.deleted}
        changes = sum(feed.inserted + feed.deleted for feed in feeds.values())
        if not feeds:
            return Outcome("none")
        grows = not any(feed.deleted for feed in feeds.values())
        alone = all(self._alone(branch, feeds) for branch in self.analysis.branches)
        if self.analysis.linear and grows and alone:
            outcome = self._append(feeds)
        elif self.analysis.way == "rows":
            outcome = self._rows(feeds)
        elif grows and alone and self._mergeable():
            outcome = self._merge(feeds)
        elif self.analysis.keys:
            outcome = self._groups(feeds)
        else:
            return self.full("the changes touch its only group")
        outcome.changes = changes
        return outcome

    def full(self, reason: str | None) -> Outcome:
        """Compute the view anew."""
        whole = self.prepared.text("whole", lambda: tree.render(self.work.connection, self.query))
        bound = self._heavy(self.work.bind(whole), lambda: spark_text(self.work, self.query, self.analysis))
        if self.dry:
            return Outcome("full", reason)
        deleted = self.work.remove_all(self.view.table)
        return Outcome("full", reason, deleted=deleted, inserted=self.work.append(self.view.table, bound))

    # -- what changed --------------------------------------------------------------------------------------------------

    def _feed(self, base: BaseChange) -> Feed:
        assert self.survey.since is not None
        names = {fold(name) for node in nodes(self.query) for name in node.get("column_names") or ()}
        names |= {fold(name) for node in nodes(self.query) for name in node.get("using_columns") or ()}
        return self.work.feed(base, self.survey.since, frozenset(names))

    def _tables(self, branch: Branch) -> list[BaseChange]:
        known = {(fold(b.table.schema_name), fold(b.table.name)): b for b in self.survey.bases}
        return [known[(fold(reference.schema), fold(reference.name))] for reference in branch.references]

    def _find_changed(self, branch: Branch, feeds: Mapping[int, Feed]) -> dict[int, Feed]:
        """Return the references of a branch whose tables changed, by their places."""
        tables = self._tables(branch)
        return {place: feeds[base.table.id] for place, base in enumerate(tables) if base.table.id in feeds}

    def _alone(self, branch: Branch, feeds: Mapping[int, Feed]) -> bool:
        """Return whether at most one reference of a branch changed, and none that an outer join may make NULL."""
        changed = self._find_changed(branch, feeds)
        return len(changed) <= 1 and all(branch.references[place].core for place in changed)

    def _with(self, number: int, others: Mapping[int, str]) -> str:
        """Return the text of a branch that reads temporary relations in place of some of its tables."""

        def make() -> str:
            connection, select = self.work.connection, rewriting.branches_of(self.query)[number]
            replaced = {place: rewriting.temporary(connection, name) for place, name in others.items()}
            return rewriting.query_text(connection, rewriting.with_references(select, replaced))

        return self.prepared.text(("with", number, *others.items()), make)

    def _compute(self, sql: str, *, alone: bool) -> str:
        """Compute a query into a temporary table; ``alone`` says that it reads temporary relations and nothing else."""
        return self.work.make(sql) if alone else self.work.keep(sql)

    def _columns(self) -> list[tuple[str, str]]:
        return [(f"c{n}", column.duckdb_type()) for n, column in enumerate(self.view.table.schema.columns)]

    def _cast_columns(self, sql: str) -> str:
        columns = self._columns()
        cast = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in columns)
        return f"SELECT {cast} FROM ({sql}) AS src({', '.join(name for name, _ in columns)})"

    # -- rows of their own ---------------------------------------------------------------------------------------------

    def _append(self, feeds: Mapping[int, Feed]) -> Outcome:
        """Insert the output of the rows that came."""
        parts = []
        for number, branch in enumerate(self.analysis.branches):
            for place, feed in self._find_changed(branch, feeds).items():
                parts.append(self._cast_columns(self._with(number, {place: feed.came})))
        text = " UNION ALL ".join(parts)
        bound = Bound(text, None, []) if self._single else self.work.bind(text)
        bound = self._of_feeds(bound, feeds)
        return Outcome("append") if self.dry else Outcome("append", inserted=self.work.append(self.view.table, bound))

    @property
    def _single(self) -> bool:
        """True when every branch reads one table alone."""
        return all(len(branch.references) == 1 for branch in self.analysis.branches)

    def _rows(self, feeds: Mapping[int, Feed]) -> Outcome:
        """Take away the output of the rows that went, and add that of the rows that came; equal rows cancel out."""
        columns = self._columns()
        parts = []
        for number, branch in enumerate(self.analysis.branches):
            for place, feed in self._find_changed(branch, feeds).items():
                for name, sign in ((feed.came, 1), (feed.went, -1))[: 2 if feed.deleted else 1]:
                    parts.append(
                        f"SELECT *, {sign} AS n FROM ({self._cast_columns(self._with(number, {place: name}))})"
                    )
        texts = [f"CAST({name} AS VARCHAR) AS t_{name}" for name, type_ in columns if by_text(type_)]
        # rows of equal values that are not the same do not cancel out
        texts += [f"{apart(name, type_)} AS a_{name}" for name, type_ in columns if _has_twins(name, type_)]
        listed = ", ".join(name if not by_text(type_) else f"any_value({name}) AS {name}" for name, type_ in columns)
        grouped = [name if not by_text(type_) else f"t_{name}" for name, type_ in columns]
        grouped += [f"a_{name}" for name, type_ in columns if _has_twins(name, type_)]
        source = f"SELECT *{''.join(f', {text}' for text in texts)} FROM ({' UNION ALL '.join(parts)})"
        hidden = "".join(f", {name}" for name in grouped if name.startswith(("t_", "a_")))
        net = f"SELECT {listed}{hidden}, CAST(sum(n) AS BIGINT) AS n FROM ({source}) GROUP BY {', '.join(grouped)}"
        delta = self._compute(f"SELECT * FROM ({net}) WHERE n <> 0", alone=self._single)
        if self.dry:
            return Outcome("rows", keys=self.work.number(f"SELECT count(*) FROM {delta}"))
        deleted = self._take_away(delta) if self.work.number(f"SELECT count(*) FROM {delta} WHERE n < 0") else 0
        names = ", ".join(name for name, _ in columns)
        more = self.work.make(f"SELECT {names} FROM (SELECT {names}, unnest(range(n)) FROM {delta} WHERE n > 0)")
        return Outcome("rows", deleted=deleted, inserted=self.work.insert(self.view.table, more))

    def _take_away(self, delta: str) -> int:
        """Delete as many rows as a delta says of each kind."""
        table, columns = self.view.table, self._columns()
        exact = self.work.make(f"SELECT * FROM {delta} WHERE n < 0")
        twins = [(place, name) for place, (name, type_) in enumerate(columns) if _has_twins(name, type_)]
        lost = exact
        if twins:  # all rows of equal values that go, of which those go first that are the same
            kept = ", ".join(f"any_value({name}) AS {name}" if by_text(type_) else name for name, type_ in columns)
            hidden = "".join(f", t_{name}" for name, type_ in columns if by_text(type_))
            groups = ", ".join(f"t_{name}" if by_text(type_) else name for name, type_ in columns)
            lost = self.work.make(f"SELECT {kept}{hidden}, CAST(sum(n) AS BIGINT) AS n FROM {exact} GROUP BY {groups}")
        own = [(quote(column.name), *pair) for column, pair in zip(table.schema.columns, columns, strict=True)]
        equal = " AND ".join(
            f"CAST(v.{mine} AS VARCHAR) IS NOT DISTINCT FROM d.t_{name}"
            if by_text(type_)
            else f"v.{mine} IS NOT DISTINCT FROM d.{name}"
            for mine, name, type_ in own
        )
        _, spans = self.work.spans(lost, [Key(name, type_) for name, type_ in columns])
        pairs = zip(table.schema.columns, columns, strict=True)
        predicate = every(spans[name].predicate(column) for column, (name, _) in pairs)
        kinds = ", ".join(f"d.t_{name}" if by_text(type_) else f"d.{name}" for _, name, type_ in own)
        found = (
            f"SELECT {PLACES} FROM (SELECT {PLACES}, d.n, row_number() OVER (PARTITION BY {kinds}) AS nth"
            f" FROM {{}} AS v JOIN temp.main.{lost} AS d ON {equal}) WHERE nth <= -n"
        )
        if twins:
            marks = {name: apart(f"v.{own[place][0]}", own[place][2]) or "" for place, name in twins}
            same = " AND ".join(f"{mark} IS NOT DISTINCT FROM e.a_{name}" for name, mark in marks.items())
            alike = " AND ".join(
                f"d.t_{name} IS NOT DISTINCT FROM e.t_{name}"
                if by_text(type_)
                else f"d.{name} IS NOT DISTINCT FROM e.{name}"
                for _, name, type_ in own
            )
            found = (
                f"SELECT {PLACES} FROM (SELECT {PLACES}, n, row_number() OVER (PARTITION BY kind ORDER BY nth > wanted)"
                f" AS nth FROM (SELECT {PLACES}, d.n, d.kind, coalesce(-e.n, 0) AS wanted,"
                f" row_number() OVER (PARTITION BY d.kind, {', '.join(marks.values())}) AS nth FROM {{}} AS v"
                f" JOIN (SELECT *, row_number() OVER () AS kind FROM temp.main.{lost}) AS d ON {equal}"
                f" LEFT JOIN temp.main.{exact} AS e ON {alike} AND {same})) WHERE nth <= -n"
            )
        return self.work.remove(table, self.work.found(table, found, predicate, guarded=True))

    # -- groups --------------------------------------------------------------------------------------------------------

    def _mergeable(self) -> bool:
        branches = self.analysis.branches
        if len(branches) != 1 or not branches[0].mergeable:
            return False
        types = [type_ for _, type_ in self._columns()]
        for place, item in enumerate(branches[0].items):
            # sums of floating-point numbers depend on their order
            if item.merge == "sum" and types[place] in ("FLOAT", "DOUBLE"):
                return False
            if item.of is not None and types[item.of[0]] != "HUGEINT":
                return False
        return True

    def _merge(self, feeds: Mapping[int, Feed]) -> Outcome:
        """Aggregate the rows that came, and merge them with the stored groups, without reading the tables."""
        (branch,) = self.analysis.branches
        changed = {place: feed.came for place, feed in self._find_changed(branch, feeds).items()}
        columns, table = self._columns(), self.view.table
        text = self._cast_columns(self._with(0, changed))
        bound = self._of_feeds(Bound(text, None, []) if self._single else self.work.bind(text), feeds)
        partial = self.work.make(bound.sql, bound.values)
        keys = [place for place, item in enumerate(branch.items) if item.key]
        names = [columns[place][0] for place in keys]
        collations = [branch.items[place].collation for place in keys]
        asked = [Key(*columns[place], collation=each) for place, each in zip(keys, collations, strict=True)]
        count, spans = self.work.spans(partial, asked, FEW)
        if self.dry:
            return Outcome("merge", keys=count)
        own = [
            Match(table.schema.columns[place], name, each, spelled=True)
            for place, name, each in zip(keys, names, collations, strict=True)
        ]
        stored = self.work.stored(table, partial, own, spans, values=True)
        rows = partial
        if stored is not None:
            merged = ", ".join(_merging(branch, place, *columns[place]) for place in range(len(columns)))
            groups = ", ".join(map(comparable, names, collations))
            grouped = f" GROUP BY {groups}" if names else ""
            listed = ", ".join(name for name, _ in columns)
            both = f"SELECT {listed} FROM {stored.table} UNION ALL SELECT {listed} FROM {partial}"
            rows = self.work.make(f"SELECT {merged} FROM ({both}){grouped}")
        deleted = self.work.remove(table, stored)
        return Outcome(
            "merge",
            keys=count,
            deleted=deleted,
            inserted=self.work.insert(table, rows, count if stored is None else None),
        )

    def _groups(self, feeds: Mapping[int, Feed]) -> Outcome:
        """Compute the groups that the changes touch again, and replace them."""
        keys, columns, table = self.analysis.keys, self._columns(), self.view.table
        collations = self.analysis.collations
        names = [f"k{at}" for at in range(len(keys))]
        selected = rewriting.branches_of(self.query)
        parts = []
        for branch, select in zip(self.analysis.branches, selected, strict=True):
            for place in self._find_changed(branch, feeds):
                parts.append(self._select_touched_keys(branch, select, place, feeds))
        cast = ", ".join(f"CAST({name} AS {columns[p][1]}) AS {name}" for name, p in zip(names, keys, strict=True))
        touched = self._compute(f"SELECT DISTINCT {cast} FROM ({' UNION ALL '.join(parts)})", alone=self._single)
        count, spans = self._spans(selected, touched, names)
        if not count:
            return Outcome("groups")
        again = [self._again(select, touched, names, known) for select, known in zip(selected, spans, strict=True)]
        bound = self._heavy(
            self.work.bind(" UNION ALL ".join(again)),
            lambda: spark_text(
                self.work,
                self.query,
                self.analysis,
                [self._near(select, known) for select, known in zip(selected, spans, strict=True)],
            ),
            f" WHERE {rewriting.packing([comparable(f'c{p}', each) for p, each in zip(keys, collations, strict=True)])}"
            f" IN (SELECT {rewriting.packing(names)} FROM temp.main.{touched})",
        )
        if self.dry:
            return Outcome("groups", keys=count)
        own = [
            Match(table.schema.columns[place], name, each)
            for place, name, each in zip(keys, names, collations, strict=True)
        ]
        stored = self.work.stored(table, touched, own, {key.name: span for key, span in spans[0]}, values=False)
        deleted = self.work.remove(table, stored)
        return Outcome("groups", keys=count, deleted=deleted, inserted=self.work.append(table, bound))

    def _spans(
        self, selected: Sequence[Node], touched: str, names: Sequence[str]
    ) -> tuple[int, list[list[tuple[Key, Span]]]]:
        """Return the number of touched groups, and for each branch the keys and their values.

        A key that rounds a time has a width.
        """
        columns, keys = self._columns(), self.analysis.keys
        found: list[list[tuple[Key, Span]]] = []
        known: dict[tuple[Key, ...], list[tuple[Key, Span]]] = {}
        count = 0
        for select in selected:
            made = []
            for place, name, collation in zip(keys, names, self.analysis.collations, strict=True):
                rounded = bucket(select["select_list"][place])
                width = None if rounded is None else rounded[1]
                made.append(Key(name, columns[place][1], width, collation))
            asked = tuple(made)
            if asked not in known:
                count, spans = self.work.spans(touched, asked)
                known[asked] = [(key, spans[key.name]) for key in asked]
            found.append(known[asked])
        return count, found

    def _select_touched_keys(self, branch: Branch, select: Node, place: int, feeds: Mapping[int, Feed]) -> str:
        """Return the query of the keys that the changes of a reference touch, before them and after."""
        connection, tables = self.work.connection, self._tables(branch)
        others: dict[int, Node] = {}
        for other, feed in self._find_changed(branch, feeds).items():
            if other == place:
                went = f" UNION ALL FROM temp.main.{feed.went}" if feed.deleted else ""
                others[other] = rewriting.relation(connection, f"(FROM temp.main.{feed.came}{went})")
            elif feed.deleted:  # what is gone may have been joined with what is gone
                table = tables[other].table
                fed = self.work.connection.execute(f"DESCRIBE {feed.went}").fetchall()
                listed = ", ".join(quote(str(row[0])) for row in fed)
                both = f"SELECT {listed} FROM {quote(table.schema_name)}.{quote(table.name)}"
                others[other] = rewriting.relation(connection, f"({both} UNION ALL FROM temp.main.{feed.went})")

        def reads(part: Node) -> frozenset[int]:
            return reads_of(part, branch.references)

        made = rewriting.keys_of(connection, select, branch, self._keys(select), place, others, reads)
        return rewriting.query_text(connection, made)

    def _again(self, select: Node, touched: str, names: Sequence[str], spans: Sequence[tuple[Key, Span]]) -> str:
        """Return the query of a branch for the touched keys alone."""
        connection = self.work.connection
        conditions = [rewriting.within(connection, self._keys(select), touched, names)]
        near = self._near(select, spans)
        return rewriting.query_text(connection, rewriting.restricted(connection, near, conditions))

    def _keys(self, select: Node) -> list[Node]:
        """Return what a branch compares of its keys."""
        pairs = zip(self.analysis.keys, self.analysis.collations, strict=True)
        connection, items = self.work.connection, select["select_list"]
        return [comparable_node(connection, key_of(items[place], each), each) for place, each in pairs]

    def _near(self, select: Node, spans: Sequence[tuple[Key, Span]]) -> Node:
        """Return a branch for the range of the touched keys: all rows of touched groups, and some of others."""
        connection, conditions = self.work.connection, []
        items = [select["select_list"][place] for place in self.analysis.keys]
        for item, (key, span) in zip(items, spans, strict=True):
            rounded = bucket(item)
            column = item if rounded is None else rounded[0]
            if column.get("class") != "COLUMN_REF":
                continue
            for text in span.conditions(key, rewriting.text_of(connection, column)):
                conditions.append(tree.expression_of(connection, f"({text})"))
        return rewriting.restricted(connection, select, conditions)

    # -- on Spark ------------------------------------------------------------------------------------------------------

    def _heavy(self, bound: Bound, text: Callable[[], str], where: str = "") -> Bound:
        """Let Spark compute a query that was bound, if it should; ``where`` is left for DuckDB."""
        size = size_of(*(scan.plan for scan in bound.scans))
        rows = self.work.on_spark(self.view.table, text, size, dry=self.dry)
        return bound if rows is None else Bound(f"SELECT * FROM ({self._cast_columns(rows)}){where}", None, [])

    def _of_feeds(self, bound: Bound, feeds: Mapping[int, Feed]) -> Bound:
        """Let Spark compute the output of rows that came, if it should and can read them."""
        if not all(self.work.is_plain(feed) for feed in feeds.values()):
            return bound

        def text() -> str:
            made, branches = [], []
            for branch, select in zip(self.analysis.branches, rewriting.branches_of(self.query), strict=True):
                for place, feed in self._find_changed(branch, feeds).items():
                    other = rewriting.relation(self.work.connection, f"{FEEDS}.{feed.came}")
                    made.append(rewriting.with_references(select, {place: other}))
                    branches.append(branch)
            return spark_text(self.work, self.query, replace(self.analysis, branches=tuple(branches)), made)

        size = sum(self.work.plain_bytes(feed) for feed in feeds.values())
        size += size_of(*(scan.plan for scan in bound.scans))
        rows = self.work.on_spark(self.view.table, text, size, dry=self.dry)
        return bound if rows is None else Bound(self._cast_columns(rows), None, [])


def spark_text(work: Workspace, query: Node, analysis: Analysis, selected: Sequence[Node] | None = None) -> str:
    """Return the text of a query, or of some of its branches, in the form that is translated for Spark."""
    if analysis.reason is not None:
        return tree.render(work.connection, query)
    selected = rewriting.branches_of(query) if selected is None else selected
    pairs = zip(selected, analysis.branches, strict=True)
    made = [for_spark(work.connection, select, branch) for select, branch in pairs]
    return " UNION ALL ".join(rewriting.query_text(work.connection, select) for select in made)


def _has_twins(name: str, type_: str) -> bool:
    """Return whether equal values of a column may differ."""
    return not by_text(type_) and apart(name, type_) is not None


def _merging(branch: Branch, place: int, name: str, type_: str) -> str:
    item = branch.items[place]
    if item.key and item.collation == EXACT:
        return name
    if item.of is not None:
        total, count = item.of
        return f"CAST(sum(c{total}) AS DOUBLE) / nullif(sum(c{count}), 0) AS {name}"
    return f"CAST({item.merge}({name}) AS {type_}) AS {name}"
