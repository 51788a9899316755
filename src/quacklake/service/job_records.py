"""Jobs in the catalog, so that every process of a service shows the jobs of all.

A job is a mark in the lake, with its state and the end of its process's lease by the clock of the database. The process
keeps the lease while the job runs: a job whose lease has ended was lost with its process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quacklake.extend.marks import Mark, open_marks
from quacklake.service.problems import TooBusyError

if TYPE_CHECKING:
    from quacklake.lake import Lake

__all__ = ["ENDED", "JobRecords"]

ENDED = ("done", "failed", "cancelled")
_KIND = "job"
_DIGITS = 40
_MAX_LENGTH = 1 << 18
"""Characters of a record; a longer result is only shown by the process that has it."""
_LOST = {
    "code": "lost",
    "detail": "the process that ran the job has ended",
    "hint": "look at what it has done, and start it again",
}


@dataclass(frozen=True, slots=True)
class JobRecords:
    """The jobs of a principal on a lake. A job is a mapping with an ``id`` and a ``state``."""

    lake: Lake
    principal: str

    def add(self, job: Mapping[str, Any], holder: str, seconds: float, most: int) -> None:
        """Write a new job; the oldest that have ended make room. Raise ``TooBusyError`` when none of ``most`` has.

        Raise ``ReadOnlyError`` for a lake that cannot keep jobs.
        """
        with open_marks(self.lake, _KIND, change=True) as marks:
            now, known = marks.now, marks.list(self._prefix)
            ended = [mark for mark in known if _describe_job(mark, now)["state"] in ENDED]
            surplus = len(known) - most + 1
            if surplus > len(ended):
                raise TooBusyError("too many jobs wait")
            for mark in ended[: max(surplus, 0)]:
                marks.remove(mark.name)
            marks.put(self._mark(job, holder, now, seconds))

    def save(self, job: Mapping[str, Any], holder: str, seconds: float) -> bool:
        """Write the state of a job, and keep it for some more seconds; return whether a process asks it to end."""
        with open_marks(self.lake, _KIND, change=True) as marks:
            known = marks.find(self._prefix + job["id"])
            asked = known is not None and job["state"] not in ENDED and bool(_job(known)["cancelling"])
            mark = self._mark({**job, "cancelling": job["cancelling"] or asked}, holder, marks.now, seconds)
            marks.put(mark, new=known is None)
        return asked

    def cancel(self, id_: str) -> dict[str, Any] | None:
        """Ask the process that runs a job to end it, and return the job; None when there is none with this id."""
        with open_marks(self.lake, _KIND, change=True) as marks:
            now, mark = marks.now, marks.find(self._prefix + id_)
            if mark is None or _describe_job(mark, now)["state"] in ENDED:
                return None if mark is None else _describe_job(mark, now)
            found = json.loads(mark.position or "{}")
            found["job"]["cancelling"] = True
            asked = replace(mark, position=json.dumps(found))
            marks.put(asked, new=False)
        return _describe_job(asked, now)

    def all(self) -> list[dict[str, Any]]:
        """Return the jobs of all processes, newest first."""
        with open_marks(self.lake, _KIND) as marks:
            now, known = marks.now, marks.list(self._prefix)
        return [_describe_job(mark, now) for mark in reversed(known)]

    def find(self, id_: str) -> dict[str, Any] | None:
        """Return a job; None when there is none with this id."""
        with open_marks(self.lake, _KIND) as marks:
            now, mark = marks.now, marks.find(self._prefix + id_)
        return None if mark is None else _describe_job(mark, now)

    @property
    def _prefix(self) -> str:
        return f"{hashlib.sha256(self.principal.encode()).hexdigest()[:_DIGITS]} "

    def _mark(self, job: Mapping[str, Any], holder: str, now: int, seconds: float) -> Mark:
        until = now + round(seconds * 1000)
        text = json.dumps({"job": job, "until": until})
        if len(text) > _MAX_LENGTH:
            text = json.dumps({"job": {**job, "result": None}, "until": until})
        mark = Mark(self._prefix + job["id"], job["kind"], holder, 0)
        return replace(mark, position=text)


def _job(mark: Mark) -> dict[str, Any]:
    """Return a job as its process wrote it, with what others have asked of it."""
    job: dict[str, Any] = json.loads(mark.position or "{}")["job"]
    return job


def _describe_job(mark: Mark, now: int) -> dict[str, Any]:
    """Return a job as it is to be shown at a time."""
    job, until = _job(mark), json.loads(mark.position or "{}")["until"]
    is_lost = job["state"] not in ENDED and until <= now
    return {**job, "state": "failed", "error": _LOST, "cancelling": False} if is_lost else job
