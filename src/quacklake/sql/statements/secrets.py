"""CREATE SECRET (TYPE DUCKLAKE, …): named connection parameters for ATTACH 'ducklake:name'."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from quacklake.errors import AlreadyExistsError, NotFoundError, SqlError, nearest
from quacklake.format.names import fold
from quacklake.sql import tree
from quacklake.sql.binder import Binder
from quacklake.sql.result import Result
from quacklake.sql.statements import queries
from quacklake.sql.words import Cursor

if TYPE_CHECKING:
    from quacklake.sql.session import Session

DEFAULT = "__default_ducklake"
_NAME = re.compile(r"[^\W\d]\w*")


def create_secret(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run CREATE [OR REPLACE] [TEMPORARY] SECRET [IF NOT EXISTS] [name] (TYPE DUCKLAKE, …); DuckDB runs other types."""
    cursor.expect("CREATE")
    replacing = cursor.accept("OR", "REPLACE")
    lasting = cursor.accept("PERSISTENT")
    cursor.accept("TEMPORARY") or cursor.accept("TEMP")
    cursor.expect("SECRET")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = DEFAULT if cursor.sees("(") else cursor.name()
    given = {}
    for item in cursor.items() if cursor.sees("(") else ():
        inner = Cursor(item)
        option = fold(inner.name())
        given[option] = inner.rest()
    if fold(given.get("type", "").strip("'")) != "ducklake":
        return queries.native(session, Cursor(cursor.text), params)
    cursor.end()
    if lasting:
        raise SqlError("secrets of the type DUCKLAKE last as long as the session")
    known = session.attachments.secrets
    if fold(name) in known and not replacing:
        if if_not_exists:
            return Result()
        raise AlreadyExistsError(f'Secret "{name}" exists already', hint="say OR REPLACE")
    binder = Binder(session, params)
    known[fold(name)] = {
        option: binder.evaluate(tree.expression_of(session.connection, text))
        for option, text in given.items()
        if option != "type"
    }
    return Result()


def drop_secret(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run DROP SECRET [IF EXISTS] name."""
    cursor.expect("DROP")
    cursor.accept("TEMPORARY") or cursor.accept("PERSISTENT")
    cursor.expect("SECRET")
    cursor.accept("IF", "EXISTS")
    if session.attachments.secrets.pop(fold(cursor.name()), None) is None:
        return queries.native(session, Cursor(cursor.text), params)
    return Result()


def with_secret(session: Session, url: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Replace the name of a secret in ATTACH by the URL and options that it holds. Raises ``NotFoundError``."""
    name = url.removeprefix("ducklake:")
    if name and not _NAME.fullmatch(name):
        return url, options
    known = session.attachments.secrets
    secret = known.get(fold(name or DEFAULT))
    if secret is None and not name:
        raise NotFoundError("Default secret was not found", hint="CREATE SECRET (TYPE DUCKLAKE, METADATA_PATH '…')")
    if secret is None:
        raise NotFoundError(
            f'Secret "{name}" was not found', hint=nearest(name, known) or "write ducklake:sqlite:… for a file"
        )
    found = {**secret, **options}
    place = str(found.pop("metadata_path", ""))
    parameters = {fold(str(key)): value for key, value in dict(found.pop("metadata_parameters", None) or {}).items()}
    kind = fold(str(parameters.get("type", "")))
    found |= {f"meta_{key}": value for key, value in parameters.items()}
    return f"ducklake:{kind}:{place}" if kind and kind != "duckdb" else f"ducklake:{place}", found
