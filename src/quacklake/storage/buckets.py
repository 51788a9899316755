"""The buckets of stores: if a bucket is missing, its files are not damaged.

A store answers the same for a missing file and for a missing bucket, a status without a text. So when a file is
missing, its bucket is looked up. Errors of DuckDB, of any connection, name files by URLs: ``problem_of`` finds the
store by these.
"""

from __future__ import annotations

import re
import threading
import time
import weakref

import pyarrow as pa
from pyarrow import fs

from quacklake.errors import StorageError
from quacklake.storage.roots import Root

_SEEN_SECONDS = 10.0
"""For how long a bucket that was there is not asked for again: many files may be missing."""

_BUCKET_URL = re.compile(r"\b[a-z0-9]+://[^/\s'\"]+/")
_open: weakref.WeakSet[Bucket] = weakref.WeakSet()
_lock = threading.Lock()


class Bucket:
    """The bucket, or container, of a store; a local folder has none."""

    def __init__(self, root: Root) -> None:
        self.bucket = None if root.scheme == "file" else root.prefix.partition("/")[0]
        self.url = "" if self.bucket is None else root.url[: root.url.index("/", len(root.scheme) + 3) + 1]
        self._filesystem = root.filesystem
        self._seen = -_SEEN_SECONDS
        if self.bucket is not None:
            with _lock:
                _open.add(self)

    def problem(self) -> StorageError | None:
        """Return the error to raise if the bucket is missing; None if it is there, or this cannot be told."""
        if self.bucket is None or time.monotonic() - self._seen < _SEEN_SECONDS:
            return None
        try:
            type_ = self._filesystem.get_file_info(self.bucket).type
        except (OSError, pa.ArrowException):
            return None  # without the right to look, or without an answer, the first error stands
        if type_ == fs.FileType.NotFound:
            return StorageError(
                f"there is no bucket {self.bucket}",
                hint="create it, or check the data path, the endpoint and the keys: it may belong to another account",
            )
        self._seen = time.monotonic()
        return None


def problem_of(text: str) -> StorageError | None:
    """Return the error to raise if the bucket of a file that a text names is missing, and a store here is in it."""
    urls = set(_BUCKET_URL.findall(text))
    with _lock:
        places = [place for place in _open if place.url in urls]
    problems = [place.problem() for place in places]
    # two buckets of one name are at two endpoints
    return problems[0] if problems and all(problems) else None
