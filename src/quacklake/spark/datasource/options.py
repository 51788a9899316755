"""The options of ``format("quacklake")``, as texts that Spark passes on, its own spelling and all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quacklake.errors import InputError
from quacklake.operations.change_feed import Bound
from quacklake.operations.reference import TableRef
from quacklake.spark.streams.options import choice, positive, refuse_unknown
from quacklake.spark.streams.source import EARLIEST

__all__ = ["READ", "READ_ANY", "READ_CARRIED", "READ_STREAM", "UUID", "WRITE", "WRITE_STREAM", "FormatOptions"]

_TABLE = ("lake", "catalog", "table")
_STARTS = ("readChangeFeed", "startingVersion", "startingTimestamp")
READ = (*_TABLE, "version", "timestamp", "where", *_STARTS, "endingVersion", "endingTimestamp")
READ_STREAM = (*_TABLE, *_STARTS, "maxFilesPerTrigger", "maxBytesPerTrigger")
UUID = "uuid"
READ_CARRIED = (*READ_STREAM, "version", UUID)
"""What ``SparkLake.read_stream`` says on Spark Connect: the columns are those of a version, the table is this one."""
READ_ANY = tuple(dict.fromkeys((*READ, *READ_CARRIED)))
"""What may be said before it is known whether a read is a stream."""
WRITE = (*_TABLE, "replaceWhere", "partitionOverwriteMode")
WRITE_STREAM = (*_TABLE, "streamName", "restart")

_ALIAS = "path"
"""What ``load("sales")`` and ``save("sales")`` pass a name as."""
_SPARKS = ("checkpointLocation", "queryName")
_ONLY_CHANGES = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")
_NOT_CHANGES = ("version", "timestamp", "where")


@dataclass(frozen=True)
class FormatOptions:
    """Options that exist, by their names in small letters."""

    values: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, str], known: Sequence[str]) -> FormatOptions:
        """Raises ``InputError`` for an option that does not exist, with the one that was probably meant."""
        values = {name.lower(): value for name, value in given.items()}
        own = {name.lower() for name in (*known, _ALIAS, *(_SPARKS if known is WRITE_STREAM else ()))}
        refuse_unknown([name for name in values if name not in own], known)
        path = values.pop(_ALIAS, None)
        if path is not None and values.setdefault("table", path) != path:
            raise InputError(f"two tables are named: {values['table']!r} and {path!r}", hint="name one of them")
        return cls(values)

    def get(self, name: str) -> str | None:
        """The text of an option, if it is given."""
        return self.values.get(name.lower())

    def flag(self, name: str) -> bool:
        """Whether an option is set."""
        text = self.get(name)
        return text is not None and choice(name, text.lower(), ("true", "false")) == "true"

    def number(self, name: str) -> int | None:
        """A number from 1."""
        text = self.get(name)
        return None if text is None else positive(name, int(text) if text.isdecimal() else text)

    @property
    def table(self) -> TableRef:
        """Raises ``InputError`` when none is named."""
        name = self.get("table")
        if not name:
            raise InputError("no table is named", hint='say .option("table", "sales"), or load("sales")')
        return TableRef.parse(name)

    def bound(self, version: str, timestamp: str) -> Bound | None:
        """An end of a range, of which a version or a time may be given."""
        number, time = self.get(version), self.get(timestamp)
        if number is not None and time is not None:
            raise InputError(f"{version} and {timestamp} are both given", hint="leave one of them out")
        return int(number) if number is not None and number.isdecimal() else number if time is None else time

    @property
    def starting(self) -> Bound:
        """Where changes begin."""
        found = self.bound("startingVersion", "startingTimestamp")
        return EARLIEST if found is None else found

    def check_changes(self) -> None:
        """Refuse what says nothing, of a batch: a range without changes, a snapshot or a filter with them."""
        changes = self.flag("readChangeFeed")
        for name in _NOT_CHANGES if changes else _ONLY_CHANGES:
            if self.get(name) is not None:
                hint = 'say startingVersion and endingVersion, and filter with where("…")' if changes else None
                raise InputError(
                    f'the option "{name}" is for a read {"without" if changes else "with"} readChangeFeed',
                    hint=hint or 'say .option("readChangeFeed", "true"), or .option("version", …) for one snapshot',
                )
