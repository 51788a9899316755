"""Names of tables as users write them: ``events``, ``analytics.events``, ``"odd.name".t``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from quacklake.errors import InputError, InvalidNameError

__all__ = ["DEFAULT_SCHEMA", "TableRef", "renamed"]

DEFAULT_SCHEMA = "main"
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclass(frozen=True, slots=True)
class TableRef:
    """A schema and a table name."""

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableRef:
        """The reference a text means; without a schema it is ``main``. Raises ``InvalidNameError``.

        >>> TableRef.parse('"odd.name".t')
        TableRef(schema='odd.name', name='t')
        """
        if not isinstance(text, str):
            raise InvalidNameError(f"a table name must be text, not {type(text).__name__}")
        parts: list[str] = []
        position = 0
        while True:
            match = _PART.match(text, position)
            if match is None:
                raise InvalidNameError(f"{text!r} is not a table name", hint='write "table" or "schema.table"')
            parts.append(match[1].replace('""', '"') if match[1] is not None else match[2])
            position = match.end()
            if position == len(text):
                break
            if text[position] != ".":
                raise InvalidNameError(f"{text!r} is not a table name", hint='write "table" or "schema.table"')
            position += 1
        if len(parts) > 2:
            raise InvalidNameError(f"{text!r} has too many parts", hint='write "table" or "schema.table"')
        return cls(*parts) if len(parts) == 2 else cls(DEFAULT_SCHEMA, parts[0])


def renamed(ref: TableRef, new_name: str, what: str) -> TableRef:
    """What a table or view is called under another name. Raises ``InputError`` for one in another schema."""
    target = TableRef.parse(new_name)
    if target.schema not in (ref.schema, DEFAULT_SCHEMA) or ("." in new_name and target.schema != ref.schema):
        raise InputError(f"a {what} cannot move to another schema", hint="create it there and drop it here")
    return TableRef(ref.schema, target.name)
