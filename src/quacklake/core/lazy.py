"""Packages whose names are loaded when they are first used: who needs a part of one loads that part."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package; ``homes`` has the modules, and the names that come from each."""
    known = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in known:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(known[name]), name)
        # a package of that name may have come with its module, and is what everybody finds from now on
        return vars(sys.modules[package]).setdefault(name, found)

    return get


_provided: dict[str, str] = {}


def provide(name: str, module: str) -> None:
    """Say which module has the function of a name that lower layers call without knowing it.

    Only the face of the project does so: it is above all layers.
    """
    _provided[name] = module


def provided(name: str) -> Callable[..., Any]:
    """Return the function that ``provide`` has announced under a name."""
    function: Callable[..., Any] = getattr(importlib.import_module(_provided[name]), name)
    return function
