"""Tables of a lake as assets, which DAGs make and wait for."""

from __future__ import annotations

from urllib.parse import SplitResult, quote

from airflow.sdk import Asset

from quacklake.extend.names import TableRef

SCHEME = "quacklake"


def table_asset(table: str, quacklake_conn_id: str = "quacklake_default") -> Asset:
    """Return the asset of a table: ``quacklake://connection/schema/table``."""
    ref = TableRef.parse(table)
    parts = [quote(part, safe="") for part in (quacklake_conn_id, ref.schema, ref.name)]
    return Asset(f"{SCHEME}://{'/'.join(parts)}")


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the URI of an asset if it names a connection, a schema and a table. Raise ``ValueError``."""
    parts = uri.path.split("/")
    if not uri.netloc or len(parts) != 3 or not all(parts[1:]) or uri.query or uri.fragment:
        raise ValueError("the URI of a table is quacklake://connection/schema/table")
    return uri
