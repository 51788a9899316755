"""Collectors: what writes series of a pond from other systems. ``collectors.registered`` registers them."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quacklake.pond.collectors.base import Failure, Report, Run, Runnable

__all__ = ["Failure", "Report", "Run", "Runnable"]


def __getattr__(name: str) -> object:
    """Load the module of these names when one is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.base"), name)
