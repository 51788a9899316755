"""Sources, sinks and pipelines in SQL: CREATE, DROP, SHOW, DESCRIBE, START and STOP, and SELECT from a source."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from quacklake import Result, Session
from quacklake.errors import InputError, NotFoundError, SqlError
from quacklake.lake import Lake
from quacklake.pipelines.definition import LAKE, SOURCE_NAME, PipelineDefinition
from quacklake.pipelines.definitions import PIPELINE, SINK, SOURCE, STOPPED, Definitions
from quacklake.pipelines.local import needs_state
from quacklake.pipelines.pipeline import Pipeline
from quacklake.pipelines.sinks import open_source
from quacklake.pipelines.windows import parse_query

if TYPE_CHECKING:
    from quacklake.extend.sql import Cursor

LOOK_ROWS = 10_000
"""The most rows that a query gets of a source without an end."""
_PIPELINE_OPTIONS = (
    "engine",
    "every",
    "batch_rows",
    "batch_bytes",
    "dead_letters",
    "output_mode",
    "keep_checkpoints",
    "lease",
)
_running: dict[tuple[str, str], Pipeline] = {}
_lock = threading.Lock()


def run_statement(session: Session, cursor: Cursor) -> Result:
    """Run one statement about sources, sinks or pipelines."""
    definitions = Definitions(_lake(session))
    verb = cursor.take().upper
    if verb == "CREATE":
        return _create(definitions, cursor)
    if verb == "SHOW":
        kind = cursor.take().upper.removesuffix("S").lower()
        cursor.end()
        return _show_definitions(definitions, kind)
    kind = cursor.take().upper.lower()
    forgiving = verb == "DROP" and cursor.accept("IF", "EXISTS")
    name = cursor.name()
    cursor.end()
    if verb == "DROP":
        if not forgiving or definitions.find(kind, name) is not None:
            _stop(definitions, name) if kind == PIPELINE else None
            definitions.drop(kind, name)
        return Result()
    if verb == "START":
        return _start(definitions, name)
    if verb == "STOP":
        _stop(definitions, name)
        return Result()
    return _describe_definition(definitions, kind, name)


def source_rows(session: Session, name: str) -> pa.Table:
    """Return rows of a source: all of one that ends, and no more than a look at one that does not."""
    lake = _lake(session)
    given = dict(Definitions(lake).options(SOURCE, name))
    if str(given.get("mode", "continuous")).lower() == "continuous" and not given.get("change_data_feed"):
        given["mode"] = "batch"
    parsed = PipelineDefinition.parse({"pipeline": name, "source": given, "sinks": [{"type": LAKE, "table": name}]})
    source = open_source(lake, parsed.source)
    try:
        source.start()
        batches: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in batches) < LOOK_ROWS and (batch := source.poll_next()) is not None:
            batches.append(batch)
        return pa.Table.from_batches(batches, source.schema()).slice(0, LOOK_ROWS)
    finally:
        source.close()


def _lake(session: Session) -> Lake:
    attached = session.names.default
    if attached is None or attached.whole is None:
        raise SqlError("sources, sinks and pipelines belong to a lake", hint="USE lake")
    if session.work.explicit:
        raise SqlError("sources, sinks and pipelines are not part of a transaction", hint="COMMIT first")
    return Lake(attached.whole)


# -- CREATE ------------------------------------------------------------------------------------------------------------


def _create(definitions: Definitions, cursor: Cursor) -> Result:
    replacing = cursor.accept("OR", "REPLACE")
    kind = cursor.take().upper.lower()
    forgiving = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name()
    if forgiving and definitions.find(kind, name) is not None:
        return Result()
    if kind == SOURCE:
        body = _columns(cursor) if cursor.sees("(") else {}
        cursor.expect("WITH")
        body = {**_options(cursor), **body}
        cursor.end()
        _check_source(definitions.lake, name, body)
        definitions.put(SOURCE, name, body, replace=replacing)
    else:
        _create_sink(definitions, cursor, kind, name, replacing)
    return Result()


def _create_sink(definitions: Definitions, cursor: Cursor, kind: str, name: str, replacing: bool) -> None:
    origin = cursor.name() if cursor.accept("FROM") else None
    cursor.expect("WITH")
    options = _options(cursor)
    query = cursor.rest().strip() if cursor.accept("AS") else None
    if query is None and origin is None:
        if kind == PIPELINE:
            raise SqlError("a pipeline needs a query", hint="CREATE PIPELINE name WITH (…) AS SELECT … FROM source")
        cursor.end()
        _check_sink(definitions.lake, name, options)
        definitions.put(SINK, name, options, replace=replacing)
        return
    own = {key: options.pop(key) for key in _PIPELINE_OPTIONS if key in options}
    source, text = _from(definitions, query or f"SELECT * FROM {_quote_name(str(origin))}")
    made = {
        "pipeline": name,
        **own,
        "source": source,
        "query": text,
        "sinks": [{"name": name, **options}],
    }
    if definitions.find(PIPELINE, name) is not None and not replacing:
        definitions.put(PIPELINE, name, {}, replace=False)  # raises
    definitions.apply(made, replace=replacing)


def _from(definitions: Definitions, query: str) -> tuple[Mapping[str, Any], str]:
    """Return the source of a query and the query over it: a source that the lake keeps, else its first table."""
    tree = parse_query(query, "duckdb")
    common = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [table for table in tree.find_all(exp.Table) if table.name and table.name.lower() not in common]
    known = {each.name.lower(): each for each in definitions.list(SOURCE)}
    streams = {table.name.lower() for table in tables if not table.db and table.name.lower() in known}
    if len(streams) > 1:
        raise SqlError(f"a pipeline reads one source, not {' and '.join(sorted(streams))}")
    if streams:
        name = streams.pop()
        source: Mapping[str, Any] = json.loads(known[name].body)
        chosen = [table for table in tables if not table.db and table.name.lower() == name]
    elif tables:
        first = tables[0]
        name = first.sql(dialect="duckdb") if not first.alias else exp.table_(first.name, first.db).sql("duckdb")
        source = {"type": LAKE, "table": name.replace('"', "")}
        chosen = [table for table in tables if (table.name, table.db) == (first.name, first.db)]
    else:
        raise SqlError("the query reads no source", hint="SELECT … FROM a source or a table")
    for table in chosen:
        table.replace(exp.to_table(SOURCE_NAME, alias=table.alias or table.name))
    local = not needs_state(query)
    return source, tree.sql(dialect="duckdb" if local else "spark")


def _columns(cursor: Cursor) -> dict[str, Any]:
    """Parse the columns of a source, and WATERMARK FOR column AS column - INTERVAL … among them."""
    columns: list[str] = []
    found: dict[str, Any] = {}
    for item in cursor.items():
        words = item.split()
        if words and words[0].upper() == "WATERMARK":
            found["watermark"] = _watermark(item)
        else:
            columns.append(item.strip())
    return {**found, **({"schema": ", ".join(columns)} if columns else {})}


def _watermark(text: str) -> dict[str, str]:
    from quacklake.extend.sql import Cursor

    cursor = Cursor(text)
    cursor.expect("WATERMARK", "FOR")
    column = cursor.name()
    cursor.expect("AS")
    tree = sqlglot.parse_one(cursor.rest(), dialect="duckdb")
    if isinstance(tree, exp.Column) and tree.name == column:
        return {"column": column, "delay": "0 seconds"}
    span = tree.expression if isinstance(tree, exp.Sub) else None
    if span is None or not isinstance(span, exp.Interval) or tree.this.name != column or span.unit is None:
        raise SqlError(f"WATERMARK: {tree.sql()!r} is not a delay", hint=f"{column} - INTERVAL '5' SECOND")
    return {"column": column, "delay": f"{span.this.name} {span.unit.name.lower()}"}


def _options(cursor: Cursor) -> dict[str, Any]:
    """Parse ``(key = value, …)``. Keys are names or texts; values are texts, numbers, true and false."""
    from quacklake.extend.sql import Cursor

    found: dict[str, Any] = {}
    for item in cursor.items():
        part = Cursor(item)
        first = part.peek()
        key = part.string() if first is not None and first.kind == "string" else ".".join(part.names())
        part.expect("=")
        value = part.rest().strip()
        if not value:
            raise part.unexpected()
        key = key.lower()
        if key in found:
            raise SqlError(f"the option {key!r} is given twice")
        found[key] = _value(value)
    return found


def _value(text: str) -> Any:
    tree = sqlglot.parse_one(text, dialect="duckdb")
    if isinstance(tree, exp.Literal):
        return tree.name if tree.is_string else (int(tree.name) if tree.name.isdigit() else float(tree.name))
    if isinstance(tree, exp.Boolean):
        return bool(tree.this)
    if isinstance(tree, exp.Column):
        return tree.name
    raise SqlError(f"{text!r} is not a value for an option", hint="a text in quotes, a number, true or false")


def _check_source(lake: Lake, name: str, body: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` for options that make no source."""
    parsed = PipelineDefinition.parse({"pipeline": name, "source": body, "sinks": [{"type": LAKE, "table": name}]})
    if parsed.source.type != "spark":
        open_source(lake, parsed.source).close()


def _check_sink(lake: Lake, name: str, options: Mapping[str, Any]) -> None:
    from quacklake.pipelines.sinks import Sinks

    given = {"pipeline": name, "source": {"type": LAKE, "table": name}, "sinks": [{"name": name, **options}]}
    Sinks.open(lake, PipelineDefinition.parse(given), "check").close()


def _quote_name(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect="duckdb")


# -- SHOW, DESCRIBE, START and STOP ------------------------------------------------------------------------------------


def _show_definitions(definitions: Definitions, kind: str) -> Result:
    found = definitions.list(kind)
    bodies = [json.loads(each.body) for each in found]
    columns: dict[str, Any] = {"name": pa.array([each.name for each in found], pa.string())}
    if kind == PIPELINE:
        columns["source"] = pa.array([body["source"]["type"] for body in bodies], pa.string())
        columns["sinks"] = pa.array([", ".join(sink["type"] for sink in body["sinks"]) for body in bodies], pa.string())
        columns["state"] = pa.array([each.state for each in found], pa.string())
    else:
        columns["type"] = pa.array([str(body.get("type") or body.get("connector")) for body in bodies], pa.string())
    columns["created"] = pa.array([each.created for each in found], pa.timestamp("us", "UTC"))
    return Result(pa.table(columns))


def _describe_definition(definitions: Definitions, kind: str, name: str) -> Result:
    found = definitions.get(kind, name)
    body = json.loads(found.body)
    rows = {key: value if isinstance(value, str) else json.dumps(value) for key, value in body.items()}
    if kind == PIPELINE:
        rows["state"] = found.state
        last = definitions.pipeline(name).status()[-1:]
        for checkpoint in last:
            rows["checkpoint"] = str(checkpoint["checkpoint_id"])
            rows["position"] = str(checkpoint["position"])
    columns = {"option": pa.array(list(rows), pa.string()), "value": pa.array(list(rows.values()), pa.string())}
    return Result(pa.table(columns))


def _start(definitions: Definitions, name: str) -> Result:
    pipeline = definitions.pipeline(name)
    key = (definitions.lake.url + (definitions.lake.catalog or ""), pipeline.name)
    with _lock:
        before = _running.get(key)
        if before is not None and before.is_active:
            raise InputError(f'the pipeline "{pipeline.name}" runs already')
        _running[key] = pipeline.start()
    return Result()


def _stop(definitions: Definitions, name: str) -> None:
    if definitions.find(PIPELINE, name) is None:
        raise NotFoundError(f'there is no pipeline "{name}"', hint="SHOW PIPELINES lists them")
    definitions.set_state(name, STOPPED)
    key = (definitions.lake.url + (definitions.lake.catalog or ""), definitions.get(PIPELINE, name).name)
    with _lock:
        pipeline = _running.pop(key, None)
    if pipeline is not None:
        pipeline.stop()
