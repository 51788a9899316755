"""A TCP proxy before a database that loses the answer to a commit, the commit itself, or another message of it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

__all__ = ["Proxy"]

#: COMMIT on the wire, as PostgreSQL (a simple query) and MySQL (a command) both send it.
_COMMIT = b"COMMIT"


class Proxy:
    """Passes bytes on until ``lose`` has said what is to happen to the next COMMIT.

    ``request``: it never reaches the database. ``answer``: the database commits, the client does not hear of it.
    ``late``: the client's connection breaks at once, the COMMIT arrives at the database some time afterwards.
    ``all``: like ``answer``, and nobody can connect any more.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._how: str | None = None
        self._before: int | None = None
        self._refuse = False
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.losses = 0
        self._spawn(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    def lose(self, how: str, message: int | None = None) -> None:
        """Decide the fate of the next COMMIT, or of the ``message``-th that comes from now on, whatever it says."""
        self._before = None if message is None else message - 1
        self._how = how

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._refuse:
                client.close()
                continue
            database = socket.create_connection(self._target)
            self._sockets += [client, database]
            self._spawn(self._upwards, client, database)
            self._spawn(self._downwards, client, database)

    def _upwards(self, client: socket.socket, database: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self._how is not None and self._is_due(data):
                    how, self._how = self._how, None
                    self.losses += 1
                    self._refuse = how == "all"
                    _break(client)
                    if how == "late":
                        time.sleep(0.7)
                    if how != "request":
                        database.sendall(data)
                        # the database has answered when it has closed the connection that sends no more
                        database.shutdown(socket.SHUT_WR)
                        return
                    break
                database.sendall(data)
        _break(database)

    def _is_due(self, data: bytes) -> bool:
        if self._before is None:
            return _COMMIT in data
        self._before -= 1
        return self._before < 0

    def _downwards(self, client: socket.socket, database: socket.socket) -> None:
        with suppress(OSError):
            while data := database.recv(65536):
                with suppress(OSError):
                    client.sendall(data)
        _break(client)


def _break(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
