"""Names of tables and columns: checked, compared as DuckDB compares them, and written into SQL."""

from quacklake.core.format.names import check_name, fold, literal, quote, uuid7
from quacklake.core.operations.reference import DEFAULT_SCHEMA, TableRef

__all__ = ["DEFAULT_SCHEMA", "TableRef", "check_name", "fold", "literal", "quote", "uuid7"]
