"""A gate before an S3 server without keys that lets each access key into one bucket only, as a real one does."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["S3Gate"]

_REFUSAL = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
_OWN = ("connection", "transfer-encoding", "content-length")


class S3Gate:
    """A server that passes requests on to another if the bucket is that of the access key they are signed with."""

    def __init__(self, behind: tuple[str, int], keys: dict[str, str]) -> None:
        self.keys = keys
        """The bucket of each access key."""
        self.passed: set[tuple[str, str]] = set()
        """Access keys, each with a bucket that it was used for."""
        self.refused: set[tuple[str, str]] = set()
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self._body()
                key = self.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
                bucket = self.path.lstrip("/").partition("/")[0].partition("?")[0]
                if gate.keys.get(key) != bucket:
                    gate.refused.add((key, bucket))
                    self._answer(403, {"Content-Type": "application/xml"}, _REFUSAL)
                    return
                gate.passed.add((key, bucket))
                server = http.client.HTTPConnection(*behind, timeout=30)
                kept = {name: value for name, value in self.headers.items() if name.lower() not in (*_OWN, "expect")}
                server.request(self.command, self.path, body=body, headers=kept)
                found = server.getresponse()
                self._answer(found.status, dict(found.getheaders()), found.read(), found.getheader("Content-Length"))
                server.close()

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = []
                while size := int(self.rfile.readline().partition(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass
                return b"".join(parts)

            def _answer(self, status: int, headers: dict[str, str], body: bytes, length: str | None = None) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in _OWN:
                        self.send_header(name, value)
                self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

            def log_message(self, *words: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def address(self) -> str:
        """The URL of the gate."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> S3Gate:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
