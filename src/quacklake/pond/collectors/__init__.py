"""Collectors: what writes series of a pond from other systems. ``collectors.registered`` registers them."""

from typing import TYPE_CHECKING

from quacklake.core.lazy import lazily

if TYPE_CHECKING:
    from quacklake.pond.collectors.base import Failure, Report, Run, Runnable
else:
    __getattr__ = lazily(__name__, {"quacklake.pond.collectors.base": "Failure Report Run Runnable"})

__all__ = ["Failure", "Report", "Run", "Runnable"]
