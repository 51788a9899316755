"""The part of ``quacklake serve`` that Ekko brings: its endpoints."""

from __future__ import annotations

from quacklake.service.plugins import ServicePlugin
from quacklake_ekko.routes import router

__all__ = ["SERVICE"]

SERVICE = ServicePlugin(name="ekko", routers=(router,), prefix="/api")
