"""What the rows of a change feed are called in Spark, beside the columns of their table."""

from __future__ import annotations

__all__ = ["CHANGE_TYPE", "COMMIT_TIMESTAMP", "COMMIT_VERSION", "FEED_NAMES"]

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
FEED_NAMES = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""What a stream of changes has beside the columns of its table."""
