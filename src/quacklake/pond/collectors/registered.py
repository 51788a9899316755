"""Every collector that comes with a pond. Importing this module registers them."""

from quacklake.pond.collectors import inbox, listener, logfiles, nats

__all__ = ["inbox", "listener", "logfiles", "nats"]
