"""Turning what the operating system and the object stores report into Quacklake's own errors.

The exception class and ``errno`` decide. Arrow's object-store clients report neither, only a text with the error code
of the service. Since a store answers the same for a missing file and a missing bucket, the bucket is looked up. Errors
of DuckDB name files by URLs: ``problem_of`` finds the store by these.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
import weakref

import pyarrow as pa
from pyarrow import fs

from quacklake.config import redact
from quacklake.core.storage.roots import Root
from quacklake.errors import CorruptFileError, QuacklakeError, StorageError, StorageUnavailableError

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
        """Return the error to raise if the bucket is missing; None if it exists, or nobody knows."""
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


_CODES = {
    "transient": frozenset({
        errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTDOWN,
        errno.EHOSTUNREACH, errno.EINTR, errno.EIO, errno.EMFILE, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH,
        errno.ENFILE, errno.EPIPE, errno.ESTALE, errno.ETIMEDOUT,
    }),
    "denied": frozenset({errno.EACCES, errno.EPERM, errno.EROFS}),
    "full": frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG}),
}  # fmt: skip
_STATUS = {
    **dict.fromkeys(("408", "429", "500", "502", "503", "504"), "transient"),
    **dict.fromkeys(("401", "403"), "denied"),
}
# "AWS Error SLOW_DOWN during …", "AWS Error UNKNOWN (HTTP status 503) during …"
_AWS = re.compile(r"AWS Error (?P<code>[A-Z_]+|\[code \d+\])(?: \(HTTP status (?P<status>\d{3})\))? during ")
_AWS_CODES = {
    **dict.fromkeys((
        "INTERNAL_FAILURE", "NETWORK_CONNECTION", "REQUEST_EXPIRED", "REQUEST_TIMEOUT", "REQUEST_TIME_TOO_SKEWED",
        "SERVICE_UNAVAILABLE", "SLOW_DOWN", "THROTTLING",
    ), "transient"),
    **dict.fromkeys((
        "ACCESS_DENIED", "INCOMPLETE_SIGNATURE", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID",
        "INVALID_SIGNATURE", "MISSING_AUTHENTICATION_TOKEN", "SIGNATURE_DOES_NOT_MATCH", "UNRECOGNIZED_CLIENT",
    ), "denied"),
    "NO_SUCH_BUCKET": "nowhere",
}  # fmt: skip
# "google::cloud::Status(UNAVAILABLE: …"
_GCS = re.compile(r"google::cloud::Status\((?P<code>[A-Z_]+)")
_GCS_CODES = {
    **dict.fromkeys(("ABORTED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE"), "transient"),
    **dict.fromkeys(("PERMISSION_DENIED", "UNAUTHENTICATED"), "denied"),
}
# "Azure Error: [ServerBusy] 503 …"
_AZURE = re.compile(r"Azure Error: \[[^\]]*\] (?P<status>\d{3})")
# DuckDB: "Could not connect to server error for HTTP GET to 'http://…'", "… Service Unavailable (HTTP code 503)"
_NO_ANSWER = re.compile(r" error for HTTP [A-Z]+ to ")
_HTTP = re.compile(r"\(HTTP (?:code )?(?P<status>\d{3})")
#: DuckDB, of a file that a file system of Arrow does not find.
_NO_FILES = "No files found that match the pattern"

#: Each kind of failure: the error, its message, and what to do.
_OUTAGES: dict[str, tuple[type[StorageError], str, str]] = {
    "transient": (
        StorageUnavailableError,
        "storage did not answer",
        "check the network and the service, then try again",
    ),
    "denied": (StorageError, "no permission", "check the credentials and the rights on the data path"),
    "full": (StorageError, "no space left", "free some space on the data path"),
    "nowhere": (StorageError, "there is no such bucket", "make it, or check the data path, the endpoint and the keys"),
}


def explain(error: BaseException, what: str, *, secrets: tuple[str, ...] = ()) -> QuacklakeError | None:
    """Return the error to raise instead of ``error``, which stopped the work on the file ``what``, without a secret.

    A missing file is a ``CorruptFileError`` (files of a lake never disappear while they are listed), what a retry may
    cure a ``StorageUnavailableError``, the rest a ``StorageError``. None when ``error`` is not about storage.
    """
    if isinstance(error, QuacklakeError):
        return error
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return CorruptFileError(
            f"data file {what} is missing",
            hint="it was removed outside Quacklake, or its snapshot was expired and cleaned up while this one read it",
        )
    if not isinstance(error, OSError | pa.ArrowException):
        return None
    detail = str(error)
    for secret in secrets:
        detail = detail.replace(secret, "***")
    detail = redact(detail)
    kind = _kind(error)
    if kind in _OUTAGES:
        failure, words, hint = _OUTAGES[kind]
        return failure(f"{words} for {what}: {detail}", hint=hint)
    return StorageError(f"storage failed on {what}: {detail}")


def outage_of(text: str, doing: str) -> StorageError | None:
    """Return the error that a message of DuckDB about the whole store means; None for one about anything else."""
    kind = kind_of_message(text)
    if kind == "missing":
        return problem_of(text)
    if kind not in _OUTAGES:
        return None
    failure, words, hint = _OUTAGES[kind]
    return failure(f"cannot {doing}, {words}: {text}", hint=hint)


def _kind(error: BaseException) -> str:
    """Return one of the outages, or ``other``."""
    if isinstance(error, ConnectionError | TimeoutError | InterruptedError):
        return "transient"
    code = getattr(error, "errno", None)
    if code is None:
        return _kind_of_service(str(error))
    return next((kind for kind, codes in _CODES.items() if code in codes), "other")


def kind_of_message(text: str) -> str:
    """Return what DuckDB's words say of storage: one of the outages, ``missing`` for a file, or ``other``."""
    if _NO_ANSWER.search(text):
        return "transient"
    if http := _HTTP.search(text):
        return "missing" if http["status"] == "404" else _STATUS.get(http["status"], "other")
    for kind, codes in _CODES.items():
        if any(os.strerror(code) in text for code in codes):
            return kind
    if os.strerror(errno.ENOENT) in text or _NO_FILES in text:
        return "missing"
    return _kind_of_service(text)


def _kind_of_service(text: str) -> str:
    if aws := _AWS.search(text):
        known = _AWS_CODES.get(aws["code"])
        status = _STATUS.get(aws["status"], "other")
        return "transient" if "transient" in (known, status) else known or status
    if gcs := _GCS.search(text):
        return _GCS_CODES.get(gcs["code"], "other")
    azure = _AZURE.search(text)
    return _STATUS.get(azure["status"], "other") if azure else "other"
