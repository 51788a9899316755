"""Serve the folder of a site on this machine, to look at it. Any web server can do the same."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from quacklake.errors import InputError


class _QuietFileHandler(SimpleHTTPRequestHandler):
    """Sends files, and says nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def list_directory(self, path: object) -> None:
        """Send no list of files."""
        self.send_error(404)

    def end_headers(self) -> None:
        """Let browsers ask each time whether a file has changed: a site is often exported again."""
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()


def server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of a folder, for this machine alone; port 0 is any that is free. Raise ``InputError``."""
    if not (folder / "index.html").is_file():
        raise InputError(f"{folder} has no index.html", hint="write the site first: pond export --site NAME --dir DIR")
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_QuietFileHandler, directory=str(folder)))
    except OSError as error:
        raise InputError(
            f"the port {port} cannot be used: {error.strerror}", hint="choose another with --port"
        ) from None
