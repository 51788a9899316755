"""The objects that move between the layers: schemas, tables and files, as the catalog knows them."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, ClassVar

from quacklake.core.format.layout import PartitionSpec, SortSpec
from quacklake.core.format.schema import TableSchema
from quacklake.errors import InputError, InvalidNameError, StreamBatchDoneError, StreamFencedError, StreamMismatchError

EXPRESSION = "expression"
"""The type of a macro's default that is an expression, which 1.1 has."""

FIELD_ROW_ID = 2147483540
FIELD_SNAPSHOT_ID = 2147483539
FIELD_FILE_PATH = 2147483646
FIELD_POS = 2147483645

NAME_ROW_ID = "_ducklake_internal_row_id"
NAME_SNAPSHOT_ID = "_ducklake_internal_snapshot_id"
NAME_FILE_PATH = "file_path"
NAME_POS = "pos"

RESERVED_FIELDS = {
    FIELD_ROW_ID: NAME_ROW_ID,
    FIELD_SNAPSHOT_ID: NAME_SNAPSHOT_ID,
    FIELD_FILE_PATH: NAME_FILE_PATH,
    FIELD_POS: NAME_POS,
}
"""The Parquet field ids that are never a column's, and the names that go with them."""


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema at one snapshot; ``path`` is below the data root unless ``path_is_relative`` is false.

    One inside another, which 1.1 has, names that in ``parent_id`` and has a full name; see ``format.names``.
    """

    id: int
    uuid: str
    name: str
    path: str
    path_is_relative: bool
    parent_id: int | None = None


class _InSchema:
    """An object with a name in a schema."""

    __slots__ = ()
    schema_name: str
    name: str

    @property
    def qualified_name(self) -> str:
        return f"{self.schema_name}.{self.name}"


@dataclass(frozen=True, slots=True)
class ViewInfo(_InSchema):
    """A view at one snapshot; ``aliases`` name its columns, the first ones at least, where the query does not."""

    id: int
    uuid: str
    schema_id: int
    schema_name: str
    name: str
    sql: str
    aliases: tuple[str, ...] = ()
    dialect: str = "duckdb"


@dataclass(frozen=True, slots=True)
class MacroParameter:
    """A parameter of a macro: a type of ours or ``unknown``, and the text of its default, if it has one."""

    name: str
    type: str = "unknown"
    default: str | None = None
    default_type: str = "unknown"


@dataclass(frozen=True, slots=True)
class MacroVariant:
    """One form of a macro: its parameters and the expression, or the query of a table macro."""

    parameters: tuple[MacroParameter, ...]
    sql: str
    dialect: str = "duckdb"


@dataclass(frozen=True, slots=True)
class MacroInfo(_InSchema):
    """A macro at one snapshot; ``is_table`` when it yields rows instead of a value."""

    id: int
    schema_id: int
    schema_name: str
    name: str
    is_table: bool
    variants: tuple[MacroVariant, ...]


@dataclass(frozen=True, slots=True)
class TableInfo(_InSchema):
    """A table at one snapshot; ``path`` is below its schema's unless ``path_is_relative`` is false.

    ``partition`` and ``sort`` say how new files are laid out; a partitioning that was reset is one without keys.
    ``columns_since`` is the snapshot of the last change of a column that is still there; None when it is not known.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     info = lake.table("events").info
    ...     info.qualified_name, info.location, info.schema.names
    ('main.events', 'main/events/', ('id', 'name'))
    """

    id: int
    uuid: str
    schema_id: int
    schema_name: str
    name: str
    path: str
    path_is_relative: bool
    schema: TableSchema
    schema_version: int
    schema_path: str = ""
    schema_path_is_relative: bool = True
    partition: PartitionSpec | None = None
    sort: SortSpec | None = None
    columns_since: int | None = field(default=None, compare=False)

    @property
    def location(self) -> str:
        """The folder of the table's files: below the data root, or absolute."""
        return self.schema_path + self.path if self.path_is_relative else self.path


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file; ``path`` is below its table's unless ``path_is_relative`` is false.

    ``row_id_start`` is ``None`` when rows carry their ids, ``partial_max`` the newest of several snapshots of rows.
    """

    id: int
    table_id: int
    begin_snapshot: int
    end_snapshot: int | None
    path: str
    path_is_relative: bool
    record_count: int
    file_size_bytes: int
    footer_size: int | None = None
    row_id_start: int | None = None
    partition_id: int | None = None
    encryption_key: str | None = field(default=None, repr=False)
    mapping_id: int | None = None
    partial_max: int | None = None
    row_groups: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """The deleted positions of one data file; ``format`` is ``parquet`` or ``puffin``."""

    id: int
    table_id: int
    data_file_id: int
    begin_snapshot: int
    end_snapshot: int | None
    path: str
    path_is_relative: bool
    format: str
    delete_count: int
    file_size_bytes: int
    footer_size: int | None = None
    encryption_key: str | None = field(default=None, repr=False)
    partial_max: int | None = None
    row_groups: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a catalog; None for any number.

    ``concurrent_scans`` are those of one process, ``bytes`` those of the data files of the newest snapshot.
    """

    commits_per_second: float | None = None
    concurrent_scans: int | None = None
    bytes: int | None = None
    tables: int | None = None
    snapshots: int | None = None

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(own: str | None, default: str | None) -> Limits:
        """Return the limits of the texts in the database: those of a catalog go before those of all.

        >>> Limits.of('{"tables": 3, "bytes": null}', '{"tables": 9, "bytes": 9, "snapshots": 9}')
        Limits(commits_per_second=None, concurrent_scans=None, bytes=None, tables=3, snapshots=9)
        """
        if own is None and default is None:
            return NO_LIMITS
        said = {**_parse_limits(default), **_parse_limits(own)}
        return Limits(**{name: said[name] for name in _NAMES if name in said})

    def asdict(self) -> dict[str, float | None]:
        """Return the limits by name."""
        return asdict(self)

    @property
    def pace(self) -> tuple[int, float] | None:
        """So many commits in so many seconds; None for any number.

        >>> Limits(commits_per_second=2.5).pace, Limits(commits_per_second=0.1).pace
        ((2, 0.8), (1, 10.0))
        """
        if self.commits_per_second is None:
            return None
        count = max(1, math.floor(self.commits_per_second))
        return count, count / self.commits_per_second


NO_LIMITS = Limits()
_NAMES = tuple(field.name for field in fields(Limits))


def changed_limits(text: str | None, given: Mapping[str, Any]) -> str | None:
    """Return the text with these limits changed, or None when none are left. Raise ``InputError``."""
    said = {**_parse_limits(text), **{name: _check_limit(name, value) for name, value in given.items()}}
    return json.dumps(said, sort_keys=True) if said else None


def _parse_limits(text: str | None) -> dict[str, Any]:
    return dict(json.loads(text)) if text else {}


def _check_limit(name: str, value: Any) -> Any:
    """Return a limit that can be kept. Those of things that are kept may be 0, which forbids them."""
    if name not in _NAMES:
        raise InputError(f"there is no limit {name!r}", hint=f"the limits are: {', '.join(_NAMES)}")
    if value is None:
        return None
    rate = name == "commits_per_second"
    number = isinstance(value, int | float if rate else int) and not isinstance(value, bool) and math.isfinite(value)
    least = 1 if name in ("concurrent_scans", "snapshots") else 0
    if not number or value < least or (rate and value <= 0) or value >= 2**63:
        what = "a number above 0" if rate else f"a whole number, at least {least}"
        raise InputError(f"the limit {name} must be {what}, not {value!r}", hint="None stands for no limit")
    return value


MAX_STREAM = 128
"""The longest name of a stream, in characters."""

NOTHING_YET = -1
"""The epoch of a stream without any batch."""


@dataclass(frozen=True, slots=True)
class StreamMark:
    """The last batch of a stream that is in the lake.

    ``query`` is what keeps its own count of batches, like a Spark checkpoint; ``run`` is one life of it. ``epoch`` is
    the number of the batch, ``position`` where the stream has come to, ``snapshot_id`` the newest snapshot then.

    >>> StreamMark("loads", query="nightly", run="a1", epoch=7).epoch
    7
    """

    name: str
    query: str
    run: str
    epoch: int = NOTHING_YET
    position: str | None = None
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class BatchContent:
    """The content of a batch, as digests: its own, and that of the batch before it.

    The query that counts the batches gives a batch that is run again the same digest. ``accepted`` says that a person
    wants this very batch to be the next, whatever the lake has of the stream.
    """

    digest: str
    before: str | None = None
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A confirmed batch of a stream, its positions and prepared commits as text; finished when every sink shows it.

    >>> Checkpoint("orders", 0, Checkpoint.CONFIRMED, "{}", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)).state
    'confirmed'
    """

    stream: str
    checkpoint_id: int
    state: str
    manifest: str
    created: dt.datetime

    CONFIRMED: ClassVar[str] = "confirmed"
    FINISHED: ClassVar[str] = "finished"


@dataclass(frozen=True, slots=True)
class Definition:
    """A source, sink or pipeline that the lake keeps; ``state`` is what its owner wants of it.

    >>> Definition("source", "orders", "{}", "created", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)).kind
    'source'
    """

    kind: str
    name: str
    body: str
    state: str
    created: dt.datetime


MATERIALIZED_VIEW = "quacklake_materialized_view"
"""The tag of a table that holds the rows of a materialized view: its definition."""
_VIEW_STREAM = "materialized view "
REQUEST_STREAM = "request "
_CONSUMER_STREAM = "consumer "
_LETTERS_STREAM = "dead letters "
_JOB_STREAM = "service job "
MARK_KINDS = {"request": REQUEST_STREAM, "consumer": _CONSUMER_STREAM, "job": _JOB_STREAM}
"""The kinds of marks that products keep, and what their names begin with."""


def view_stream(id_: str) -> str:
    """Return the name of the stream that has the position of a materialized view."""
    return _VIEW_STREAM + id_


def stream_of_view(definition: str) -> str | None:
    """Return the name of the stream that has the position of a view, given its definition; None if it is not one."""
    try:
        return view_stream(str(json.loads(definition)["id"]))
    except (ValueError, KeyError, TypeError):
        return None


def is_view_stream(name: str) -> bool:
    """Return whether a stream is the position of a materialized view."""
    return name.startswith(_VIEW_STREAM)


def letters_stream(pipeline: str) -> str:
    """Return the name of the mark of the dead letters of a pipeline that were published again."""
    return _LETTERS_STREAM + pipeline


def is_own_stream(name: str) -> bool:
    """Return whether a mark is Quacklake's own: of a view, a done request, a consumer, dead letters or a job."""
    return name.startswith((_VIEW_STREAM, REQUEST_STREAM, _CONSUMER_STREAM, _LETTERS_STREAM, _JOB_STREAM))


def check_stream(name: object) -> str:
    """Return the name if a stream may be called so; raise ``InvalidNameError`` if not.

    >>> check_stream("orders of today")
    'orders of today'
    """
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_STREAM or not name.isprintable():
        raise InvalidNameError(
            f"a stream cannot be called {name!r:.150}", hint=f"a text of at most {MAX_STREAM} printable characters"
        )
    return name


def claimed(known: StreamMark | None, name: str, query: str, run: str, *, restart: bool) -> StreamMark:
    """Return the mark after a new run has made a stream its own; a ``StreamMismatchError`` for another query's."""
    if known is not None and known.query == query:
        return replace(known, run=run)
    if known is not None and known.epoch != NOTHING_YET and not restart:
        raise StreamMismatchError(
            f'the stream "{name}" is that of another query, which is at batch {known.epoch}:'
            " rows could be missing, or be written twice",
            hint="use the checkpoint it had, or another name; restart=True lets this query take the name over",
        )
    return StreamMark(name, query, run)


def marked(
    known: StreamMark | None,
    name: str,
    run: str,
    epoch: int,
    position: str | None,
    *,
    gaps: bool = False,
    content: BatchContent | None = None,
) -> StreamMark:
    """Return the mark after a batch; with ``gaps`` batches may have been left out.

    With a ``content``, only the last batch with the same content counts as one that is in the lake; its digest is the
    position. Raise ``StreamBatchDoneError`` for a batch that is in the lake, ``StreamFencedError`` unless the run was
    the last claim, and ``StreamMismatchError`` for a batch that is not the one after the last.
    """
    if known is None:
        raise StreamFencedError(f'the stream "{name}" was forgotten while it ran', hint="start it again")
    if known.run != run:
        raise StreamFencedError(
            f'another query has taken over the stream "{name}"', hint="run one query at a time under a name"
        )
    if content is not None:
        _check_content(known, epoch, content, gaps=gaps)
        if content.accepted:
            return replace(known, epoch=epoch, position=content.digest)
    if epoch <= known.epoch:
        raise StreamBatchDoneError(f'batch {epoch} of the stream "{name}" is in the lake already')
    if epoch != known.epoch + 1 and not gaps:
        lost = f"batch {known.epoch + 1}" if epoch == known.epoch + 2 else f"batches {known.epoch + 1} to {epoch - 1}"
        raise StreamMismatchError(
            f'{lost} of the stream "{name}" are not in this lake, and batch {epoch} is next',
            hint="is the checkpoint that of another stream, or the lake restored from a backup?"
            " restart=True continues without them",
        )
    return replace(known, epoch=epoch, position=position if content is None else content.digest)


def _check_content(known: StreamMark, epoch: int, content: BatchContent, *, gaps: bool) -> None:
    """Raise for a batch that is in the lake, and for one of another history.

    A mark of an older version has no digest: the batch with its number is taken for the same.
    """
    if epoch == known.epoch and (known.position == content.digest or (known.position is None and not content.accepted)):
        raise StreamBatchDoneError(f'batch {epoch} of the stream "{known.name}" is in the lake already')
    if content.accepted:
        return
    follows = epoch == known.epoch + 1 and (gaps or known.position in (None, content.before))
    if epoch <= known.epoch + 1 and not follows:
        raise older_checkpoint(known, epoch)


def older_checkpoint(known: StreamMark, epoch: int) -> StreamMismatchError:
    """Return the error for a checkpoint that is not the one of the last batch in the lake."""
    return StreamMismatchError(
        f'the checkpoint of the stream "{known.name}" does not fit to batch {known.epoch}, the last one in the lake:'
        f" it is an older or another copy, or not whole, and its next batch is {epoch}",
        hint=f"restore the whole checkpoint that has batch {known.epoch}; restart_from={epoch} goes on with this one,"
        " and rows may then be in the table twice, or be missing",
    )
