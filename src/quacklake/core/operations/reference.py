"""Parse table names: ``events``, ``analytics.events``, ``"odd.name".t``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from quacklake.core.format.names import full_name, parts_of, quote
from quacklake.errors import InputError, InvalidNameError

DEFAULT_SCHEMA = "main"
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclass(frozen=True, slots=True)
class TableRef:
    """A schema and a table name.

    >>> TableRef("main", "events").name
    'events'
    """

    schema: str
    name: str

    @property
    def sql(self) -> str:
        """The name as SQL and the methods of a lake take it, whatever characters it has.

        >>> TableRef("a.b", 'c"d').sql
        '"a.b"."c""d"'
        """
        return ".".join(map(quote, [*parts_of(self.schema), self.name]))

    @classmethod
    def parse(cls, text: str, *, nested: bool = True) -> TableRef:
        """Parse a name; without a schema it is in ``main``. Raise ``InvalidNameError``.

        More than two parts name a nested schema, which is an error unless ``nested`` is true.

        >>> TableRef.parse('"odd.name".t')
        TableRef(schema='odd.name', name='t')
        """
        if not isinstance(text, str):
            raise InvalidNameError(f"a table name must be text, not {type(text).__name__}")
        *schema, name = name_parts(text)
        if len(schema) > 1 and not nested:
            raise InvalidNameError(f"{text!r} has too many parts", hint='write "table" or "schema.table"')
        return cls(full_name(schema) if schema else DEFAULT_SCHEMA, name)


def name_parts(text: str) -> list[str]:
    """Split a name at dots outside of quotes. Raise ``InvalidNameError``.

    >>> name_parts('a."b.c".t')
    ['a', 'b.c', 't']
    """
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None:
            raise InvalidNameError(f"{text!r} is not a table name", hint='write "table" or "schema.table"')
        parts.append(match[1].replace('""', '"') if match[1] is not None else match[2])
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            raise InvalidNameError(f"{text!r} is not a table name", hint='write "table" or "schema.table"')
        position += 1


def renamed(ref: TableRef, new_name: str, what: str) -> TableRef:
    """Return the reference of a renamed table or view. Raise ``InputError`` for a name in another schema."""
    target = TableRef.parse(new_name)
    if target.schema not in (ref.schema, DEFAULT_SCHEMA) or ("." in new_name and target.schema != ref.schema):
        raise InputError(f"a {what} cannot move to another schema", hint="create it there and drop it here")
    return TableRef(ref.schema, target.name)
