"""SQL over lakes: sessions and the statements they run."""

from quacklake.lake.result import Result
from quacklake.sql.opening import session
from quacklake.sql.safety import Safety
from quacklake.sql.session import Session

__all__ = ["Result", "Safety", "Session", "session"]
