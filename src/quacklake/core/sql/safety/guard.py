"""The guard of a safe session: the limits, DuckDB's switches, and the hiding of locations."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.config import parse_duration, parse_size
from quacklake.core.duckdb_versions import Connection
from quacklake.core.engines.duckdb.connections import file_name
from quacklake.core.engines.duckdb.sql import NOTHING
from quacklake.core.format.names import fold, literal
from quacklake.core.sql.attached import PREFIX, Attached, Attachments
from quacklake.core.sql.guard import Guard, Size
from quacklake.core.sql.safety import checks
from quacklake.core.sql.scans import Scan
from quacklake.core.sql.tree import Node
from quacklake.core.sql.words import Cursor
from quacklake.errors import ConfigError, NotPermittedError, QuacklakeError, ResultTooLargeError, nearest

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session

_SAFE_BATCH_ROWS = 8_192
_BUFFER = "streaming_buffer_size"
_MAX_AHEAD = 16 << 20
"""Bytes of a result that DuckDB's threads may compute before they are read: some row groups of a file."""
_AHEAD_SHARE = 32
"""One of so many parts of the memory is the most that a result takes ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """Limits for statements from untrusted users: ``quacklake.session(safety=Safety())``.

    Such a session reaches the rows of the lakes that Python has attached to it and nothing else: no files, no network,
    no settings, no Python variables, no metadata. ``None`` switches a limit off. Raise ``ConfigError`` for a limit
    that makes no sense.
    """

    read_only: bool = True
    """Allow only reading; otherwise also INSERT, UPDATE, DELETE, MERGE and TRUNCATE on existing tables."""
    timeout: float | str | timedelta | None = 60.0
    """Seconds, or a text such as ``2m``, that DuckDB may work on a statement and its rows."""
    max_rows: int | None = 1_000_000
    """The most rows of a result."""
    max_bytes: int | str | None = "1GB"
    """The most bytes of a result."""
    max_memory: int | str | None = "1GB"
    """DuckDB's memory for all statements of the session and its cursors together."""
    max_spill: int | str = "4GB"
    """Space in a private directory for rows that do not fit into memory; 0 for none."""
    max_text: int = 100_000
    """The most characters of a text of statements."""
    max_depth: int = 200
    """The most levels of nested queries and expressions."""
    max_nodes: int | None = 20_000
    """The most expression parts of a statement, with its common tables, views and macros expanded."""
    max_tables: int | None = 200
    """The most table references of a statement, counted in the same way."""
    max_columns: int | None = 10_000
    """The most columns of a query within a statement, counted in the same way."""
    max_repeats: int | None = 1_000_000
    """The largest size or count that ``repeat``, ``range`` and similar functions may make from one value."""
    threads: int | None = None
    """DuckDB's threads; ``None`` for one per core."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self) if field.name != "read_only"):
            value, least = getattr(self, name), _LEAST.get(name, 1)
            if value is None:
                continue
            try:
                number = _PARSERS.get(name, _whole)(value)
            except ValueError as error:
                raise ConfigError(f"Safety({name}={value!r}): {error}") from None
            if number < least:
                raise ConfigError(f"Safety({name}={value!r}): at least {least} is expected")

    @classmethod
    def server(cls, **changes: Any) -> Safety:
        """Return limits for a service with many users: read-only, half a minute, 100,000 rows, 512 MB of memory."""
        limits = cls(timeout=30.0, max_rows=100_000, max_bytes="100MB", max_memory="512MB", max_spill="1GB", threads=2)
        return replace(limits, **changes)

    @property
    def seconds(self) -> float | None:
        """The timeout in seconds."""
        return None if self.timeout is None else parse_duration(self.timeout).total_seconds()

    @property
    def result_bytes(self) -> int | None:
        """The most bytes of a result."""
        return None if self.max_bytes is None else parse_size(self.max_bytes)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number is expected")
    return value


_PARSERS: dict[str, Any] = {
    "timeout": lambda value: parse_duration(value).total_seconds(),
    **dict.fromkeys(("max_bytes", "max_memory", "max_spill"), parse_size),
}
_LEAST: dict[str, float] = {"timeout": 0.001, "max_rows": 0, "max_bytes": 0, "max_memory": 1 << 20, "max_spill": 0}


def configure(safety: Safety, config: dict[str, Any]) -> None:
    """Add the limits to the configuration of a database. Its spill directory is removed when the process ends."""
    config["allow_persistent_secrets"] = False
    config["allow_community_extensions"] = False
    if safety.threads is not None:
        config["threads"] = safety.threads
    if safety.max_memory is not None:
        config["memory_limit"] = f"{parse_size(safety.max_memory)}B"
    room = parse_size(safety.max_spill)
    config["temp_directory"] = tempfile.mkdtemp(prefix="quacklake-spill-") if room else ""
    if room:
        config["max_temp_directory_size"] = f"{room}B"


class Seal:
    """Locks the databases of a session once: after its lakes are attached, before the first statement."""

    def __init__(self, spill: str) -> None:
        self._folders: tuple[str, ...] | None = None
        self.spill = spill
        if spill:
            self._clean = weakref.finalize(self, shutil.rmtree, spill, ignore_errors=True)

    def close(self, attachments: Attachments) -> None:
        """Restrict the databases to files of the lakes, and lock their settings."""
        with attachments.lock:
            if self._folders is not None:
                return
            folders = [folder for attached in attachments.lakes.values() for folder in _folders(attached)]
            listed = ", ".join(literal(folder) for folder in dict.fromkeys(folders))
            attachments.root.execute(f"SET allowed_directories = [{listed}]")
            attachments.root.execute(f"SET allowed_paths = [{literal(str(NOTHING))}]")
            attachments.lock_settings(
                (
                    f"SET allowed_configs = [{literal(_BUFFER)}]",
                    "SET enable_external_access = false",
                    "SET lock_configuration = true",
                )
            )
            self._folders = tuple(folders)

    def allows(self, attached: Attached) -> None:
        """Raise ``ConfigError`` for a lake whose files the locked databases cannot open."""
        if self._folders is not None and not set(_folders(attached)) <= set(self._folders):
            raise ConfigError(
                f'the lake "{attached.alias}" cannot be attached: the safe session has run statements already',
                hint="attach all lakes first",
            )

    def remove(self) -> None:
        """Remove the spill directory, after the databases have been closed."""
        if self.spill:
            self._clean()


def _folders(attached: Attached) -> list[str]:
    store = attached.context.store
    folders = [f"{folder.rstrip('/')}/" for folder in (store.root, *store.external)]
    # DuckDB compares the path that it opens, and for a name with wildcard characters that is the pattern
    return list(dict.fromkeys(spelling for folder in folders for spelling in (folder, file_name(folder))))


class SafeGuard(Guard):
    """Refuses what ``Safety`` does not allow. The cursors of a session share it."""

    safe = True
    trusted = False
    batch_rows = _SAFE_BATCH_ROWS

    def __init__(self, safety: Safety, seal: Seal) -> None:
        self.safety = safety
        self.seconds = safety.seconds
        memory = None if safety.max_memory is None else parse_size(safety.max_memory)
        self._ahead = _MAX_AHEAD if memory is None else min(_MAX_AHEAD, max(memory // _AHEAD_SHARE, 1))
        self._seal = seal
        self._tenant: str | None = None

    def attaching(self, attached: Attached) -> None:
        """Refuse a second catalog of a shared lake: a safe session is for one tenant."""
        self._seal.allows(attached)
        row = attached.context.catalog.tenant_row
        if row is not None and self._tenant not in (None, row.uuid):
            raise ConfigError(
                f'the lake "{attached.alias}" cannot be attached: a safe session is for one catalog of a shared lake',
                hint="make a session for each catalog",
            )
        self._tenant = self._tenant if row is None else row.uuid

    def text(self, text: str) -> None:
        if len(text) > self.safety.max_text:
            raise NotPermittedError(f"the text has {len(text)} characters, {self.safety.max_text} are allowed")

    def opened(self, connection: Connection) -> None:
        connection.execute(f"SET {_BUFFER} = '{self._ahead:d}B'")

    def admit(self, session: Session, cursor: Cursor) -> Cursor:
        self._seal.close(session.attachments)
        return checks.admit(session, cursor, read_only=self.safety.read_only)

    def auditing(self, session: Session, sql: str) -> AbstractContextManager[None]:
        lakes = [attached.lake for attached in session.attachments.attached.values() if attached.lake is not None]
        mine = next((lake for lake in lakes if lake.restricted), None)
        first = re.match(r"\s*(\w*)", sql)
        return nullcontext() if mine is None else mine.auditing(first[1].upper() if first is not None else "", sql)

    def native(self) -> None:
        raise NotPermittedError("a safe session does not run such a statement")

    def measure(self, parsed: Node, made: Mapping[str, Size]) -> Size:
        return checks.Measure(made, self.safety).of(parsed)

    def check(self, parsed: Node, known: checks.Known) -> None:
        checks.check_shape(parsed, self.safety)
        checks.check(parsed, known)

    def value(self, expression: Node, is_macro: checks.Known | None = None) -> None:
        checks.check_shape(expression, self.safety)
        checks.check_value(expression, is_macro)

    def foreign(self, session: Session, names: Sequence[str]) -> None:
        last, schema = fold(names[-1]), [fold(name) for name in names[:-1]]
        if schema[-1:] == ["information_schema"] or (not schema and last in checks.LISTINGS):
            return
        if schema == ["temp", "main"] and last.startswith(PREFIX) and session.has_made(last):
            return
        used = session.names.default
        known = () if used is None or schema else [table.name for table in session.view(used).tables()]
        raise NotPermittedError(
            f'"{".".join(names)}" is not a table of a lake of this safe session', hint=nearest(names[0], known)
        )

    def limited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = size = 0
        most_rows, most_bytes = self.safety.max_rows, self.safety.result_bytes
        for batch in batches:
            rows += batch.num_rows
            size += batch.nbytes
            if most_rows is not None and rows > most_rows:
                raise ResultTooLargeError(f"the result has more than {most_rows} rows", hint="LIMIT or an aggregate")
            if most_bytes is not None and size > most_bytes:
                raise ResultTooLargeError(f"the result has more than {most_bytes} bytes", hint="name fewer columns")
            yield batch

    def close(self) -> None:
        self._seal.remove()

    # -- locations -----------------------------------------------------------------------------------------------------

    def scanned(self, query: str, scan: Scan) -> str:
        """Let the column ``filename`` begin at the data path, or be a file name for a path elsewhere."""
        if "filename" not in scan.virtual:
            return query
        store = scan.attached.context.store
        roots = dict.fromkeys([store.root, f"{os.path.realpath(store.root)}/" if store.is_local else store.root])
        cases = "".join(
            f" WHEN starts_with(filename, {literal(root)}) THEN substr(filename, {len(root) + 1:d})" for root in roots
        )
        return f"SELECT * REPLACE (CASE{cases} ELSE parse_filename(filename) END AS filename) FROM ({query})"

    def plan(self, session: Session, text: str) -> str:
        """Return a plan without file names. Raise ``NotPermittedError`` when they cannot be removed."""
        places = self._places(session)
        with suppress(ValueError):  # the plan is in another format
            text = json.dumps(_without_files(json.loads(text)), indent=4)
        text = _hide_paths(text, places)
        # a path in a box is broken across lines
        whole = _FRAME.sub("", text)
        if any(_FRAME.sub("", place) in whole for place in places):
            raise NotPermittedError("the plan names files", hint="EXPLAIN (FORMAT JSON) leaves them out")
        return text

    def failed(self, session: Session, error: QuacklakeError) -> None:
        """Remove locations from an error, and remove its cause: DuckDB's own errors name files."""
        places = self._places(session)
        error.message = _hide_paths(error.message, places)
        error.hint = None if error.hint is None else _hide_paths(error.hint, places)
        error.args = (error.message,)
        error.__cause__ = error.__context__ = None

    def _places(self, session: Session) -> dict[str, str]:
        """Return the texts that reveal a location, the longest first, with their replacements."""
        found = {os.path.dirname(NOTHING) + "/": "", self._seal.spill: ""}  # noqa: PTH120 - as it is in plans
        for attached in session.attachments.lakes.values():
            store, url = attached.context.store, attached.context.catalog.url
            for folder in (store.root, *store.external):
                real = os.path.realpath(folder) if store.is_local else folder
                for name in (folder, real, file_name(folder), file_name(real)):
                    found |= {f"{name.rstrip('/')}/": "", name.rstrip("/"): "the data path"}
            found |= dict.fromkeys((str(url), url.shown), "the catalog")
            if url.path is not None:
                found[str(url.path)] = "the catalog"
        known = sorted((text for text in found if len(text) > 1), key=len, reverse=True)
        return {text: found[text] for text in known}


_FRAME = re.compile(r"[\s│┌┐└┘├┤┬┴┼─]+")


def _hide_paths(text: str, places: Mapping[str, str]) -> str:
    """Return a text in which paths begin at the data path."""
    for place, shown in places.items():
        # another path may begin with the same characters
        end = "" if place.endswith("/") else r"(?![\w.-])"
        text = re.sub(re.escape(place) + end, lambda _, shown=shown: shown, text)  # type: ignore[misc]
    return text


def _without_files(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_files(item) for item in node]
    if isinstance(node, dict):
        return {key: _without_files(value) for key, value in node.items() if not key.lower().startswith("filename")}
    return node
