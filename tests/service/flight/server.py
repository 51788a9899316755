"""A Flight server in a process of its own, to be killed: it says where it listens; ``QUACKLAKE_FAULT`` ends it."""

from __future__ import annotations

import signal
import sys
import threading

import quacklake
from quacklake.service.flight import FlightService
from quacklake.service.identity import Role, TokenGate


def main(url: str) -> None:
    """Serve a lake until somebody ends the process."""
    with quacklake.connect(url) as lake:
        service = FlightService(TokenGate(lake, {"writer-1": Role.WRITER})).serve()
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=service.shutdown).start())
        print(service.location, flush=True)
        service.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
