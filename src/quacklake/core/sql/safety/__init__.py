"""Sessions for statements from untrusted users.

Two layers protect the session: an allow list over statements and parsed queries, and DuckDB's own switches.
"""

from quacklake.core.sql.safety.guard import SafeGuard, Safety, Seal, configure

__all__ = ["SafeGuard", "Safety", "Seal", "configure"]
