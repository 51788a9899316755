"""The progress of long work."""

from collections.abc import Callable

#: Told what is being worked on, how much of it is done and, where it is known, how much there is.
Progress = Callable[[str, int, int | None], None]


_listeners: list[Progress] = []


def listen(listener: Progress) -> None:
    """Tell this function, and no other, of the work whose caller passes none: a notebook shows it."""
    _listeners[:] = [listener]


def silent(what: str, done: int, total: int | None) -> None:
    """Tell nobody, unless there is a listener.

    >>> silent("files", 1, 2)
    """
    for listener in _listeners:
        listener(what, done, total)
