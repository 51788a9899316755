"""A table as a relation of DuckDB that follows the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quacklake.errors import InputError

if TYPE_CHECKING:
    import duckdb

    from quacklake.lake.dataframe import DataFrame

__all__ = ["to_relation"]


class _Following:
    """An Arrow stream that DuckDB opens each time the relation runs, with the columns it had when it was made."""

    def __init__(self, frame: DataFrame) -> None:
        self._schema = frame.schema
        self._frame = frame.select(*self._schema.names)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = self._frame.to_reader()
        if reader.schema != self._schema:
            # DuckDB would take values for those of the types it knows
            raise InputError(
                "the columns of the table have other types than when the relation was made", hint="make it anew"
            )
        return reader.__arrow_c_stream__(requested_schema)


def to_relation(frame: DataFrame, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """Return a relation over a frame, in a connection of the caller's or DuckDB's default one."""
    import duckdb

    following = _Following(frame)
    relation: duckdb.DuckDBPyRelation = (duckdb if connection is None else connection).from_arrow(following)
    return relation
