"""Masking of secrets in texts that people will see."""

from __future__ import annotations

import re

__all__ = ["MASK", "redact"]

MASK = "***"

_SENSITIVE = (
    r"(?:password|passwd|passphrase|pwd|secret|token|credential|signature|key_id|identified\s+by"
    r"|(?:access|api|account|private|session|encryption)[_-]?key)[\w.-]{0,40}"
)
_QUOTED = r"""'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.|"")*"?"""

_WORD = re.compile(r"\S+")
_LINE = re.compile(r"\A\s*[\w+.-]+://.*")
_LOGIN = re.compile(r"://[^\s:/?#@]*:")
_PAIR = re.compile(
    # ?password=… and &secret_key=… end at the next parameter,
    rf"([?&][\w.-]*?{_SENSITIVE}=)[^&#\s]*"
    # password=…, SECRET '…' and "password": "…" at the end of the word or quotation.
    rf"|({_SENSITIVE}(?:\s*=\s*|[\"']\s*[:=]\s*|\s+(?=['\"])))(?:{_QUOTED}|(?:[^\s\\]|\\.)+)",
    re.IGNORECASE | re.DOTALL,
)


def redact(text: str) -> str:
    """The text with passwords and keys masked: in URLs, query strings, connection strings, SQL and JSON.

    In doubt it masks too much: what follows a password that cannot be told from it is masked as well.

    >>> redact("cannot reach postgresql://ann:pw@db/lake?sslpassword=x&sslmode=require")
    'cannot reach postgresql://ann:***@db/lake?sslpassword=***&sslmode=require'
    """
    # A text that begins as a URL may be nothing else, and then its password may contain anything, even spaces.
    text = _LINE.sub(_without_login, text)
    text = _WORD.sub(_without_login, text)
    return _PAIR.sub(lambda match: f"{match[1] or match[2]}{MASK}", text)


def _without_login(match: re.Match[str]) -> str:
    """Mask from ``://user:`` to the last ``@``, as drivers accept ``@`` and ``/`` in a password."""
    before, at, after = match[0].rpartition("@")
    login = _LOGIN.search(before) if at else None
    return match[0] if login is None else f"{before[: login.end()]}{MASK}@{after}"
