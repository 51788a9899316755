"""Frames of pandas as Arrow tables, and the index that pandas keeps beside the columns.

A level of an index that has a name is a column of that name. One without a name is called as ``reset_index`` calls it,
``index`` or ``level_0``; but whole numbers alone are the labels that pandas gives each row, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quacklake.core.format.names import fold
from quacklake.core.format.stored_index import index_columns, index_metadata, index_name, stored_index
from quacklake.errors import InvalidNameError, SchemaMismatchError

_FAILURES = (ValueError, TypeError, OverflowError, NotImplementedError)
"""The errors of Arrow about values that it does not take; ``ArrowInvalid`` and its kin are among them."""
_SHOWN = 200


def is_frame(data: Any) -> bool:
    """Return True for a frame of pandas, without importing it."""
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")


def to_arrow(frame: Any, *, index: bool) -> tuple[pa.Table, tuple[str, ...]]:
    """Return a frame as an Arrow table, and the names of the columns that its index has become.

    Raise ``InvalidNameError`` and ``SchemaMismatchError`` with the name of a column that cannot be stored.
    """
    names = [column_name(label, place) for place, label in enumerate(frame.columns, 1)]
    check_unique(names)
    columns, levels = _columns(frame, names), []
    for place, name in enumerate(_index_names(frame.index, names) if index else ()):
        labels = frame.index.get_level_values(place)
        if not _is_column(frame, names, labels, name):
            levels.append(name)
            columns += _columns(labels.to_frame(index=False), [name])
    check_unique([*names, *levels])
    return pa.table(columns, names=[*names, *levels]), tuple(levels)


def dense(frame: Any) -> Any:
    """Return a frame without sparse columns, which neither Arrow nor DuckDB reads."""
    places = [place for place, dtype in enumerate(frame.dtypes) if type(dtype).__name__ == "SparseDtype"]
    if not places:
        return frame
    found = frame.copy(deep=False)
    for place in places:
        found.isetitem(place, frame.iloc[:, place].sparse.to_dense())
    return found


@dataclass(frozen=True, slots=True)
class Selected:
    """The columns of rows that a table gets: their places, and their schema, which tells those of an index."""

    places: tuple[int, ...]
    schema: pa.Schema

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with these columns alone."""
        for batch in batches:
            yield pa.RecordBatch.from_arrays([batch.column(place) for place in self.places], schema=self.schema)


def select_columns(schema: pa.Schema, *, index: bool) -> Selected | None:
    """Return the columns of rows with the names of ``stored_index``; None where they are as they should be."""
    stored = stored_index(schema, index=index)
    if not stored:
        return None
    places = tuple(place for place, name in enumerate(schema.names) if stored.get(name, name) is not None)
    fields = [schema.field(place) for place in places]
    chosen = pa.schema([field.with_name(stored.get(field.name) or field.name) for field in fields])
    levels = [stored.get(name, name) for name in index_columns(schema.metadata)]
    return Selected(places, chosen.with_metadata(index_metadata(name for name in levels if name is not None)))


def _index_names(index: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the levels of an index as columns; none where it only labels the rows."""
    unnamed = [_is_missing(name) or (isinstance(name, str) and not name) for name in index.names]
    if unnamed == [True]:
        # an object index without rows is what pandas 2 gives an empty frame
        return () if index.inferred_type in ("integer", "empty") else (index_name(map(fold, columns)),)
    return tuple(f"level_{place}" if unnamed[place] else column_name(name) for place, name in enumerate(index.names))


def _is_column(frame: Any, names: Sequence[str], labels: Any, name: str) -> bool:
    """Return True if a column holds the values of an index already. Raise ``SchemaMismatchError`` for others."""
    if name not in names:
        return False
    column = frame.iloc[:, names.index(name)]
    if not _array(labels, name).equals(_array(column, name)):
        raise SchemaMismatchError(
            f"the index of the pandas frame is named like its column {name!r} and has other values",
            hint="index=False leaves the index out, df.rename_axis(index=…) gives it another name",
        )
    return True


def column_name(label: Any, place: int = 1) -> str:
    """Return a label of pandas, or any key, as the name of a column: the one that ``DataFrame.to_parquet`` writes.

    >>> column_name(7), column_name(("a", 1))
    ('7', "('a', '1')")
    """
    if isinstance(label, str) and label:
        return str(label)
    if isinstance(label, str) or _is_missing(label):
        raise InvalidNameError(f"column {place} of the rows has no name", hint="df.columns = […] names the columns")
    return str(tuple(_text(part) for part in label)) if isinstance(label, tuple) else _text(label)


def _text(label: Any) -> str:
    return label.decode(errors="backslashreplace") if isinstance(label, bytes) else str(label)


def _is_missing(label: Any) -> bool:
    return label is None or type(label).__name__ == "NAType" or (not isinstance(label, tuple) and bool(label != label))


def check_unique(names: Sequence[str]) -> None:
    """Raise ``InvalidNameError`` for a name that columns share."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidNameError(
                f'the rows have the column "{name}" twice',
                hint="df.loc[:, ~df.columns.duplicated()] keeps the first, df.columns = […] gives other names",
            )
        seen.add(name)


def _columns(frame: Any, names: Sequence[str]) -> list[pa.ChunkedArray]:
    named = dense(frame).copy(deep=False)
    named.columns = list(names)
    try:
        found = pa.Table.from_pandas(named, preserve_index=False)
    except _FAILURES as error:
        for place, name in enumerate(names):
            _array(named.iloc[:, place], name)
        raise SchemaMismatchError(f"the pandas frame cannot be stored: {_first_line(error)}") from None
    return list(found.columns)


def _array(column: Any, name: str) -> Any:
    """Return a column as an Arrow array. Raise ``SchemaMismatchError`` with its name."""
    try:
        return pa.array(column, from_pandas=True)
    except OverflowError:
        raise SchemaMismatchError(
            f'the column "{name}" of the pandas frame has numbers of more than 64 bits',
            hint=f'df["{name}"].map(decimal.Decimal) makes decimals of them',
        ) from None
    except _FAILURES as error:
        raise SchemaMismatchError(
            f'the column "{name}" of the pandas frame cannot be stored: {_first_line(error)}',
            hint=f'give each column one type, such as df["{name}"].astype(str)',
        ) from None


def _first_line(error: BaseException) -> str:
    return str(next(iter(error.args), error)).partition("\n")[0][:_SHOWN]
