"""Names of the columns that a change feed has in Spark beside those of its table."""

from __future__ import annotations

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
FEED_NAMES = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""The columns that a stream of changes has beside those of its table."""
