"""Packages whose names are loaded when they are first used: who needs a part of one loads that part."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar


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


_homes: dict[str, str] = {}

P = ParamSpec("P")
T = TypeVar("T")


def provide(name: str, module: str) -> None:
    """Name the module of a function that lower layers have declared with ``provided``.

    Only the face of the project does so: it is above all layers.
    """
    _homes[name] = module


def provided(declared: Callable[P, T]) -> Callable[P, T]:
    """Declare a function of a package above: its name, its parameters and its contract, without a body.

    A call runs the function of that name in the module that ``provide`` names, which is loaded then.

    >>> @provided
    ... def sqrt(number: float) -> float:
    ...     raise NotImplementedError
    >>> provide("sqrt", "math")
    >>> sqrt(9)
    3.0
    """
    name = declared.__name__

    @functools.wraps(declared)
    def call(*args: P.args, **options: P.kwargs) -> T:
        function: Callable[P, T] = getattr(importlib.import_module(_homes[name]), name)
        return function(*args, **options)

    return call
