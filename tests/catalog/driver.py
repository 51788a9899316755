"""Record the statements that reach the driver of PostgreSQL, through SQLAlchemy or around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["watch_driver"]


def watch_driver(monkeypatch: pytest.MonkeyPatch, note: Callable[[str, Any], object]) -> None:
    """Have every statement noted, with its parameters."""
    import psycopg

    def watch(name: str) -> None:
        real = getattr(psycopg.Cursor, name)

        def noted(self: Any, statement: Any, params: Any = None, **options: Any) -> Any:
            note(str(statement), params)
            return real(self, statement, params, **options)

        monkeypatch.setattr(psycopg.Cursor, name, noted)

    watch("execute")
    watch("copy")
