"""SQL where a lake is at hand."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from quacklake import forks
from quacklake.sql.result import Result

__all__ = ["SpeaksSql"]


class _Lock:
    """Held while the first session of a lake is made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        forks.watch(self, forks.new_lock)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


_LOCK = _Lock()


class SpeaksSql:
    """Lets a lake, a past snapshot or an open transaction run statements, with itself as the default catalog."""

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Result:
        """Run one or several statements; returns what the last one gave.

        ``params`` are values for ``?`` and ``$1`` (a list) or ``$name`` (a dictionary). Tables are named ``table`` or
        ``schema.table``. Each thread has a session of its own, which lasts: ``BEGIN`` holds until ``COMMIT``.
        Raises ``SqlError``, or what the operation itself raises.
        """
        result: Result = self._session()._from(text, params)
        return result

    def _session(self) -> Any:
        """The session of this thread; those of a lake's threads share one DuckDB."""
        if self.__dict__.setdefault("_process", os.getpid()) != os.getpid():
            # the sessions of the parent, whose threads do not exist here
            forks.abandon((self.__dict__.pop("_root", None), self.__dict__.pop("_local", None)))
            self.__dict__["_process"] = os.getpid()
        local = self.__dict__.setdefault("_local", threading.local())
        if not hasattr(local, "session"):
            with _LOCK:
                root = self.__dict__.get("_root")
                if root is None:
                    # the layer above: a lake is whole without it
                    root = importlib.import_module("quacklake.sql.opening").session_of(self)
                    self.__dict__["_root"] = root
                    local.session = root
                else:
                    local.session = root.cursor()
        return local.session

    def _end_session(self) -> None:
        root = self.__dict__.pop("_root", None)
        self.__dict__.pop("_local", None)
        if root is not None:
            root.close()
            root.attachments.close()
