"""SQL where a lake is at hand."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from quacklake.lake.result import Result

__all__ = ["SpeaksSql"]


class SpeaksSql:
    """Lets a lake, a past snapshot or an open transaction run statements, with itself as the default catalog."""

    _sessions: threading.local

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Result:
        """Run one or several statements; returns what the last one gave.

        ``params`` are values for ``?`` and ``$1`` (a list) or ``$name`` (a dictionary). Tables are named ``table`` or
        ``schema.table``. Each thread has a session of its own, which lasts: ``BEGIN`` holds until ``COMMIT``.
        Raises ``SqlError``, or what the operation itself raises.
        """
        result: Result = self._session()._from(text, params)
        return result

    def _session(self) -> Any:
        sessions = self.__dict__.setdefault("_sessions", threading.local())
        found = getattr(sessions, "session", None)
        if found is None:
            # the layer above: a lake is whole without it
            found = sessions.session = importlib.import_module("quacklake.sql.session").session_of(self)
        return found

    def _end_session(self) -> None:
        found = getattr(self.__dict__.get("_sessions"), "session", None)
        if found is not None:
            found.close()
            self.__dict__.pop("_sessions")
