"""The progress and the reports of long work."""

from collections.abc import Callable

#: Told what is being worked on, how much of it is done and, where it is known, how much there is.
Progress = Callable[[str, int, int | None], None]


_listeners: list[Progress] = []


class Report:
    """The base of dataclasses that say what long work has done. Notebooks show them as tables.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class CopyReport(Report):
    ...     files: int
    >>> CopyReport(files=3)
    CopyReport(files=3)
    """

    __slots__ = ()


def listen(listener: Progress) -> None:
    """Tell this function, and no other, of the work whose caller passes none: a notebook shows it.

    >>> listen(lambda what, done, total: print(f"{done} of {total} {what}"))
    >>> silent("files", 1, 2)
    1 of 2 files
    >>> listen(lambda *_: None)
    """
    _listeners[:] = [listener]


def silent(what: str, done: int, total: int | None) -> None:
    """Tell nobody, unless there is a listener.

    >>> silent("files", 1, 2)
    """
    for listener in _listeners:
        listener(what, done, total)
