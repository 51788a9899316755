"""A pond: time series, tables and files as a tree, in a lake. ``Pond`` is the entry point."""

from quacklake.pond.fs import FS, WD, NodePath
from quacklake.pond.inputs import ImportOptions
from quacklake.pond.nodes import EntryType, Node
from quacklake.pond.pond import Pond

__all__ = ["FS", "WD", "EntryType", "ImportOptions", "Node", "NodePath", "Pond"]
