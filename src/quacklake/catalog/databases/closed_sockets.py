"""Connections that their server closed while they waited in the pool: replaced as they are taken out of it.

A server that was restarted, or that ends idle sessions, says so at once on the socket. To look there costs no message,
unlike a question to the server before each use.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

__all__ = ["replace_closed"]

#: The other side has closed. What is there to read says nothing: a server may send notices.
_CLOSED = getattr(select, "POLLRDHUP", 0)


def replace_closed(engine: Engine, socket_of: Callable[[Any], int]) -> None:
    """Let no pooled connection of an engine be used whose socket was closed; ``socket_of`` gives its number."""

    @sa.event.listens_for(engine, "checkout")
    def check(driver: Any, record: object, fairy: object) -> None:
        if _is_closed(driver, socket_of):
            raise sa.exc.DisconnectionError("the server has closed the connection")


def _is_closed(driver: Any, socket_of: Callable[[Any], int]) -> bool:
    try:
        number = socket_of(driver)
    except Exception:
        return True  # the driver knows already
    watch = select.poll()
    watch.register(number, _CLOSED)
    return bool(watch.poll(0))
