"""Every collector that comes with a pond. Importing this module registers them."""

from quacklake.pond.collectors import hydrovu, inbox, laketech, listener, logfiles, nats

__all__ = ["hydrovu", "inbox", "laketech", "listener", "logfiles", "nats"]
