"""A pond: time series, tables and files as a tree, in a lake. ``Pond`` is the entry point."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quacklake.pond.fs import FS, WD, NodePath
    from quacklake.pond.inputs import ImportOptions
    from quacklake.pond.nodes import EntryType, Node
    from quacklake.pond.pond import Pond

__all__ = ["FS", "WD", "EntryType", "ImportOptions", "Node", "NodePath", "Pond"]

_MODULES = {"FS": "fs", "WD": "fs", "NodePath": "fs", "ImportOptions": "inputs", "EntryType": "nodes", "Node": "nodes"}


def __getattr__(name: str) -> object:
    """Load the module of a name when it is first used: most commands need few of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'pond')}"), name)
