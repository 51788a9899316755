"""The options of sources and sinks, as their code asks for them.

Each connector is made once while its questions are written down: the name of every option, what it takes and its
default. The meanings are here; an option without one fails the tests of the documentation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any
from unittest.mock import patch

import quacklake
from quacklake.connectors import connector
from quacklake.connectors.options import ALIASES, ConnectorOptions
from quacklake.pipelines.lake_tables import LakeSink, LakeSource

__all__ = ["CONNECTORS", "options_table"]

_TAKES = {
    "text": "text",
    "optional": "text",
    "names": "names",
    "choice": "",
    "boolean": "`true` or `false`",
    "number": "a number",
    "size": "a size, such as `'128MB'`",
    "duration": "a duration, such as `'10 seconds'`",
}
_ICEBERG = {"catalog_type": "rest", "catalog_uri": "https://catalog", "namespace": "n", "table_name": "t"}


def _lake_source(options: Mapping[str, Any]) -> object:
    with quacklake.connect("sqlite://", data_path="memory") as lake:
        lake.sql("CREATE TABLE t (id BIGINT)")
        return LakeSource(lake, options)


def _lake_sink(options: Mapping[str, Any]) -> object:
    with quacklake.connect("sqlite://", data_path="memory") as lake:
        return LakeSink(lake, options)


_DERIVED = {("hudi-sink", "table_name")}
"""Defaults that follow from other options."""
CONNECTORS: Mapping[str, Callable[[], object]] = {
    "lake-source": lambda: _lake_source({"table": "t"}),
    "lake-sink": lambda: _lake_sink({"table": "t"}),
    "nats-source": lambda: connector("nats", "source")({"stream": "s", "schema": "id BIGINT"}),
    "nats-sink": lambda: connector("nats", "sink")({"stream": "s", "subject": "s", "staging": "staging"}),
    "delta-source": lambda: connector("delta", "source")({"location": "t"}),
    "delta-sink": lambda: connector("delta", "sink")({"location": "t"}),
    "iceberg-source": lambda: connector("iceberg", "source")(_ICEBERG),
    "iceberg-sink": lambda: connector("iceberg", "sink")(_ICEBERG),
    "hudi-source": lambda: connector("hudi", "source")({"location": "t"}),
    "hudi-sink": lambda: connector("hudi", "sink")({"location": "t"}),
}
"""Name of a table of options -> how its connector is made with nothing but what it needs."""


@dataclass(frozen=True)
class _Question:
    """An option that a connector asked for."""

    name: str
    takes: str
    default: str


def options_table(name: str) -> str:
    """Return the table of a connector's options."""
    meanings = {**_SHARED, **_MEANINGS.get(name.split("-")[0], {}), **_MEANINGS.get(name, {})}
    lines = ["| option | takes | default | meaning |", "|---|---|---|---|"]
    for question in _questions(name):
        others = ", ".join(f"`{other}`" for other in ALIASES.get(question.name, ()))
        meaning = meanings[question.name] + (f" (also {others})" if others else "")
        default = "" if (name, question.name) in _DERIVED else question.default
        lines.append(f"| `{question.name}` | {question.takes} | {default} | {meaning} |")
    return "\n".join(lines)


def _questions(name: str) -> list[_Question]:
    found: dict[str, _Question] = {}
    with _recorded(found):
        CONNECTORS[name]()
    return list(found.values())


@contextmanager
def _recorded(found: dict[str, _Question]) -> Iterator[None]:
    """Write down which options are asked for, and not what those methods ask of each other."""
    asking = False

    def record(method: str) -> Callable[..., Any]:
        original = getattr(ConnectorOptions, method)

        @wraps(original)
        def ask(self: ConnectorOptions, *words: Any, **named: Any) -> Any:
            nonlocal asking
            if asking:
                return original(self, *words, **named)
            asking = True
            try:
                given = inspect.signature(original).bind(self, *words, **named).arguments
                takes = " or ".join(f"`{word}`" for word in given.get("known", ())) or _TAKES[method]
                found.setdefault(given["name"], _Question(given["name"], takes, _default(method, given)))
                return original(self, *words, **named)
            finally:
                asking = False

        return ask

    with patch.multiple(ConnectorOptions, **{method: record(method) for method in _TAKES}):
        yield


def _default(method: str, given: Mapping[str, Any]) -> str:
    default = given.get("default")
    if default is None:
        return "required" if method == "text" else ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, timedelta):
        return f"`{_duration(default)}`"
    if method == "size":
        unit, word = (1 << 20, "MiB") if default % (1 << 20) == 0 else (1000**2, "MB")
        return f"`{default // unit}{word}`"
    return f"`{default}`" if default != "" else ""


def _duration(value: timedelta) -> str:
    hours, seconds = divmod(value.total_seconds(), 3600)
    number, unit = (hours, "hour") if not seconds else (value.total_seconds(), "second")
    return f"{number:g} {unit}{'' if number == 1 else 's'}"


_SHARED = {
    "mode": "what to read: see [modes](../guides/connectors.md#reading-with-positions)",
    "version": "the version to read (`snapshot`), or to begin after (`incremental`)",
    "timestamp": "the time whose version to read (`snapshot`)",
    "poll_interval": "how long to wait before looking for new rows again",
    "change_data_feed": "read every change, with `_change_type`, `_commit_version` and `_commit_timestamp`",
    "changelog": "with a feed, `op` returns `_op` (`I`, `U`, `D`) instead, without the rows as they were before",
    "on_change": "without a feed: what to do with a commit that changed rows",
    "batch_rows": "the maximum number of rows in a batch",
    "key": "the columns that tell rows apart; needed for `upsert`",
    "partition_by": "the columns to partition a new table by",
    "target_file_size": "the size at which a file is written",
    "writer_id": "the name under which commits are numbered; a pipeline sets it",
    "schema_evolution": "add columns that the rows have and the table lacks",
    "compression": "the compression of Parquet files",
    "max_commit_retries": "how often to retry a commit that lost a race",
    "compaction": "replace small files with larger ones from time to time",
    "compaction_min_files": "how many small files a partition must have to be compacted",
    "compaction_interval": "the minimum time between two checks of the files",
    "vacuum_retention": "how long to keep files that the table no longer uses",
    "location": "where the table is: a folder or the URL of an object store",
    "order_by": "of several rows with the same key in one batch, the one with the greatest value wins",
}
_MEANINGS: Mapping[str, Mapping[str, str]] = {
    "lake": {"table": "the table, such as `orders` or `shop.orders`"},
    "lake-source": {
        "change_data_feed": "read every change, with `_change_type` and `_commit_version`",
        "on_change": "no effect: a lake knows which rows are new, and returns only these",
    },
    "lake-sink": {
        "mode": "`append` adds rows, `upsert` replaces those with the same key, `changes` applies a change feed",
        "create": "create the table if it does not exist",
        "key": "the columns that tell rows apart; needed for `upsert` and `changes`",
    },
    "nats": {
        "servers": "one or more servers, separated by commas; those that are down or refuse the credentials are skipped",
        "stream": "the stream",
        "user": "credentials",
        "password": "credentials",
        "token": "credentials",
        "nkey_seed": "credentials: the seed of an nkey",
        "ca_file": "TLS: the CA certificates that verify the server",
        "cert_file": "TLS: the certificate of the client",
        "key_file": "TLS: the key of the client",
        "timeout": "how long to wait for the server",
        "max_retries": "how often to try again",
    },
    "nats-source": {
        "subject": "one or more subjects, with wildcards; by default all subjects of the stream",
        "mode": "`batch` ends at the last message, `continuous` waits for more",
        "start": "`earliest`, `latest`, a sequence, or a time, for a source without a checkpoint",
        "format": "`arrow` is an Arrow IPC stream with any number of rows; `raw` returns every message as it is, in the column `_data`",
        "schema": "the columns, as in `CREATE TABLE`. A missing JSON key is NULL; a key without a column is ignored",
        "sample": "infer the columns of JSON or CSV from this many messages instead",
        "max_messages": "the maximum number of messages in a batch",
        "max_bytes": "the maximum number of bytes in a batch",
        "on_expired": "what to do when messages were removed before they were read",
        "on_bad": "`reject` sets a message that is not a row aside, with the reason; `fail` raises an error",
        "max_rejected": "how many such messages to set aside before an error",
    },
    "nats-sink": {
        "subject": "one subject; `{column}` stands for the value of a column, which must be a valid token",
        "format": "`raw` is the column `_data`; `arrow` has up to 1000 rows of one subject in a message",
        "staging": "a folder or the URL of an object store, where prepared rows wait; a pipeline sets it",
        "dedup_id_column": "the column whose value is `Nats-Msg-Id`; the server drops a second message with the same id",
        "max_in_flight": "the maximum number of unacknowledged messages",
        "on_expired": "what to do when messages were removed and the sink cannot tell whether they were its own",
        "target_file_size": "the size of staged files",
    },
    "delta-sink": {
        "mode": "`append` adds rows, `overwrite` replaces all, `upsert` those with the same key",
        "uniform_iceberg": "write Iceberg metadata beside the table; new tables have it by default",
        "zorder_by": "columns by which a compaction sorts all rows on a Z-order curve",
    },
    "iceberg": {
        "catalog_type": "the kind of catalog",
        "catalog_uri": "the address of the catalog",
        "catalog_name": "the name of the catalog",
        "warehouse": "the location of new tables",
        "credential": "credentials of a REST catalog: `id:secret`",
        "token": "credentials of a REST catalog: a bearer token",
        "scope": "credentials of a REST catalog: the OAuth2 scope",
        "oauth2_server_uri": "credentials of a REST catalog: the address of the OAuth2 server",
        "glue.max-retries": "how often to retry a request to Glue",
        "namespace": "the namespace of the table",
        "table_name": "the table",
        "key": "the columns that tell rows apart",
        "partition_by": "columns or transforms: `days(ts)`, `hours(ts)`, `months(ts)`, `years(ts)`, `bucket(16, id)`, `truncate(4, name)`, `void(x)`",
    },
    "iceberg-sink": {
        "mode": "`append` adds rows, `overwrite` replaces all, `upsert` those with the same key",
        "key": "the columns that tell rows apart; needed for `upsert`",
        "vacuum_retention": "how long to keep files and snapshots that the table no longer uses",
    },
    "hudi-sink": {
        "mode": "Hudi's operation: `append` is `insert`, `overwrite` is `insert_overwrite_table`",
        "key": "the columns that tell rows apart; without them Hudi numbers the rows, and `upsert` is not possible",
        "table_name": "the name of a new table; the last part of its location by default",
        "table_type": "the type of a new table",
    },
}
