"""Replace features of PySpark 4 that 3.5 or some versions of 4 lack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from quacklake.errors import InputError, UnsupportedFeatureError
from quacklake.format.schema import Column
from quacklake.spark.runtime.settings import STEADY, Version, parse_version
from quacklake.spark.runtime.types import quote

_TYPES: Mapping[str, Version] = {"json": (4, 0), "variant": (4, 0), "time": (4, 1)}
"""Types of the format that not every Spark can write, with the first version that can."""


def is_connect(session: SparkSession) -> bool:
    """Return True for a Spark Connect session, whose work runs in another process, on the server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def has_scalars(session: SparkSession) -> bool:
    """Return True when a DataFrame of one value can be part of an expression: since 4.0, here and on the server."""
    return min(parse_version(pyspark.__version__), parse_version(session.version)) >= (4, 0)


def check_session(session: object) -> None:
    """Refuse an object that is not a session, an unsupported version, or a session that does not fit this process.

    Raises ``InputError`` or ``UnsupportedVersionError``.
    """
    if not isinstance(session, SparkSession) and not is_connect(session):  # type: ignore[arg-type]
        raise InputError(f"{type(session).__name__} is no session of Spark", hint="pass a SparkSession")
    parse_version(pyspark.__version__)
    parse_version(session.version)  # type: ignore[attr-defined]
    if is_connect(session) and not _connect_mode():  # type: ignore[arg-type]
        raise InputError(
            "the functions of PySpark make columns for a classic session in this process, not for Spark Connect",
            hint="make the session with SparkSession.builder.remote(…), in a process without a classic one",
        )


def _connect_mode() -> bool:
    from pyspark.sql.utils import is_remote

    return bool(is_remote())


def _version(session: SparkSession) -> Version:
    """Return the older of the versions of the session and of the package in this process."""
    return min(parse_version(pyspark.__version__), parse_version(session.version))


def require(session: SparkSession, what: str) -> None:
    """Raise ``UnsupportedFeatureError`` for an operation that Spark 3.5 cannot do."""
    if _version(session) < STEADY:
        raise UnsupportedFeatureError(
            f"{what} on Spark {session.version} does not work: it takes Spark 4.0",
            hint="with 3.5 tables can be read, made, appended to and overwritten; the rest does lake.table(…)",
        )


def has_type(session: SparkSession, name: str) -> bool:
    """Return True when this version of Spark has a type of the format."""
    return name not in _TYPES or _version(session) >= _TYPES[name]


def require_types(session: SparkSession, columns: Iterable[Column], *, shown: Sequence[str] = ()) -> None:
    """Raise ``UnsupportedFeatureError`` for columns of types that this Spark lacks, except those ``shown`` as text."""
    for leaf in (leaf for column in columns for leaf in column.leaves()):
        if leaf.type not in shown and not has_type(session, leaf.type):
            since = ".".join(map(str, _TYPES[leaf.type]))
            raise UnsupportedFeatureError(
                f'the {leaf.type} column "{leaf.name}" takes Spark {since} or newer, and this is {session.version}',
                hint="read and write it with lake.table(…)",
            )


def _new_client() -> bool:
    return parse_version(pyspark.__version__) >= STEADY


def user_settings(session: SparkSession, keys: tuple[str, ...]) -> dict[str, str]:
    """Return the settings among ``keys`` that have been set explicitly."""
    if _new_client():
        # fetching all settings would take a call for each
        every = session.conf.getAll if is_connect(session) else session.conf._jconf.getAllAsJava()
        return {key: every[key] for key in keys if key in every}
    found = {key: session.conf.get(key, None) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def place_of(frame: DataFrame, name: str) -> SparkColumn:
    """Return a column of the file metadata of a row."""
    column = frame.metadataColumn("_metadata") if _new_client() else f.col("_metadata")
    return column.getField(name)


def rebalanced(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Bring rows with equal values of some columns together, in partitions of limited size if Spark can."""
    keys = [f.col(quote(name)) for name in names]
    return frame.hint("rebalance", *keys) if _new_client() else frame.repartition(*keys)


def to_arrow(frame: DataFrame) -> pa.Table:
    """Return all rows of a DataFrame.

    Spark's own ``toArrow`` refuses a NULL struct with a field that is not nullable.
    """
    if is_connect(frame.sparkSession):
        table: pa.Table = frame._to_table()[0]  # type: ignore[operator]
        return table
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = frame._collect_as_arrow()  # type: ignore[operator]
    return pa.Table.from_batches(batches) if batches else to_arrow_schema(frame.schema).empty_table()


def from_arrow(session: SparkSession, table: pa.Table) -> DataFrame:
    """Return an Arrow table as a DataFrame."""
    if _new_client():
        return session.createDataFrame(table)
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = [[_plain(value, column.type) for value in column.to_pylist()] for column in table.columns]
    return session.createDataFrame(list(zip(*columns, strict=True)), from_arrow_schema(table.schema))


def _plain(value: Any, type_: pa.DataType) -> Any:
    """Convert a value to the form that PySpark accepts. Arrow returns maps as lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return {_plain(key, type_.key_type): _plain(one, type_.item_type) for key, one in value}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_plain(one, type_.value_type) for one in value]
    if pa.types.is_struct(type_):
        return {field.name: _plain(value[field.name], field.type) for field in type_}
    return value


def arrow_udf(
    work: Callable[[pa.Array], pa.Array], one: Callable[[Any], str | None], argument: SparkColumn
) -> SparkColumn:
    """Return texts that Python computes from a column on the executors: from arrays, or row by row before Spark 4.1."""
    if hasattr(f, "arrow_udf"):

        @f.arrow_udf("string")  # type: ignore[untyped-decorator]
        def texts(values: pa.Array) -> pa.Array:
            return work(values)

        found: SparkColumn = texts(argument)
        return found

    return f.udf(one, "string")(argument)
