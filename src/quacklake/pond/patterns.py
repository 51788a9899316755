"""Patterns of paths: ``*``, ``?``, ``[ab]`` within a name, ``**`` for any directories; each is a capture."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from quacklake.errors import InputError
from quacklake.pond.paths import parts

ANY_DEPTH = "**"
_WILD = re.compile(r"[*?\[]")
_TOKEN = re.compile(r"\*|\?|\[(!?)([^\]]+)\]")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a pattern: a name, a name with wildcards, or ``**``."""

    text: str
    regex: re.Pattern[str] | None = None

    @property
    def any_depth(self) -> bool:
        """True for ``**``, which stands for any number of directories."""
        return self.text == ANY_DEPTH

    def match(self, name: str) -> tuple[str, ...] | None:
        """Return what the wildcards stand for in a name that matches, else None."""
        if self.regex is None:
            return () if name == self.text else None
        found = self.regex.fullmatch(name)
        return None if found is None else found.groups()


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> tuple[Part, ...]:
    """Return the parts of a pattern. Raise ``InputError`` for one that cannot match anything.

    >>> compile_pattern("/sensors/*_active.series")[1].match("dock_active.series")
    ('dock',)
    """
    found = []
    for text in parts(pattern):
        if text == "..":
            raise InputError("a pattern cannot have ..", hint="begin it at the root: /sensors/**")
        if ANY_DEPTH in text and text != ANY_DEPTH:
            raise InputError(f"** stands alone between slashes, not in {text!r}", hint="write **/*.series")
        found.append(Part(text, _regex(text) if is_pattern(text) and text != ANY_DEPTH else None))
    return tuple(found)


def is_pattern(text: str) -> bool:
    """Return whether a text has wildcards."""
    return _WILD.search(text) is not None


def _regex(text: str) -> re.Pattern[str]:
    pieces, position = [], 0
    for token in _TOKEN.finditer(text):
        pieces.append(re.escape(text[position : token.start()]))
        if token[0] == "*":
            pieces.append("(.*)")
        elif token[0] == "?":
            pieces.append("(.)")
        else:
            letters = token[2].replace("\\", "\\\\").replace("^", "\\^").replace("[", "\\[")
            pieces.append(f"([{'^' if token[1] else ''}{letters}])")
        position = token.end()
    pieces.append(re.escape(text[position:]))
    try:
        return re.compile("".join(pieces), re.DOTALL)
    except re.error:
        raise InputError(f"{text!r} is not a valid pattern", hint="brackets hold letters or ranges: [a-z]") from None
