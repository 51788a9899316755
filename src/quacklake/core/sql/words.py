"""The words of a statement, each with its position in the text.

The lexer understands only what is needed to tell statements apart and to split them into clauses. The contents of a
clause, a query or an expression, go to DuckDB's own parser. The rules are those of DuckDB's lexer, with which the tests
compare them. sqlglot's tokenizer cannot replace it: it joins words (``GROUP BY``), reads what follows ``EXECUTE`` or
``CALL`` as one text, takes ``{#`` for a comment, and is slow to load.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from quacklake.core.format.names import fold
from quacklake.errors import SqlError

_SPACE = r"\s"
_LETTER = r"a-zA-Z_"
_WIDE_SPACE = r"\s\u00a0\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff"
_WIDE_LETTER = r"a-zA-Z_\x80-\x9f\xa1-\u1fff\u200c-\u202e\u2030-\u205e\u2061-\u2fff\u3001-\ufefe\uff00-\U0010ffff"


@cache
def _lexer(ascii: bool) -> re.Pattern[str]:
    """Return the pattern of a word, for texts in ASCII or for any text, which takes long to compile."""
    space, letter = (_SPACE, _LETTER) if ascii else (_WIDE_SPACE, _WIDE_LETTER)
    tag = rf"(?:[{letter}][{letter}\d]*)?"
    return re.compile(
        rf"""
        (?P<space>[{space}]+|--[^\r\n]*)
      | (?P<comment>/\*)
      | (?P<string>[eE]'(?:[^'\\]|\\.|'')*' | [xX]'[^']*' | '(?:[^']|'')*' | \$(?P<tag>{tag})\$.*?\$(?P=tag)\$)
      | (?P<name>"(?:[^"]|"")*")
      | (?P<open>['"`]|\${tag}\$)
      | (?P<number>(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?)
      | (?P<word>[{letter}][{letter}\d$]*)
      | (?P<parameter>\?\d*|\$(?:\d+|[{letter}][{letter}\d$]*|[{space}]*"(?:[^"]|"")+"))
      | (?P<symbol>=>|:=|::|->>|->|<=|>=|<>|!=|\|\||.)
        """,
        re.VERBOSE | re.DOTALL | re.ASCII,
    )


_ENCODED = "_ql_parameter_"
"""The begin of names of parameters that stand for others, which DuckDB's renderer writes without their quotes."""
_PLAIN = re.compile(rf"(?!{_ENCODED})[a-z_][a-z_0-9]*|\d+", re.IGNORECASE | re.ASCII)
_COMMENT = re.compile(r"/\*|\*/")
_OPEN, _CLOSED = frozenset("([{"), frozenset(")]}")
_DOLLAR = re.compile(r"\$([^$]*)\$(.*)\$\1\$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Word:
    """A word: its kind (word, name, string, number, parameter, symbol), its text and its position."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The keyword in capitals. Quoted names and strings are never keywords."""
        return self.text.upper() if self.kind in ("word", "symbol") else ""

    @property
    def value(self) -> str:
        """The name or string without its quotes."""
        if self.kind == "name":
            mark = self.text[0]
            return self.text[1:-1].replace(mark * 2, mark)
        if self.kind == "string":
            dollar = _DOLLAR.fullmatch(self.text)
            if dollar is not None:
                return dollar[2]
            return self.text[self.text.index("'") + 1 : -1].replace("''", "'")
        return self.text

    @property
    def parameter(self) -> str:
        """The name of a parameter in small letters, or its number; empty for ``?``."""
        name = self.text[1:].lstrip()
        if name.startswith('"'):
            return fold(name[1:-1].replace('""', '"'))
        return fold(name) if not name.startswith(_ENCODED) else _decode_name(name)


def words_of(text: str, lexer: re.Pattern[str] | None = None) -> list[Word]:
    """Return the words of a text. Raise ``SqlError`` for a string, a name or a comment without an end.

    >>> [(word.kind, word.text) for word in words_of("SELECT 'a b' -- c")]
    [('word', 'SELECT'), ('string', "'a b'")]
    """
    lexer = lexer or _lexer(text.isascii())
    words = []
    at = 0
    while (match := lexer.match(text, at)) is not None:
        kind = "string" if match.lastgroup == "tag" else match.lastgroup or ""
        at = _comment_end(text, match.start()) if kind == "comment" else match.end()
        if kind == "open":
            raise SqlError(f"unterminated quoted text\n{caret(text, match.start())}")
        if kind not in ("space", "comment"):
            words.append(Word(kind, match[0], match.start(), at))
    return words


def _comment_end(text: str, start: int) -> int:
    """Return the end of the comment that begins at ``start``. Comments may be nested."""
    depth = 0
    for match in _COMMENT.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    raise SqlError(f"unterminated comment\n{caret(text, start)}")


def without_literals(text: str) -> str:
    """Return a statement whose texts and numbers are ``?``, on one line and without comments. It may be wrong SQL.

    What a quote opens and nothing closes is left out with all that follows.
    """
    lexer, parts, at = _lexer(text.isascii()), list[str](), 0
    while (match := lexer.match(text, at)) is not None:
        kind = match.lastgroup
        if kind == "open" or (match[0] in ("e", "E") and text.startswith("'", match.end())):
            parts.append("?")
            break
        try:
            at = _comment_end(text, match.start()) if kind == "comment" else match.end()
        except SqlError:
            break
        if kind in ("space", "comment"):
            parts.append(" ")
        else:
            parts.append("?" if kind in ("string", "tag", "number") else match[0])
    return " ".join("".join(parts).split())


def split(text: str, words: Sequence[Word] | None = None) -> list[str]:
    """Return the statements of a text, without semicolons and empty statements.

    >>> split("SELECT ';'; ; SELECT 2;")
    ["SELECT ';'", 'SELECT 2']
    """
    parts: list[str] = []
    first: int | None = None
    last = 0
    for word in words_of(text) if words is None else words:
        if word.text == ";" and word.kind == "symbol":
            if first is not None:
                parts.append(text[first:last])
            first = None
            continue
        if first is None:
            first = word.start
        last = word.end
    if first is not None:
        parts.append(text[first:last])
    return parts


def caret(text: str, position: int) -> str:
    """Return the line of a position in a text, with a mark under the position.

    >>> print(caret("SELECT 1,\\n 'ü' oops", 15))
    LINE 2:  'ü' oops
                 ^
    """
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[begin : end if end >= 0 else len(text)]
    head = f"LINE {text.count(chr(10), 0, position) + 1}: "
    return f"{head}{line}\n{' ' * (len(head) + width_of(text[begin:position]))}^"


def width_of(text: str) -> int:
    """Return the columns that a text takes where a tab takes one, as DuckDB counts them."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return sum(1 if character == "\t" else cell_len(character) for character in text)


class Cursor:
    """Walks through the words of one statement.

    >>> cursor = Cursor("DROP TABLE shop.orders CASCADE")
    >>> cursor.expect("DROP", "TABLE")
    >>> cursor.names(), cursor.accept("CASCADE"), cursor.done
    (['shop', 'orders'], True, True)
    """

    def __init__(self, text: str, words: Sequence[Word] | None = None) -> None:
        self.text = text
        self.words = list(self.lexed(text) if words is None else words)
        self.at = 0

    def lexed(self, text: str) -> list[Word]:
        """Return the words of a text, by the rules of this cursor's language."""
        return words_of(text)

    # -- looking ahead -----------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """True after the last word."""
        return self.at >= len(self.words)

    def peek(self, ahead: int = 0) -> Word | None:
        """Return the current word or one after it, or None."""
        place = self.at + ahead
        return self.words[place] if place < len(self.words) else None

    def sees(self, *keywords: str) -> bool:
        """Return True when these keywords come next."""
        found = [self.peek(ahead) for ahead in range(len(keywords))]
        return all(word is not None and word.upper == key for word, key in zip(found, keywords, strict=True))

    def fail(self, message: str) -> SqlError:
        """Return an error at the current position."""
        word = self.peek()
        place = word.start if word is not None else len(self.text)
        return SqlError(f"{message}\n\n{caret(self.text, place)}")

    def unexpected(self) -> SqlError:
        """Return the error for a word that is not allowed here."""
        word = self.peek()
        return self.fail(f'syntax error at or near "{word.text}"' if word else "syntax error at end of input")

    # -- consuming words ---------------------------------------------------------------------------------------------

    def take(self) -> Word:
        """Consume and return the next word."""
        word = self.peek()
        if word is None:
            raise self.unexpected()
        self.at += 1
        return word

    def accept(self, *keywords: str) -> bool:
        """Consume these keywords if they come next. Return False otherwise."""
        if not self.sees(*keywords):
            return False
        self.at += len(keywords)
        return True

    def expect(self, *keywords: str) -> None:
        """Consume these keywords. Raise ``SqlError`` at the first that does not come next."""
        for keyword in keywords:
            if not self.accept(keyword):
                raise self.unexpected()

    def end(self) -> None:
        """Raise ``SqlError`` when any words are left."""
        if not self.done:
            raise self.unexpected()

    def name(self) -> str:
        """Consume one identifier."""
        return self._value("word", "name")

    def _value(self, *kinds: str) -> str:
        word = self.peek()
        if word is None or word.kind not in kinds:
            raise self.unexpected()
        self.at += 1
        return word.value

    def names(self) -> list[str]:
        """Consume a dotted name."""
        found = [self.name()]
        while self.accept("."):
            found.append(self.name())
        return found

    def string(self) -> str:
        """Consume a string literal."""
        return self._value("string")

    def parens(self) -> str:
        """Consume a group in parentheses, and return the text inside."""
        if not self.sees("("):
            raise self.unexpected()
        first = self.at
        self.skip_group()
        return self.slice(first + 1, self.at - 1)

    def prefix(self) -> str:
        """Take the common tables before a statement, and return them with the space after them."""
        found = self.common_tables()
        return f"{found} " if found else ""

    def alias(self, *keywords: str) -> str | None:
        """Take the alias that comes next, unless it is one of these keywords."""
        if self.accept("AS"):
            return self.name()
        word = self.peek()
        if word is not None and word.kind in ("word", "name") and word.upper not in keywords:
            return self.name()
        return None

    def common_tables(self) -> str:
        """Consume a WITH clause, whatever its tables are called. Return an empty text when there is none."""
        first = self.at
        if not self.accept("WITH"):
            return ""
        self.accept("RECURSIVE")
        while True:
            self.name()
            if self.sees("("):  # its columns, or in Spark perhaps the query
                self.skip_group()
            if self.accept("USING", "KEY"):
                self.parens()
            if self.accept("AS"):
                self.accept("NOT")
                self.accept("MATERIALIZED")
                self.parens()
            if not self.accept(","):
                return self.slice(first, self.at)

    def skip_group(self) -> None:
        """Skip to the position after the bracket that closes the current one."""
        depth = 0
        while not self.done:
            word = self.take()
            if word.kind == "symbol":
                depth += (word.text in _OPEN) - (word.text in _CLOSED)
            if depth == 0:
                return
        raise self.unexpected()

    def until(self, *stops: str) -> str:
        """Consume and return the text up to one of these keywords outside all brackets, or to the end."""
        first = self.at
        while not self.done:
            word = self.words[self.at]
            if word.upper and word.upper in stops:
                break
            if word.kind == "symbol" and word.text in _OPEN:
                self.skip_group()
            elif word.upper == "CASE":
                self._skip_case()
            elif word.kind == "symbol" and word.text in _CLOSED:
                break
            else:
                self.at += 1
        return self.slice(first, self.at)

    def _skip_case(self) -> None:
        """Skip to the position after the END of the current CASE."""
        depth = 0
        while not self.done:
            word = self.take()
            depth += (word.upper == "CASE") - (word.upper == "END")
            if depth == 0:
                return

    def rest(self) -> str:
        """Consume and return the remaining text."""
        first, self.at = self.at, len(self.words)
        return self.slice(first, self.at)

    def slice(self, first: int, last: int) -> str:
        """Return the text of a range of words."""
        if first >= last:
            return ""
        return self.text[self.words[first].start : self.words[last - 1].end]

    def items(self) -> list[str]:
        """Consume a group in parentheses, and return the texts between commas outside inner brackets."""
        inner = type(self)(self.parens())
        found = []
        while not inner.done:
            found.append(inner.until(","))
            if not inner.done:
                inner.expect(",")
        return found


def numbered(text: str) -> str:
    """Return the text with ``$n`` in place of every ``?``, and plain names in place of those that need quotes.

    The text of a PREPARE stays unchanged: it is numbered when it is executed. Raise ``SqlError`` for a mix of names
    and numbers.

    >>> numbered("UPDATE t SET a = ?, b = ? WHERE id = ?")
    'UPDATE t SET a = $1, b = $2 WHERE id = $3'
    >>> numbered('SELECT $"a b", $"c"')
    'SELECT $_ql_parameter_612062, $c'
    """
    if "?" not in text and "$" not in text:
        return text
    words = words_of(text)
    if words and words[0].upper == "PREPARE":
        return text
    parts: list[str] = []
    highest = done = 0
    named = False
    for word in words:
        if word.kind != "parameter":
            continue
        name = word.parameter
        if name and not name.isdigit():
            named = True
            parts += [text[done : word.start], f"${_encode_name(name)}"]
            done = word.end
            continue
        number = int(name) if name else highest + 1
        highest = max(highest, number)
        parts += [text[done : word.start], f"${number}"]
        done = word.end
    if named and highest:
        raise SqlError("Not implemented Error: Mixing named and positional parameters is not supported yet")
    return "".join([*parts, text[done:]])


def _decode_name(name: str) -> str:
    try:
        return bytes.fromhex(name[len(_ENCODED) :]).decode(errors="surrogatepass")
    except ValueError:  # a name of the user's own
        return fold(name)


def _encode_name(name: str) -> str:
    """Return the name that a parameter has in the text that DuckDB reads."""
    return name if _PLAIN.fullmatch(name) else f"{_ENCODED}{name.encode(errors='surrogatepass').hex()}"


def supplied(cursor: Cursor, params: Any) -> dict[str, Any] | None:
    """Return the values of parameters by their names or numbers in a text from ``numbered``; None if there are none.

    Raise ``SqlError`` for others than the text has.
    """
    if cursor.words and cursor.words[0].upper == "PREPARE":
        return None
    names = {word.parameter for word in cursor.words if word.kind == "parameter"}
    if isinstance(params, Mapping):
        given = {fold(str(name)): value for name, value in params.items()}
    else:
        given = {str(number): value for number, value in enumerate(params or (), 1)}
    lacking, beside = _list_names(names - given.keys()), _list_names(given.keys() - names)
    if lacking:
        raise SqlError(
            "Invalid Input Error: Values were not provided for the following prepared statement parameters: " + lacking,
            aborts=True,
        )
    if beside:
        raise SqlError(
            "Invalid Input Error: Parameter argument/count mismatch, identifiers of the excess parameters: " + beside,
            aborts=True,
        )
    return {_encode_name(name): value for name, value in given.items()} or None


def _list_names(names: set[str]) -> str:
    return ", ".join(sorted(names, key=lambda name: (len(name), name)))


def refuse_parameters(words: list[Word]) -> None:
    """Raise ``SqlError`` for a parameter in RETURNING, where DuckDB takes none."""
    if any(word.kind == "parameter" for word in words):
        raise SqlError(
            "Binder Error: Unexpected prepared parameter. This type of statement can't be prepared!",
            hint="RETURNING takes no parameters",
        )
