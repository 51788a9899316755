"""SQL over lakes: sessions and the statements they run."""

from quacklake.lake.result import Result
from quacklake.sql.opening import session
from quacklake.sql.session import Session

__all__ = ["Result", "Session", "session"]
