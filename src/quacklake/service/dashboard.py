"""The dashboard: the files of a web page, which ``make web`` makes from the folder ``web`` of the project.

The page asks the API of the service by relative addresses, so that it works under any prefix, also one that a proxy
takes away. What a person looks at is in the fragment of the address, which browsers do not send.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from quacklake.service.plugins import FILES, ServicePlugin

__all__ = ["FOLDER", "WebFile", "dashboard_router", "web_files"]

FOLDER = Path(__file__).with_name("web")
_INDEX = "index.html"
_KEPT = "assets/"
"""Names of files in this folder contain a hash of their content."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file as it is sent."""

    content: bytes
    packed: bytes
    media_type: str
    tag: str


@cache
def web_files(folder: Path = FOLDER) -> Mapping[str, WebFile]:
    """Return the files of a folder by their paths in it: those of the dashboard, or of a plugin."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _file(path) for path in paths}


def _file(path: Path) -> WebFile:
    content = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return WebFile(content, gzip.compress(content, mtime=0), kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"')


def dashboard_router(prefix: str, plugins: Sequence[ServicePlugin] = ()) -> APIRouter:
    """Return the routes of the dashboard, which is at ``/ui/`` after the prefix of the service."""
    router = APIRouter(include_in_schema=False)
    folders = {f"{FILES}{plugin.name}/": plugin.folder for plugin in plugins if plugin.folder is not None}

    def find(path: str) -> WebFile | None:
        for start, folder in folders.items():
            if path.startswith(start):
                return web_files(folder).get(path.removeprefix(start))
        return web_files().get(path or _INDEX)

    async def entrance(request: Request) -> Response:
        """Lead to the dashboard, by an address relative to the one that was asked for."""
        last = request.url.path.rpartition("/")[2]
        return _elsewhere("ui/" if last in ("", "ui") else f"{last}/ui/")

    for path in dict.fromkeys((prefix, f"{prefix}/", f"{prefix}/ui")):
        if path:
            router.add_api_route(path, entrance, methods=["GET", "HEAD"])

    @router.api_route(prefix + "/ui/{path:path}", methods=["GET", "HEAD"])
    async def file(request: Request, path: str) -> Response:
        """Answer with a file; any other address leads to the page, which has only one."""
        found = find(path)
        if found is not None:
            return _answer(request, path, found)
        if path.startswith((_KEPT, FILES)) or _INDEX not in web_files():
            raise HTTPException(404, "there is no such file of the dashboard")
        return _elsewhere("../" * path.count("/") or "./")

    return router


def _elsewhere(address: str) -> Response:
    return Response(status_code=307, headers={"Location": address, "Cache-Control": "no-cache"})


def _answer(request: Request, path: str, file: WebFile) -> Response:
    headers = {
        "ETag": file.tag,
        "Vary": "Accept-Encoding",
        "Cache-Control": "public, max-age=31536000, immutable" if path.startswith(_KEPT) else "no-cache",
        "Content-Security-Policy": _POLICY,
    }
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    content = file.content
    if "gzip" in request.headers.get("accept-encoding", "") and len(file.packed) < len(content):
        content = file.packed
        headers["Content-Encoding"] = "gzip"
    return Response(content, headers=headers, media_type=file.media_type)
