"""Renew in a forked child process what it must not share: connections, threads and locks.

A shared connection hangs both; the threads of the parent do not exist in the child, nor give back their locks there.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_watched: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def watch(thing: T, renew: Callable[[T], None]) -> None:
    """Call ``renew`` with a thing in every child process that is forked as long as there is the thing."""
    _watched[thing] = renew


def new_lock(thing: Any) -> None:
    """Give a thing another ``_lock``."""
    thing._lock = threading.Lock()


def abandon(thing: object) -> None:
    """Keep something of the parent from ever being closed in the child: that could end what the parent does with it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _renew() -> None:
    for thing, renew in list(_watched.items()):
        renew(thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
