"""From a row to its origin: the commit that made it, the batch of the pipeline, and the message on the stream.

What the lake has written down is told, and nothing is guessed: a sequence is there only where the row has it, or where
its batch had a single message.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import InputError, NotFoundError, QuacklakeError
from quacklake.extend.names import TableRef, quote
from quacklake.service.identity import Identity, Role
from quacklake.service.runners import body_facts
from quacklake.service.state import Service

if TYPE_CHECKING:
    from quacklake.lake import Lake
    from quacklake.pipelines.definition import PipelineDefinition
    from quacklake.pipelines.origins import Origin

__all__ = ["origin_of"]

_SEQUENCE = "_sequence"
_VIRTUAL = ("rowid", "snapshot_id")
_COMMIT = ("snapshot_id", "snapshot_time", "author", "commit_message", "operation", "description")
_PATIENCE = timedelta(seconds=3)
"""The time that the server of a stream has for an answer."""
_HEADER_BYTES = 4096


def origin_of(service: Service, identity: Identity, table: str, row: int, snapshot: int) -> dict[str, Any]:
    """Return where a row of a table comes from, as it is at a snapshot.

    Raise ``NotFoundError`` for a row that is not there, and the same for one that is hidden from the principal. One
    who may not see everything hears of the snapshot only. Messages are for administrators, because a pipeline may have
    left out what they say.
    """
    ref = TableRef.parse(table)
    made_in, sequence = _row(service, identity, ref, row, snapshot)
    hidden = identity.lake.handle.restricted
    found = identity.lake.snapshots()
    [commit] = found.filter(pc.equal(found.column("snapshot_id"), made_in)).to_pylist() or [{}]
    facts: dict[str, Any] = {
        "table": f"{ref.schema}.{ref.name}",
        "row": row,
        "made_in": made_in,
        "commit": {name: commit[name] for name in _COMMIT if name in commit} or None,
        "batch": None,
        "sequence": None,
        "message": None,
        "why": None,
    }
    if hidden:
        return {**facts, "why": "only those who may see the whole lake may know more"}
    return {**facts, **_batch(service, identity, ref, commit.get("commit_extra_info"), sequence, bool(commit))}


def _row(service: Service, identity: Identity, ref: TableRef, row: int, snapshot: int) -> tuple[int, int | None]:
    """Return the snapshot that made a row, and its sequence if it has one."""
    schema = identity.lake.at(version=snapshot).handle.view().find_table(ref.schema, ref.name).schema
    own = next((name for name in schema.names if name.lower() in _VIRTUAL), None)
    if own is not None:
        raise InputError(f"the table has a column {own}, which hides the numbers of its rows")
    kept = next((each for each in schema.columns if each.name == _SEQUENCE), None)
    counted = kept is not None and pa.types.is_integer(schema.to_arrow().field(_SEQUENCE).type)
    lent = service.sessions.lend(identity.lake, writes=False)
    try:
        found = lent.session.sql(
            f"SELECT snapshot_id, {quote(_SEQUENCE) if counted else 'NULL'} FROM {quote(ref.schema)}.{quote(ref.name)}"
            f" AT (VERSION => {snapshot:d}) WHERE rowid = $1",
            [row],
        ).fetchall()
    finally:
        lent.give_back()
    if not found:
        raise NotFoundError(f"{ref.schema}.{ref.name} has no row {row}", hint="it may have been deleted")
    [(made_in, sequence)] = found
    return int(made_in), sequence


def _batch(
    service: Service, identity: Identity, ref: TableRef, extra: str | None, sequence: int | None, known: bool
) -> dict[str, Any]:
    """Return the batch that a commit is of, and the message of the row."""
    from quacklake.pipelines.origins import Origin

    origin = Origin.of_extra(extra)
    if origin is None:
        return {"why": "the commit was not made by a pipeline" if known else "the snapshot of the commit has expired"}
    definition = _definition(identity.lake, origin.pipeline)
    batch = {
        "pipeline": origin.pipeline,
        "checkpoint": origin.checkpoint,
        "stream": origin.stream,
        "first": origin.first,
        "last": origin.last,
    }
    exact = _exact(origin, definition, ref, sequence)
    if exact is None:
        said = "the batch has read no stream" if origin.stream is None else "the row does not have its sequence"
        return {"batch": batch, "why": said}
    if identity.role < Role.ADMIN:
        return {"batch": batch, "sequence": exact, "why": "messages are for administrators"}
    message, why = _message(service, definition, origin, exact)
    return {"batch": batch, "sequence": exact, "message": message, "why": why}


def _definition(lake: Lake, name: str) -> PipelineDefinition | None:
    from quacklake.pipelines.definitions import Definitions

    try:
        return Definitions(lake).pipeline(name).definition
    except QuacklakeError:
        return None  # it was dropped, or never kept in the lake


def _exact(origin: Origin, definition: PipelineDefinition | None, ref: TableRef, sequence: int | None) -> int | None:
    """Return the sequence of a row's message; None where it does not follow from what was written down."""
    if origin.stream is None or origin.first is None or origin.last is None:
        return None
    letters = None if definition is None or definition.dead_letters is None else TableRef.parse(definition.dead_letters)
    kept = origin.column == _SEQUENCE or letters == ref
    if kept and sequence is not None and origin.first <= sequence <= origin.last:
        return sequence
    return origin.last if origin.first == origin.last else None


def _message(
    service: Service, definition: PipelineDefinition | None, origin: Origin, sequence: int
) -> tuple[dict[str, Any] | None, str | None]:
    """Return a message of a stream as it is there, or why it cannot be had."""
    from quacklake.connectors.nats.connection import NatsConnection
    from quacklake.connectors.nats.stream import NatsStream
    from quacklake.connectors.options import ConnectorOptions

    if definition is None:
        return None, "the pipeline is not in the lake any more"
    if definition.source.type != "nats" or definition.source.options.get("stream") != origin.stream:
        return None, "the pipeline reads another stream now"
    try:
        stream = replace(NatsStream.of(ConnectorOptions("nats", definition.source.options)), timeout=_PATIENCE)
        limit = service.settings.max_message
        with NatsConnection(
            stream.servers,
            stream.credentials,
            timeout=stream.timeout.total_seconds(),
            attempts=1,
            max_message_bytes=limit,
        ) as connection:
            there = stream.look(connection)
            if there.created != origin.created:
                return None, "the stream was recreated since"
            # subjects that the pipeline does not read are not shown
            range_ = connection.read_range(
                stream.name, sequence, sequence + 1, stream.subjects, batch=1, batch_bytes=limit
            )
            found = next(range_, None)
            range_.close()
    except QuacklakeError as error:
        return None, f"the stream cannot be read: {error.code}"
    if found is None:
        return None, "the message is not in the stream any more"
    data = bytes(found.data[0].as_py())
    headers = bytes(found.headers[0].as_py() or b"")[:_HEADER_BYTES]
    return {
        "subject": bytes(found.subjects[0].as_py()).decode(errors="replace"),
        "time": datetime.fromtimestamp(int(found.times[0]) / 1e9, UTC),
        "headers": headers.decode(errors="replace") or None,
        "body": body_facts(data, len(data)),
    }, None
