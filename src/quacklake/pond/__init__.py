"""A pond: time series, tables and files as a tree, in a lake. ``Pond`` is the entry point."""

from typing import TYPE_CHECKING

from quacklake.core.lazy import lazily

if TYPE_CHECKING:
    from quacklake.pond.fs import FS, WD, NodePath
    from quacklake.pond.inputs import ImportOptions
    from quacklake.pond.nodes import EntryType, Node
    from quacklake.pond.pond import Pond
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.pond.fs": "FS WD NodePath",
            "quacklake.pond.inputs": "ImportOptions",
            "quacklake.pond.nodes": "EntryType Node",
            "quacklake.pond.pond": "Pond",
        },
    )

__all__ = ["FS", "WD", "EntryType", "ImportOptions", "Node", "NodePath", "Pond"]
