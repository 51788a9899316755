"""The part of ``quacklake serve`` that Ekko brings: its endpoints, and a page of the dashboard."""

from __future__ import annotations

from pathlib import Path

from quacklake.service.plugins import Page, ServicePlugin
from quacklake_ekko.routes import router
from quacklake_ekko.table import TABLE

__all__ = ["SERVICE"]

SERVICE = ServicePlugin(
    name="ekko",
    routers=(router,),
    prefix="/api",
    pages=(
        Page(
            id="transactions",
            title="Transactions",
            module="page.js",
            style="page.css",
            icon="M4 8h12m-3-3 3 3-3 3M20 16H8m3-3-3 3 3 3",
            table=TABLE,
        ),
    ),
    folder=Path(__file__).with_name("web"),
)
"""The page is built from ``apps/ekko/web`` by ``make web``."""
