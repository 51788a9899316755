"""Collectors: what writes series of a pond from other systems. Importing this package registers them."""

from quacklake.pond.collectors import hydrovu, inbox, laketech, listener, logfiles, nats
from quacklake.pond.collectors.base import Failure, Report, Run, Runnable

__all__ = [
    "Failure",
    "Report",
    "Run",
    "Runnable",
    "hydrovu",
    "inbox",
    "laketech",
    "listener",
    "logfiles",
    "nats",
]
