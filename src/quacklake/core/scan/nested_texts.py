"""Nested values from the texts that DuckDB writes for them and does not read again.

DuckDB looks for the end of an inner list without regard to quotes: ``[['a]']]`` is its text for a list in a list, and
an error when it is cast back. The type says what each part of a text is, and quotes where it ends:

>>> from quacklake.core.format.schema import Column
>>> inner = Column(2, "element", "list", children=(Column(3, "element", "varchar"),))
>>> parse_nested("[['a]', NULL], NULL]", Column(1, "v", "list", children=(inner,)))
[['a]', None], None]
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from quacklake.core.format.schema import Column

_NULL = "NULL"
_JSON = json.JSONDecoder(strict=False)


def parse_nested(text: str, column: Column) -> Any:
    """Return the lists, dictionaries and pairs of a text, with texts for the values inside.

    Raise ``ValueError`` for a text that is not one of the column's type.
    """
    cursor = _Cursor(text)
    value = cursor.value(column, "")
    if cursor.place != len(text):
        raise ValueError("the text goes on behind the value")
    return value


@dataclass
class _Cursor:
    """A place in a text."""

    text: str
    place: int = 0

    def value(self, column: Column, ends: str) -> Any:
        """Read a value, which goes up to one of the characters ``ends`` where nothing else says how far."""
        if self.text.startswith(_NULL, self.place) and self._ends_at(self.place + len(_NULL), ends):
            self.place += len(_NULL)
            return None
        match column.type:
            case "list":
                return self._list(column.children[0])
            case "map":
                return self._map(*column.children)
            case "struct":
                return self._struct(column)
            case "json" if not self._follows("'"):
                return self._json()
            case _:
                return self._leaf(ends)

    def _ends_at(self, place: int, ends: str) -> bool:
        return self.text[place : place + 1] in tuple(ends) if ends else place == len(self.text)

    def _follows(self, word: str) -> bool:
        return self.text.startswith(word, self.place)

    def _expect(self, word: str) -> None:
        if not self._follows(word):
            raise ValueError(f"{word!r} is missing")
        self.place += len(word)

    def _goes_on(self, end: str) -> bool:
        """Step over a comma, or over the end."""
        if self._follows(end):
            self.place += len(end)
            return False
        self._expect(", ")
        return True

    def _list(self, item: Column) -> list[Any]:
        self._expect("[")
        items: list[Any] = []
        if self._follows("]"):
            self.place += 1
            return items
        items.append(self.value(item, ",]"))
        while self._goes_on("]"):
            items.append(self.value(item, ",]"))
        return items

    def _map(self, key: Column, value: Column) -> list[tuple[Any, Any]]:
        self._expect("{")
        pairs: list[tuple[Any, Any]] = []
        if self._follows("}"):
            self.place += 1
            return pairs
        more = True
        while more:
            name = self.value(key, "=")
            self._expect("=")
            pairs.append((name, self.value(value, ",}")))
            more = self._goes_on("}")
        return pairs

    def _struct(self, column: Column) -> dict[str, Any]:
        self._expect("{")
        fields: dict[str, Any] = {}
        for child in column.children:
            if fields:
                self._expect(", ")
            if self._leaf(":") != child.name:
                raise ValueError(f"the field {child.name!r} is missing")
            self._expect(": ")
            fields[child.name] = self.value(child, ",}")
        self._expect("}")
        return fields

    def _json(self) -> str:
        start = self.place
        _, self.place = _JSON.raw_decode(self.text, start)
        return self.text[start : self.place]

    def _leaf(self, ends: str) -> str:
        """Read a text in quotes, or one up to the end of the value."""
        if not self._follows("'"):
            start = self.place
            while not self._ends_at(self.place, ends):
                if self.place >= len(self.text):
                    raise ValueError("the value has no end")
                self.place += 1
            return self.text[start : self.place]
        letters: list[str] = []
        place = self.place + 1
        while place < len(self.text):
            letter = self.text[place]
            if letter == "'":
                self.place = place + 1
                return "".join(letters)
            if letter == "\\":
                place += 1
                letter = self.text[place : place + 1]
            letters.append(letter)
            place += 1
        raise ValueError("a quote has no end")
