"""The Flight server itself: each call enters, is answered, and fails as Flight tells errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from quacklake.errors import ConfigError, UnsupportedFeatureError
from quacklake.service.appends import GroupCommits
from quacklake.service.flight.callers import MIDDLEWARE, Entrance, Handshake, SessionOptions, caller_of
from quacklake.service.flight.failures import answering
from quacklake.service.flight.handlers import ACTIONS, Handlers
from quacklake.service.flight.settings import FlightSettings
from quacklake.service.flight.streams import sent
from quacklake.service.identity import Gate
from quacklake.service.settings import ServiceSettings


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """The calls of Flight, as Arrow makes them."""

    def __init__(self, handlers: Handlers, entrance: Entrance, settings: FlightSettings) -> None:
        self.handlers = handlers
        is_secure = settings.certificate is not None and settings.key is not None
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        super().__init__(
            f"{'grpc+tls' if is_secure else 'grpc'}://{host}:{settings.port}",
            auth_handler=Handshake(),
            tls_certificates=_certificates(settings),
            middleware={MIDDLEWARE: entrance},
        )

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """List the tables, of the schema that the criteria name."""
        with answering():
            yield from self.handlers.listing(caller_of(context), criteria)

    def get_flight_info(self, context: Any, descriptor: Any) -> flight.FlightInfo:
        """Return the endpoints of a table, or run a statement."""
        with answering():
            return self.handlers.info(caller_of(context), context, descriptor)

    def get_schema(self, context: Any, descriptor: Any) -> flight.SchemaResult:
        """Return the columns of a table or statement."""
        with answering():
            return flight.SchemaResult(self.handlers.schema(caller_of(context), context, descriptor))

    def do_get(self, context: Any, ticket: Any) -> flight.FlightDataStream:
        """Send the rows of a ticket."""
        with answering():
            stream = self.handlers.rows(caller_of(context), context, ticket.ticket)
            return sent(stream, self.handlers.watch, context)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take rows or parameters of a client."""
        with answering():
            answer = self.handlers.put(caller_of(context), context, descriptor, reader)
            if answer is not None:
                writer.write(pa.py_buffer(answer))

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Refuse: no exchange is offered."""
        with answering():
            caller_of(context)
            raise UnsupportedFeatureError("do_exchange is not answered here")

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """Run an action."""
        with answering():
            body = b"" if action.body is None else action.body.to_pybytes()
            return iter(self.handlers.act(caller_of(context), context, action.type, body))

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """List the actions."""
        with answering():
            caller_of(context)
            return [(name, about) for name, (_, _, _, about) in ACTIONS.items()]


def _certificates(settings: FlightSettings) -> list[tuple[bytes, bytes]] | None:
    if settings.certificate is None or settings.key is None:
        return None
    try:
        return [(settings.certificate.read_bytes(), settings.key.read_bytes())]
    except OSError as error:
        raise ConfigError(f"the certificate of the Flight server cannot be read: {error.strerror}") from None


class FlightService:
    """A Flight server in threads of its own: ``serve()`` starts it, ``shutdown()`` ends it; also a context manager."""

    def __init__(
        self, gate: Gate, settings: FlightSettings | None = None, *, commits: GroupCommits | None = None
    ) -> None:
        """``commits`` are those of a service over HTTP, which also closes them: both then commit together."""
        self.settings = FlightSettings() if settings is None else settings
        kept = ServiceSettings(keep_keys=max(self.settings.key_seconds, 1))
        self._closes = commits is None
        self._options = SessionOptions(self.settings.max_sessions)
        self._entrance = Entrance(gate, self._options)
        self.handlers = Handlers(self.settings, self._options, commits or GroupCommits(kept))
        self._server: FlightServer | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def serve(self) -> FlightService:
        """Start to listen, and return. Raise ``ConfigError`` when that is not possible."""
        with self._lock:
            if self._server is None:
                try:
                    self._server = FlightServer(self.handlers, self._entrance, self.settings)
                except (pa.ArrowException, OSError):
                    where = f"{self.settings.host}:{self.settings.port}"
                    raise ConfigError(
                        f"the Flight server cannot listen on {where}", hint="is the port taken?"
                    ) from None
                self.handlers.watch.start()
        return self

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return 0 if self._server is None else int(self._server.port)

    @property
    def location(self) -> str:
        """The address for clients."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{'grpc' if self.settings.certificate is None else 'grpc+tls'}://{host}:{self.port}"

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has been shut down; return False after the timeout."""
        return self._ended.wait(timeout)

    def shutdown(self) -> bool:
        """End the server: calls have some seconds to end, then their work is stopped.

        Returns False when a client still held a call open after that, which ends with the process.
        """
        with self._lock:
            server, self._server = self._server, None
        if server is None:
            return True
        grace = self.settings.grace_seconds
        ending = threading.Thread(target=server.shutdown, name="quacklake-flight-end", daemon=True)
        ending.start()
        ending.join(grace)
        if ending.is_alive():
            end = time.monotonic() + grace
            while ending.is_alive() and time.monotonic() < end:
                self.handlers.watch.interrupt_all()
                ending.join(0.05)
        if self._closes:
            self.handlers.commits.close()
        self.handlers.close()
        self._ended.set()
        return not ending.is_alive()

    def __enter__(self) -> FlightService:
        return self.serve()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
