"""The progress of long work."""

from collections.abc import Callable

#: Told what is being worked on, how much of it is done and, where it is known, how much there is.
Progress = Callable[[str, int, int | None], None]


def silent(what: str, done: int, total: int | None) -> None:
    """Tell nobody."""
