"""The options of ``format("quacklake")``: texts that Spark passes on, including their spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quacklake.errors import InputError
from quacklake.operations.change_feed import Bound
from quacklake.operations.reference import TableRef
from quacklake.spark.streams.options import choice, positive, refuse_unknown
from quacklake.spark.streams.source import EARLIEST

_TABLE = ("lake", "catalog", "table")
_STARTS = ("readChangeFeed", "startingVersion", "startingTimestamp")
READ = (*_TABLE, "version", "timestamp", "where", *_STARTS, "endingVersion", "endingTimestamp")
READ_STREAM = (*_TABLE, *_STARTS, "maxFilesPerTrigger", "maxBytesPerTrigger")
UUID = "uuid"
READ_CARRIED = (*READ_STREAM, "version", UUID)
"""Options that ``SparkLake.read_stream`` adds on Spark Connect: the version of the columns, and the table's UUID."""
READ_ANY = tuple(dict.fromkeys((*READ, *READ_CARRIED)))
"""Options that are allowed before it is known whether a read is a stream."""
WRITE = (*_TABLE, "replaceWhere", "partitionOverwriteMode")
WRITE_STREAM = (*_TABLE, "streamName", "restart")

_ALIAS = "path"
"""The option in which ``load("sales")`` and ``save("sales")`` pass a name."""
_SPARKS = ("checkpointLocation", "queryName")
_ONLY_CHANGES = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")
_NOT_CHANGES = ("version", "timestamp", "where")


@dataclass(frozen=True)
class FormatOptions:
    """Valid options, by name in lower case."""

    values: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, str], known: Sequence[str]) -> FormatOptions:
        """Parse options. Raises ``InputError`` for an option that does not exist, with the most similar one."""
        values = {name.lower(): value for name, value in given.items()}
        own = {name.lower() for name in (*known, _ALIAS, *(_SPARKS if known is WRITE_STREAM else ()))}
        refuse_unknown([name for name in values if name not in own], known)
        path = values.pop(_ALIAS, None)
        if path is not None and values.setdefault("table", path) != path:
            raise InputError(f"two tables are named: {values['table']!r} and {path!r}", hint="name one of them")
        return cls(values)

    def get(self, name: str) -> str | None:
        """Return the text of an option, or None."""
        return self.values.get(name.lower())

    def flag(self, name: str) -> bool:
        """Return True when an option is set."""
        text = self.get(name)
        return text is not None and choice(name, text.lower(), ("true", "false")) == "true"

    def number(self, name: str) -> int | None:
        """Return a number from 1, or None."""
        text = self.get(name)
        return None if text is None else positive(name, int(text) if text.isdecimal() else text)

    @property
    def table(self) -> TableRef:
        """The table. Raises ``InputError`` when none is named."""
        name = self.get("table")
        if not name:
            raise InputError("no table is named", hint='say .option("table", "sales"), or load("sales")')
        return TableRef.parse(name)

    def bound(self, version: str, timestamp: str) -> Bound | None:
        """Return an end of a range, which may be given as a version or as a time."""
        number, time = self.get(version), self.get(timestamp)
        if number is not None and time is not None:
            raise InputError(f"{version} and {timestamp} are both given", hint="leave one of them out")
        return int(number) if number is not None and number.isdecimal() else number if time is None else time

    @property
    def starting(self) -> Bound:
        """The start of the changes."""
        found = self.bound("startingVersion", "startingTimestamp")
        return EARLIEST if found is None else found

    def check_changes(self) -> None:
        """Refuse meaningless options of a batch: a range without changes, or a snapshot or a filter with them."""
        changes = self.flag("readChangeFeed")
        for name in _NOT_CHANGES if changes else _ONLY_CHANGES:
            if self.get(name) is not None:
                hint = 'say startingVersion and endingVersion, and filter with where("…")' if changes else None
                raise InputError(
                    f'the option "{name}" is for a read {"without" if changes else "with"} readChangeFeed',
                    hint=hint or 'say .option("readChangeFeed", "true"), or .option("version", …) for one snapshot',
                )
