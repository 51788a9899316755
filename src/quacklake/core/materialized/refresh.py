"""Create and refresh materialized views: rows and position are committed in one transaction."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.engines.duckdb.stored_texts import LAKE
from quacklake.core.engines.duckdb.trees import Node
from quacklake.core.format.names import fold, quote, uuid7
from quacklake.core.format.objects import MATERIALIZED_VIEW, NOTHING_YET, TableInfo, ViewInfo, view_stream
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.materialized import registry, rewriting
from quacklake.core.materialized.definition import (
    ENGINES,
    Base,
    Definition,
    MaterializedView,
    Position,
    RefreshReport,
    Schedule,
)
from quacklake.core.materialized.determinism import aggregates
from quacklake.core.materialized.flattening import flattened, subquery
from quacklake.core.materialized.naming import settled
from quacklake.core.materialized.query import Analysis, Columns, analyze, base_tables, volatile
from quacklake.core.materialized.survey import BaseChange, StaleError, Survey, survey
from quacklake.core.materialized.ways import Outcome, Prepared, Refresh, spark_text
from quacklake.core.materialized.workspace import Workspace, checked, size_of, workspace
from quacklake.core.operations.change_feed import ChangeScan
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.evolution import partition
from quacklake.core.operations.handles import LakeHandle, TransactionHandle
from quacklake.core.operations.reference import DEFAULT_SCHEMA, TableRef
from quacklake.core.operations.views import check_depth
from quacklake.core.sql import tree
from quacklake.core.sql.safety.checks import check
from quacklake.core.sql.scans import Bound
from quacklake.core.transaction import Transaction
from quacklake.errors import (
    AlreadyExistsError,
    InputError,
    NotFoundError,
    NotPermittedError,
    QuacklakeError,
    SqlError,
    StaleViewError,
    StreamBatchDoneError,
    StreamFencedError,
)

_FAR = 100
"""After how many snapshots without a change of its tables the position of a view is brought forward all the same."""
_ATTEMPTS = 5


@dataclass(frozen=True)
class Request:
    """A materialized view that is to be created."""

    ref: TableRef
    query: str
    schema: str = DEFAULT_SCHEMA
    """The schema in which tables without one are looked up first."""
    alias: str = "lake"
    """The name by which the query may call the lake."""
    schedule: Schedule = field(default_factory=Schedule)
    engine: str = "auto"
    full: bool = False
    partition_by: Sequence[str] = ()
    replace: bool = False
    if_not_exists: bool = False


# -- creating ----------------------------------------------------------------------------------------------------------


def create(handle: LakeHandle, request: Request) -> RefreshReport | None:
    """Create a view and fill it. Return None when it exists and that is allowed.

    Raise ``InputError`` for a query that cannot be followed, unless ``full`` is said.
    """
    if request.replace and request.if_not_exists:
        raise SqlError("Cannot specify both OR REPLACE and IF NOT EXISTS within single create statement")
    if request.engine not in ENGINES:
        raise InputError(f"unknown engine {request.engine!r}", hint=f"use one of: {', '.join(ENGINES)}")
    context, id_, started = handle.context, str(uuid7()), time.monotonic()
    reports: list[RefreshReport] = []
    own = LakeHandle(context, replace(handle.signature))

    def work(tx: Transaction) -> None:
        reports.clear()
        existing = tx.get_table(request.ref.schema, request.ref.name)
        known = None if existing is None else registry.find(context, tx.base, request.ref)
        if existing is not None:
            if request.if_not_exists:
                return
            if known is None or not request.replace:
                what = "table" if known is None else "materialized view"
                hint = "drop the table first" if known is None else "use OR REPLACE or IF NOT EXISTS"
                raise AlreadyExistsError(f'the {what} "{existing.qualified_name}" already exists', hint=hint)
            tx.forget(known.stream)
            tx.upkeep = True
            _check_cycle(context, tx.base, existing, request)
        with workspace(context, tx, TransactionHandle(context, tx)) as space:
            parsed, tables = _resolve_query(space, request)
            analysis = _analyze(space, parsed, tables)
            if analysis.reason is not None and not request.full:
                raise InputError(
                    f"this query cannot be refreshed incrementally: {analysis.reason}",
                    hint="use WITH (full = true) to recompute it at every refresh",
                )
            text = tree.stored(space.connection, tree.render(space.connection, parsed), parsed)
            if existing is not None:
                tx.drop_table(existing)
            space.engine = request.engine
            made, count = _make(space, request, text, Prepared(parsed, analysis))
            bases = tuple(Base(table.schema_name, table.name, table.uuid) for table in tables)
            definition = Definition(id_, text, bases, request.schedule, request.engine, request.full)
            tx.upkeep = True
            tx.objects.set_tags(made, {MATERIALIZED_VIEW: definition.to_json()})
            outcome = Outcome("full", "it was created", inserted=count)
            report = _report(made.qualified_name, tx, outcome, space, started)
            _mark(own, tx, definition, NOTHING_YET, report)
            reports.append(report)
        faults.reach("materialized.create.before")

    own.run(work)
    return reports[0] if reports else None


def _make(space: Workspace, request: Request, text: str, query: Prepared) -> tuple[TableInfo, int]:
    """Create the table of a view with the rows of its query."""
    space.session.statement(
        f"CREATE TABLE lake.{quote(request.ref.schema)}.{quote(request.ref.name)} AS {text} WITH NO DATA"
    )
    table = space.tx.find_table(request.ref.schema, request.ref.name)
    if request.partition_by:
        table = partition(space.tx, table, request.partition_by)
    bound = space.bind(text)
    size = size_of(*(scan.plan for scan in bound.scans))
    rows = space.on_spark(table, lambda: spark_text(space, query.query, query.analysis), size)
    return table, space.append(table, bound if rows is None else Bound(rows, None, []))


def _resolve_query(space: Workspace, request: Request) -> tuple[Node, list[TableInfo]]:
    """Return the query with full names of its tables, and these. Raise for what is no table of the lake."""
    parsed = _check_query(space, request.query)
    if any(node.get("class") == "PARAMETER" for node in tree.nodes(parsed)):
        raise InputError("the query of a materialized view cannot have parameters")
    found: dict[int, TableInfo] = {}
    _resolve(space, parsed, request, found, 0)
    for table in found.values():
        if (fold(table.schema_name), fold(table.name)) == (fold(request.ref.schema), fold(request.ref.name)):
            raise InputError(f'the materialized view "{table.qualified_name}" cannot read itself')
    if not found:
        raise InputError("the query of a materialized view must read a table of the lake")
    columns = {(fold(t.schema_name), fold(t.name)): t.schema.names for t in found.values()}
    rewriting.expand_stars(parsed, columns)
    return space.with_one_answer(_qualify_query(space, _flat(space, parsed, columns), columns)), list(found.values())


def _check_query(space: Workspace, query: str) -> Node:
    parsed = tree.parse(space.connection, query)
    try:
        check(parsed, lambda *_: False)
    except NotPermittedError as error:
        raise InputError(
            f"this query is not allowed in a materialized view: {error.message}", hint=error.hint
        ) from error
    return parsed


def _resolve(space: Workspace, parsed: Node, request: Request, found: dict[int, TableInfo], depth: int) -> None:
    """Give tables their full names, and put the queries of views in the place of their names."""
    for node in list(base_tables(parsed)):
        table = _table(space.tx, node, request)
        alias = node.get("alias") or node["table_name"]
        if isinstance(table, TableInfo):
            node.update(alias=alias, catalog_name="", schema_name=table.schema_name, table_name=table.name)
            found[table.id] = table
            continue
        check_depth(table, depth)
        if table.dialect != "duckdb" or node.get("at_clause") or node.get("column_name_alias"):
            raise InputError(
                f'a materialized view cannot read the view "{table.qualified_name}"',
                hint="use the query of that view instead",
            )
        inner = _check_query(space, table.sql.replace(LAKE, ""))
        _resolve(space, inner, replace(request, schema=table.schema_name, alias="lake"), found, depth + 1)
        tree.replace(node, subquery(inner["node"], alias, table.aliases, node))


def _flat(space: Workspace, parsed: Node, columns: Columns) -> Node:
    """Return a query without common tables and subqueries, if it can be written so."""
    if not any(node.get("type") == "SUBQUERY" or (node.get("cte_map") or {}).get("map") for node in tree.nodes(parsed)):
        return parsed
    connection = space.connection
    given = space.types(tree.render(connection, parsed))
    made = flattened(connection, parsed, columns, aggregates(), [name for name, _ in given])
    if made is None:
        return parsed
    try:
        return made if space.types(tree.render(connection, made)) == given else parsed
    except QuacklakeError:
        return parsed


def _qualify_query(space: Workspace, parsed: Node, columns: Columns) -> Node:
    """Return a query whose names mean the same when its tables get columns, if it can be written so."""
    given = space.types(tree.render(space.connection, parsed))
    made = settled(parsed, columns, [name for name, _ in given])
    try:
        return made if space.types(tree.render(space.connection, made)) == given else parsed
    except QuacklakeError:
        return parsed


def _table(tx: Transaction, node: Node, request: Request) -> TableInfo | ViewInfo:
    catalog, schema, name = node.get("catalog_name"), node.get("schema_name"), node["table_name"]
    if catalog and fold(catalog) != fold(request.alias):
        raise InputError(f'"{catalog}" is another lake: a materialized view can only read tables of its own lake')
    places = [schema] if schema else [request.schema, DEFAULT_SCHEMA]
    if schema and not catalog and fold(schema) == fold(request.alias):
        places += [request.schema, DEFAULT_SCHEMA]  # lake.table
    for place in places:
        found = tx.get_table(place, name) or tx.objects.get_view(place, name)
        if found is not None:
            return found
    return tx.find_table(places[0], name)  # raises


def _check_cycle(context: LakeContext, snapshot: Snapshot, existing: TableInfo, request: Request) -> None:
    """Raise ``InputError`` when a view that is replaced would read a view that reads it."""
    known = {view.table.uuid: view for view in registry.views(context, snapshot)}
    above, pending = set(), [existing.uuid]
    while pending:
        uuid = pending.pop()
        for view in known.values():
            if any(base.uuid == uuid for base in view.definition.bases) and view.table.uuid not in above:
                above.add(view.table.uuid)
                pending.append(view.table.uuid)
    if above:
        names = ", ".join(sorted(known[uuid].name for uuid in above))
        raise InputError(
            f'"{existing.qualified_name}" cannot be replaced: it is read by {names}', hint="drop those views first"
        )


def _analyze(space: Workspace, parsed: Node, tables: Sequence[TableInfo]) -> Analysis:
    columns = {(fold(t.schema_name), fold(t.name)): t.schema.names for t in tables}
    found = analyze(parsed, columns, aggregates())
    return found if found.reason is None else replace(found, reason=volatile(parsed) or found.reason)


# -- refreshing --------------------------------------------------------------------------------------------------------


def refresh(
    handle: LakeHandle, ref: TableRef, *, full: bool = False, known: tuple[Snapshot, MaterializedView] | None = None
) -> RefreshReport:
    """Bring a view to the newest snapshot. Of many that try, one does it, and the others find it done.

    ``known`` is the newest snapshot, and the view at it. Raise ``NotFoundError``, or ``StaleViewError`` when the query
    can no longer run; the view keeps its rows.
    """
    context, started = handle.context, time.monotonic()
    for _ in range(_ATTEMPTS):
        if known is None:
            snapshot = context.latest()
            known = snapshot, registry.get(context, snapshot, ref)
        (snapshot, view), known = known, None
        found = _changes(context, view, snapshot)
        if not full and found is not None and not found.changed and snapshot.id - (found.since or 0) <= _FAR:
            return RefreshReport(view.name, "none", snapshot.id, seconds=time.monotonic() - started)
        try:
            with telemetry.timed("materialized.refresh", view.name):
                return _run(handle, view, found, full=full, started=started)
        except StreamBatchDoneError:
            full = False  # somebody else has refreshed it
        except StreamFencedError:
            continue  # it was dropped or replaced, or its position is forgotten
    raise StaleViewError(
        f'the materialized view "{ref.schema}.{ref.name}" is being refreshed by others', hint="try again"
    )


def _changes(context: LakeContext, view: MaterializedView, snapshot: Snapshot) -> Survey | None:
    """Return what has happened since the position of a view; None when that must be found out again, and told."""
    if view.position is None or view.position.stale is not None:
        return None
    try:
        return survey(context, view, snapshot)
    except StaleError:
        return None


def _run(
    handle: LakeHandle, view: MaterializedView, found: Survey | None, *, full: bool, started: float
) -> RefreshReport:
    context = handle.context
    own = LakeHandle(context, replace(handle.signature))
    ref = TableRef(view.table.schema_name, view.table.name)
    reports: list[RefreshReport] = []

    def work(tx: Transaction) -> None:
        reports.clear()
        tx.upkeep = True
        same = found is not None and found.snapshot.id == tx.base.id
        now = view if same else registry.get(context, tx.base, ref)
        if now.position is not None and now.position.committed > tx.base.id:
            raise StreamBatchDoneError(f'the materialized view "{view.name}" has been refreshed by another process')
        if now.definition.id != view.definition.id:
            raise NotFoundError(f'the materialized view "{view.name}" has been replaced')
        with workspace(context, tx) as space:
            space.engine = now.definition.engine
            changes = found if same and found is not None else survey(context, now, tx.base)
            outcome = _outcome(space, now, changes, full=full)
            report = _report(now.name, tx, outcome, space, started)
            _mark(own, tx, now.definition, NOTHING_YET if now.position is None else now.position.epoch, report)
        reports.append(report)
        faults.reach("materialized.refresh.before")

    try:
        own.run(work, base=None if found is None else found.snapshot)
    except StaleError as error:
        registry.mark_stale(context, view, str(error))
        raise StaleViewError(
            f'the materialized view "{view.name}" is stale: {error}',
            hint="it keeps its rows; use CREATE OR REPLACE MATERIALIZED VIEW to give it another query",
        ) from error
    faults.reach("materialized.refresh.after")
    return reports[0]


def _outcome(space: Workspace, view: MaterializedView, found: Survey, *, full: bool, dry: bool = False) -> Outcome:
    """Change the rows of a view in a workspace. Raise ``StaleError``."""
    if full:
        found = replace(found, since=None, reason="a full refresh was requested")
    if not found.changed:
        return Outcome("none")
    return Refresh(space, view, _prepare(space, view, found), found, dry).run()


_known: OrderedDict[Hashable, Prepared] = OrderedDict()
_MAX_KNOWN = 256


def _prepare(space: Workspace, view: MaterializedView, found: Survey) -> Prepared:
    """Return the query of a view, parsed and checked against the tables as they are now. Raise ``StaleError``."""
    tables = [base.table for base in found.bases]
    named = tuple((base.known_as, base.table.schema_name, base.table.name, base.table.schema) for base in found.bases)
    key = (view.definition.query, named, view.table.schema)
    known = _known.pop(key, None)  # a refresh in another thread may take it meanwhile: then it is made again
    if known is None:
        try:
            parsed = space.parse(view, found.bases)
            checked(space, view, tree.render(space.connection, parsed))
        except (SqlError, NotFoundError, NotPermittedError, InputError) as error:
            raise StaleError(error.message.partition("\n")[0]) from error
        known = Prepared(parsed, _analyze(space, parsed, tables))
    _known[key] = known
    while len(_known) > _MAX_KNOWN:
        _known.popitem(last=False)
    return known


def explain(handle: LakeHandle, ref: TableRef) -> RefreshReport:
    """Return what a refresh would do, without doing it: which way, how many keys and files."""
    context, started = handle.context, time.monotonic()
    tx = handle.begin()
    try:
        view = registry.get(context, tx.base, ref)
        with workspace(context, tx) as space:
            space.engine = view.definition.engine
            try:
                outcome = _outcome(space, view, survey(context, view, tx.base), full=False, dry=True)
            except StaleError as error:
                outcome = Outcome("stale", str(error))
            report = _report(view.name, tx, outcome, space, started)
            total = sum(
                tx.plan(table).files.num_rows
                for base in view.definition.bases
                if (table := tx.get_table(base.schema, base.name)) is not None
            )
            return replace(report, files_total=total)
    finally:
        tx.rollback()


def _report(name: str, tx: Transaction, outcome: Outcome, space: Workspace, started: float) -> RefreshReport:
    return RefreshReport(
        name,
        outcome.way,
        tx.base.id,
        outcome.reason,
        keys=outcome.keys,
        deleted=outcome.deleted,
        inserted=outcome.inserted,
        changes=outcome.changes,
        files=space.files,
        bytes=space.bytes_read,
        seconds=time.monotonic() - started,
        engine=space.used,
    )


def _mark(own: LakeHandle, tx: Transaction, definition: Definition, epoch: int, report: RefreshReport) -> None:
    """Let a transaction move the position of a view, and say in its snapshot where the view stands."""
    at = Position(
        tx.base.id,
        epoch + 1,
        0,
        report.way,
        dt.datetime.now(dt.UTC),
        reason=report.reason,
        rows=report.inserted + report.deleted,
        seconds=round(report.seconds, 6),
    )
    starts = registry.QUERY if epoch == NOTHING_YET else None
    tx.mark(view_stream(definition.id), epoch + 1, definition.id, at.to_json(), gaps=True, starts=starts)
    stands = {"materialized_view": report.view, "id": definition.id, "snapshot": tx.base.id, "way": report.way}
    own.signature = replace(
        own.signature, message=own.signature.message or f"refresh {report.view}", extra=json.dumps(stands)
    )


# -- looking -----------------------------------------------------------------------------------------------------------


def analysis_of(handle: LakeHandle, view: MaterializedView) -> Analysis:
    """Return what the query of a view allows. Raise ``StaleError`` when a table is gone."""
    tx = handle.begin(read_only=True)
    found = survey(handle.context, view, tx.base)
    with workspace(handle.context, tx) as space:
        parsed = space.parse(view, found.bases)
        return _analyze(space, parsed, [base.table for base in found.bases])


def count_changes(handle: LakeHandle, base: BaseChange, since: int) -> int:
    """Return how many rows of a table changed since a snapshot."""
    ref = TableRef(base.table.schema_name, base.table.name)
    return ChangeScan(handle, ref, since, None).count()
