"""SQLAlchemy's own suite for dialects."""

from sqlalchemy.testing.suite import *  # noqa: F403
