"""Register ``format("quacklake")`` with Spark sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quacklake.errors import InputError, MissingExtraError, UnsupportedFeatureError
from quacklake.operations.handles import HasHandle, LakeHandle
from quacklake.spark.runtime.settings import STEADY, installed_version, parse_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_spark(
    session: SparkSession | None = None, lake: HasHandle | None = None, *, name: str | None = None
) -> None:
    """Register ``format("quacklake")`` with a session, by default the active one, for plain Spark code and SQL.

    ``lake`` is the default lake when the option ``lake`` is missing, and the lake that ``name`` refers to in that
    option; a URL always works. ``quacklake.spark(lake)`` does the same. On Spark Connect, tables can only be read, by
    the URL of their lake, which the server must be able to open.

    Raises ``UnsupportedFeatureError`` for a Spark before 4, which has no Python data sources.
    """
    require_pyspark()
    require_sources()
    from pyspark.sql import SparkSession

    found = session if session is not None else SparkSession.getActiveSession()
    if found is None:
        raise InputError("there is no Spark session", hint="pass one, or use quacklake.spark(lake), which makes one")
    from quacklake.spark.datasource.format import SparkFormat, source_class
    from quacklake.spark.runtime.compat import is_connect

    if is_connect(found):
        if lake is not None:
            raise UnsupportedFeatureError(
                "a lake of this process cannot be read by the server of Spark Connect",
                hint='leave it out, and name the lake by its URL: .option("lake", "postgresql://…")',
            )
        found.dataSource.register(source_class(None))
        return
    known = SparkFormat.of(found)
    if lake is not None:
        if not isinstance(lake.handle, LakeHandle):
            raise InputError("Spark works on a whole lake, not on a past snapshot or an open transaction")
        known.add(lake.handle, name)
    elif name is not None:
        raise InputError("a name is given, but no lake", hint='pass register_spark(session, lake, name="sales")')


def require_pyspark() -> None:
    """Raise ``MissingExtraError`` when ``pyspark`` is not installed."""
    if installed_version() is None:
        raise MissingExtraError(
            "Spark needs the package pyspark", hint="install it with: pip install 'quacklake[spark]'"
        )


def has_sources() -> bool:
    """Return True when this Spark has Python data sources."""
    import pyspark

    return parse_version(pyspark.__version__) >= STEADY


def require_sources() -> None:
    """Raise ``UnsupportedFeatureError`` for a Spark without Python data sources."""
    import pyspark

    if not has_sources():
        raise UnsupportedFeatureError(
            f'Spark {pyspark.__version__} has no sources in Python, which format("quacklake") and read_stream need',
            hint="use Spark 4.1, or read and write with quacklake.spark(lake), which needs none",
        )
