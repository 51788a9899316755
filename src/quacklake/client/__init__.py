"""Use a lake that a service has: ``quacklake.connect("http://…", token=…)``."""

from quacklake.client.lake import RemoteLake, RemoteLakeAt, connect_service
from quacklake.client.table import RemoteTable

__all__ = ["RemoteLake", "RemoteLakeAt", "RemoteTable", "connect_service"]
