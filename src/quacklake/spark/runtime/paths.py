"""Names of files of a store in Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote as percent_encode

_GLOB = re.compile(r"([\[\]{}*?\\])")
_LEGAL = "/_-!.~'()*,;:$&+=@"  # characters that Java keeps in the path of a URI
_SCHEMES = {"s3://": "s3a://", "gcs://": "gs://"}


def spark_path(url: str) -> str:
    """Return the path for Spark to read an absolute local path or a URL of the store. It is never a pattern."""
    return _GLOB.sub(r"\\\1", spark_uri(url))


def spark_paths(urls: Iterable[str]) -> list[str]:
    return [spark_path(url) for url in urls]


def spark_uri(url: str) -> str:
    """Return the URI for Spark to write to an absolute local path or a URL of the store."""
    if "://" not in url:
        return f"file://{url}"
    for ours, theirs in _SCHEMES.items():
        if url.startswith(ours):
            return theirs + url.removeprefix(ours)
    return url


def file_path(url: str) -> str:
    """Return ``_metadata.file_path`` of a file. Local files have a single slash after the scheme."""
    return _encoded(spark_uri(url).replace("file:///", "file:/", 1))


def _encoded(text: str) -> str:
    return "".join(char if ord(char) > 127 else percent_encode(char, safe=_LEGAL) for char in text)
