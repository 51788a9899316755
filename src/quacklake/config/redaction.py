"""Masking of secrets in texts that people will see."""

from __future__ import annotations

import re

MASK = "***"

_SENSITIVE = (
    r"(?:password|passwd|passphrase|pwd|secret|token|credential|signature|authorization|key_id|identified\s+by"
    r"|(?:access|api|account|private|session|encryption)[_-]?key)[\w.-]{0,40}"
)
_QUOTED = r"""'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.|"")*"?"""

#: Statements in which any quoted text may be a secret, behind spaces and comments.
_CARRIER = re.compile(
    r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
    r"(?:ATTACH|SET|PRAGMA|CREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:PERSISTENT|TEMPORARY|TEMP)\s+)?SECRET)\b",
    re.IGNORECASE | re.DOTALL,
)
_QUOTATION = re.compile(r"'(?:[^']|'')*(?:'|\Z)|\$(\w*)\$.*?(?:\$\1\$|\Z)", re.DOTALL)
_NAMELESS = re.compile(
    r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*(?:PRAGMA|CREATE\s+(?:OR\s+REPLACE\s+)?(?:\w+\s+)?SECRET)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Statements of which every quoted text may be a secret, whatever stands before it."""
_TOKEN = re.compile(
    r"(?P<gap>\s+|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))"
    r"|(?P<text>'(?:[^']|'')*(?:'|\Z)|\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z))"
    r'|(?P<word>"(?:[^"]|"")*(?:"|\Z)|[\w.-]+)|(?P<sign>.)',
    re.DOTALL,
)
_PLACE = re.compile(r"\s*\nLINE \d+:.*\Z", re.DOTALL)
_TELLING = 3
"""Letters from which on a quoted text is looked for in messages: shorter ones are in any sentence."""
_NAME = re.compile(_SENSITIVE, re.IGNORECASE)
_WORD = re.compile(r"\S+")
_LINE = re.compile(r"\A\s*[\w+.-]+://.*")
_LOGIN = re.compile(r"://[^\s:/?#@]*:")
_PAIR = re.compile(
    # ?password=… and &secret_key=… end at the next parameter,
    rf"([?&][\w.-]*?{_SENSITIVE}=)[^&#\s]*"
    # password=…, SECRET '…' and "password": "…" at the end of the word or quotation.
    rf"|({_SENSITIVE}(?:\s*:?={{1,2}}\s*|[\"']\s*[:=]\s*|\s+(?:TO\s+)?(?=['\"])))(?:{_QUOTED}|(?:[^\s\\]|\\.)+)",
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
    # of "==" the second may be the first letter of a password
    return _PAIR.sub(lambda match: f"{(match[1] or match[2]).replace('==', '=')}{MASK}", text)


def carries_secret(sql: str) -> bool:
    """True for a statement that holds a password or key, or is of a kind that may."""
    return _CARRIER.match(sql) is not None or redact(sql) != sql


def redact_statement(sql: str) -> str:
    """A statement to be logged: where it is of a kind that may hold a secret, every quoted text in it is masked.

    >>> redact_statement("ATTACH 'ducklake:postgres:password=x' AS (")
    "ATTACH '***' AS ("
    """
    return _QUOTATION.sub(f"'{MASK}'", sql) if _CARRIER.match(sql) else redact(sql)


def redact_message(message: str, sql: str) -> str:
    """An error about a statement that carries a secret: without the lines that show the place, and the secrets.

    >>> redact_message("no catalog 'nope' at x1y", "ATTACH 'x1y' (CATALOG 'nope', ENCRYPTION_KEY 'x')")
    "no catalog 'nope' at ***"
    """
    body = _PLACE.sub("", message)
    for quoted in sorted(_quoted_secrets(sql), key=len, reverse=True):
        mark = "'" if quoted.startswith("'") else quoted[: quoted.index("$", 1) + 1]
        inner = quoted.removeprefix(mark).removesuffix(mark)
        for text in (inner, inner.replace("''", "'")):
            if len(text) >= _TELLING:
                body = body.replace(text, MASK)
    return redact(body)


def _quoted_secrets(sql: str) -> set[str]:
    """Return the quoted texts of a statement that may be secrets, by the words before them.

    A text is one where its option is called like one, where a part of it looks like one, and where it says what to
    attach. Other texts are names and values, which an error must be able to show.
    """
    if _NAMELESS.match(sql):
        return {found[0] for found in _QUOTATION.finditer(sql)}
    tokens = [token for token in _TOKEN.finditer(sql) if token["gap"] is None]
    secrets: set[str] = set()
    words: list[str] = []
    known = ""  # the words before the last text, for lists of texts
    for token, behind in zip(tokens, [*tokens[1:], None], strict=True):
        if token["word"] is not None:
            words.append(token["word"])
        elif token["sign"] == ";":
            words, known = [], ""
        elif token["text"] is not None and behind is not None and behind["sign"] in ("=", ":"):
            words = [token["text"]]  # the name of an option, in quotes
        elif token["text"] is not None:
            known, words = " ".join(words) or known, []
            if known.upper().startswith("ATTACH") or _is_secret_name(known) or redact(token["text"]) != token["text"]:
                secrets.add(token["text"])
    return secrets


def _is_secret_name(words: str) -> bool:
    return _NAME.search(words.replace(".", "_")) is not None


def _without_login(match: re.Match[str]) -> str:
    """Mask from ``://user:`` to the last ``@``, as drivers accept ``@`` and ``/`` in a password."""
    before, at, after = match[0].rpartition("@")
    login = _LOGIN.search(before) if at else None
    return match[0] if login is None else f"{before[: login.end()]}{MASK}@{after}"
