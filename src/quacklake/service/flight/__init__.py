"""Serve lakes by Arrow Flight and Flight SQL."""

from quacklake.service.flight.service import FlightService
from quacklake.service.flight.settings import FlightSettings

__all__ = ["FlightService", "FlightSettings"]
