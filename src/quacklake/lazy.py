"""Packages whose names are loaded when they are first used: who needs a part of one loads that part."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


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
