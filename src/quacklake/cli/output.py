"""Write results in the requested form: a table for people; JSON, CSV or Arrow for programs."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from quacklake.cli.progress import hush
from quacklake.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

_UNLIMITED = 1_000_000
_CELL = 60
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


class Output:
    """Writes to standard output. Raise ``BrokenPipeError`` when the reader closes it early."""

    def __init__(self, format: str = "table") -> None:
        self.format = format
        self.way_to_all = "--all shows them"
        """The hint for people at the rows that a limit left out."""

    @cached_property
    def console(self) -> Console:
        """Standard output as a terminal. Without a terminal, lines are as long as necessary."""
        from rich.console import Console

        class Screen(Console):
            def on_broken_pipe(self) -> None:
                raise BrokenPipeError

        terminal = sys.stdout.isatty() or "COLUMNS" in os.environ
        return Screen(file=sys.stdout, width=None if terminal else _UNLIMITED, highlight=False)

    @property
    def for_people(self) -> bool:
        """True when the output is a table for people."""
        return self.format == "table"

    @property
    def on_terminal(self) -> bool:
        """True when a table is shown on a terminal."""
        return self.for_people and sys.stdout.isatty()

    def rows(self, rows: pa.Table | pa.RecordBatchReader, *, total: int | None = None, shorten: bool = False) -> None:
        """Print rows. A table ends with the row count (``total`` if more exist); ``shorten`` cuts long values.

        JSON is an array with one object per line, CSV has a header, Arrow is an IPC stream. All are written batch by
        batch.
        """
        if self.format == "json":
            _write_json(rows)
        elif self.format == "csv":
            writer = _csv_writer()
            writer.writerow(rows.schema.names)
            writer.writerows([_csv_cell(value) for value in record] for record in _records(rows))
        elif self.format == "arrow":
            _write_arrow(rows)
        else:
            import pyarrow as pa

            from quacklake.extend.display import print_rows

            reader = rows.to_reader() if isinstance(rows, pa.Table) else rows
            hush()
            print_rows(reader, total=total, console=self.console, max_cell=_CELL if shorten else _UNLIMITED)

    def first_rows(self, rows: pa.RecordBatchReader, limit: int | None) -> int:
        """Print rows, and return their number. A table has only the first ones."""
        import pyarrow as pa

        total = 0
        kept: list[pa.RecordBatch] = []

        def count_batches() -> Iterator[pa.RecordBatch]:
            nonlocal total
            for batch in rows:
                total += batch.num_rows
                yield batch

        reader = pa.RecordBatchReader.from_batches(rows.schema, count_batches())
        if not self.for_people or limit is None:
            self.rows(reader)
            return total
        for batch in reader:
            before = total - batch.num_rows
            if before < limit:
                kept.append(batch.slice(0, limit - before))
        self.rows(pa.Table.from_batches(kept, rows.schema), total=total)
        self.mention_more(total - limit)
        return total

    def mention_more(self, count: int) -> None:
        """Tell people how to see the rows that a limit left out."""
        if count > 0:
            self.say(f"… and {count:,} more; {self.way_to_all}")

    def facts(self, facts: Mapping[str, object]) -> None:
        """Print facts about one thing."""
        hush()
        if self.format == "json":
            sys.stdout.write(json.dumps(plain(facts), ensure_ascii=False) + "\n")
        elif self.format == "csv":
            _csv_writer().writerows([("name", "value"), *((name, _csv_cell(value)) for name, value in facts.items())])
        elif self.format == "arrow":
            import pyarrow as pa

            _write_arrow(pa.Table.from_pylist([plain(facts)]))
        else:
            from rich.text import Text

            width = max(map(len, facts), default=0)
            for name, value in facts.items():
                line = Text.assemble((name.ljust(width), "bold"), "  ", _show_fact(name, value))
                line.rstrip()
                self.console.print(line, soft_wrap=True)

    def result(self, sentence: str, facts: Mapping[str, object]) -> None:
        """Print the result of a command: a sentence for people, facts for programs."""
        if self.for_people:
            self.say(sentence)
        else:
            self.facts(facts)

    def say(self, sentence: str) -> None:
        """Print a sentence for people; programs do not see it."""
        if self.for_people:
            hush()
            sys.stdout.write(f"{sentence}\n")


def human_size(size: int) -> str:
    """Return a number of bytes in a suitable unit.

    >>> human_size(999), human_size(1_000), human_size(12_345_678)
    ('999 bytes', '1.0 kB', '12.3 MB')
    """
    if size < 1000:
        return f"{size} bytes"
    power = min(int(math.log10(size) / 3), len(_UNITS) - 1)
    return f"{size / 1000**power:.1f} {_UNITS[power]}"


def plural(count: int, what: str) -> str:
    """Return a count with its noun in the singular or plural.

    >>> plural(1, "row"), plural(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _show_fact(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return human_size(value) if name.endswith("_bytes") else f"{value:,}"
    return "" if value is None else str(value)


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: times in ISO form, bytes as hex, decimals and non-finite numbers as text.

    >>> plain({"when": dt.date(2024, 1, 2), "raw": b"\\xff", "ratio": float("nan")})
    {'when': '2024-01-02', 'raw': 'ff', 'ratio': 'NaN'}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.date | dt.datetime | dt.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    return str(value)


def _records(rows: pa.Table | pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    from quacklake.extend.display import python_values

    for batch in rows.to_batches() if hasattr(rows, "to_batches") else rows:
        hush()
        yield from zip(*(python_values(column) for column in batch.columns), strict=True)


def _write_json(rows: pa.Table | pa.RecordBatchReader) -> None:
    names = rows.schema.names
    separator = "[\n"
    for record in _records(rows):
        row = dict(zip(names, map(plain, record), strict=True))
        sys.stdout.write(separator + json.dumps(row, ensure_ascii=False))
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def _write_arrow(rows: pa.Table | pa.RecordBatchReader) -> None:
    import pyarrow as pa

    if sys.stdout.isatty():
        raise InputError(
            "Arrow output cannot be shown on a terminal",
            hint="redirect it to a file or a program: … --output arrow > rows.arrows",
        )
    sys.stdout.flush()
    with pa.ipc.new_stream(pa.PythonFile(sys.stdout.buffer, mode="w"), rows.schema) as writer:
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
            writer.write_batch(batch)
    sys.stdout.buffer.flush()


def _csv_writer() -> Any:
    return csv.writer(sys.stdout, lineterminator="\n")


def _csv_cell(value: Any) -> Any:
    found = plain(value)
    if isinstance(found, bool):
        return "true" if found else "false"
    return json.dumps(found, ensure_ascii=False) if isinstance(found, dict | list) else found
