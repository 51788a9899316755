"""ATTACH, DETACH, USE and SET, and the secrets that ATTACH 'ducklake:name' takes connection parameters from."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from quacklake.config import resolve
from quacklake.config.settings import BY_NAME
from quacklake.core.catalog.databases.urls import DATABASES, parse_url
from quacklake.core.format.names import fold, literal, quote
from quacklake.core.format.options import OPTIONS, format_option, parse_option
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.sql import tree
from quacklake.core.sql.attached import METADATA, SETTING_NAMES, Attached
from quacklake.core.sql.binder import Binder
from quacklake.core.sql.result import Result
from quacklake.core.sql.statements import queries
from quacklake.core.sql.words import Cursor
from quacklake.core.tenancy.opening import open_lake
from quacklake.core.tenancy.tenants import open_tenants
from quacklake.errors import AlreadyExistsError, ConfigError, NotFoundError, QuacklakeError, SqlError, nearest

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session

#: Options of ATTACH that correspond to a parameter of ``connect``; the others are handled below.
_CONNECT = {
    "catalog": "catalog",
    "data_path": "data_path",
    "override_data_path": "override_data_path",
    "metadata_schema": "metadata_schema",
    "encrypted": "encrypted",
    "ducklake_version": "format_version",
    "create_if_not_exists": "create",
    "migrate_if_required": "migrate",
    "automatic_migration": "migrate",
    "data_inlining_row_limit": "data_inlining_row_limit",
    "busy_timeout": "busy_timeout_ms",
}
_OTHERS = (
    *("snapshot_version", "snapshot_time", "read_only", "read_write", "metadata_catalog", "type", "readonly"),
    *("metadata_parameters", "metadata_path", "meta_journal_mode", "meta_busy_timeout"),
)
#: The wording of hints in Python, and in ATTACH.
_WORDS = (
    ("pass catalog=, or set QUACKLAKE_CATALOG", "use CATALOG '…'"),
    ("leave catalog out", "leave CATALOG out"),
    ("pass create=True", "use CREATE_IF_NOT_EXISTS true"),
    ("pass override_data_path=True", "use OVERRIDE_DATA_PATH true"),
    ("migrate=True", "MIGRATE_IF_REQUIRED true"),
    ("pass data_path=", "use DATA_PATH '…'"),
    ("data_path", "DATA_PATH"),
    ("encrypted=", "ENCRYPTED"),
)


def attach(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run ATTACH [IF NOT EXISTS] 'ducklake:…' [AS name] [(option value, …)]."""
    cursor.expect("ATTACH")
    cursor.accept("DATABASE")
    replacing = cursor.accept("OR", "REPLACE")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    word = cursor.peek()
    if word is None or word.kind not in ("string", "parameter"):
        raise cursor.unexpected()
    url = str(Binder(session, params).evaluate_text(cursor.take().text))
    alias = cursor.name() if cursor.accept("AS") else None
    options: dict[str, Any] = {}
    for item in cursor.items() if cursor.sees("(") else ():  # NAME value, NAME = value or NAME alone
        inner = Cursor(item)
        option = fold(inner.name())
        inner.accept("=") or inner.accept("=>") or inner.accept(":=")
        options[option] = True if inner.done else _value(session, inner.rest(), params)
    cursor.end()
    if not url.startswith("ducklake:") and options.get("type", "").lower() != "ducklake":
        return session.native(cursor.text, params)
    name = alias or url.rsplit(":", 1)[-1].rsplit("/", 1)[-1].split("?")[0].split(".")[0] or "lake"
    url, options = _with_secret(session, url, options)
    if replacing and session.attachments.get(name) is not None:
        _detach(session, name)
    if if_not_exists and session.attachments.get(name) is not None:
        return Result()
    attached = _open(name, url, options)
    try:
        session.add(attached, if_not_exists=if_not_exists)
    except BaseException:
        if attached.lake is not None:
            attached.lake.close()
        raise
    return Result()


def _value(session: Session, text: str, params: Any) -> Any:
    """Return the value of an option or setting, which may be a plain word."""
    words = Cursor(text).words
    if len(words) == 1 and words[0].kind in ("word", "name") and words[0].upper not in ("TRUE", "FALSE", "NULL"):
        return words[0].value
    return Binder(session, params).evaluate_text(text)


def _open(alias: str, url: str, options: dict[str, Any]) -> Attached:
    known = (*_CONNECT, *_OTHERS)
    for name in options:
        if name not in known and name not in OPTIONS and not name.startswith("meta_"):
            raise SqlError(f'ATTACH has no option "{name}" for a lake', hint=nearest(name, known))
    metadata = str(options.get("metadata_catalog") or "")
    if fold(metadata) == fold(alias):
        raise SqlError(f'the metadata of "{alias}" needs its own name')
    kind = fold(str(options.get("meta_type") or "duckdb"))
    if kind not in DATABASES and kind != "postgresql":
        raise SqlError(f'there is no metadata database of the type "{kind}"', hint=nearest(kind, DATABASES))
    past = {"version": options.get("snapshot_version"), "timestamp": options.get("snapshot_time")}
    chosen = {key: value for key, value in past.items() if value is not None}
    if chosen and (options.get("read_write") or options.get("read_only") is False):
        raise SqlError("SNAPSHOT_VERSION and SNAPSHOT_TIME can only be used in read-only mode")
    if len(chosen) > 1:
        raise SqlError("Cannot specify both VERSION and TIMESTAMP: ATTACH takes one of them")
    read_only = bool(options.get("read_only", options.get("readonly", False)))
    given = {_CONNECT[name]: value for name, value in options.items() if name in _CONNECT}
    given = {name: value for name, value in given.items() if value is not None}
    if fold(str(given.get("create"))) in ("true", "false"):
        given["create"] = fold(str(given["create"])) == "true"
    target = url if url.startswith("ducklake:") else f"ducklake:{url}"
    lake = _connect(target, alias, read_only=read_only, **given)
    try:
        handle = lake.at(**chosen) if chosen else lake
    except BaseException:
        lake.close()
        raise
    for name, value in options.items():
        if name in OPTIONS and name not in _CONNECT:
            lake.context.overrides[name] = parse_option(name, format_option(name, value))
    return Attached(alias, handle, lake, owned=True, read_only=read_only or bool(chosen), metadata_name=metadata)


def _connect(url: str, alias: str, *, catalog: str = "", **given: Any) -> LakeHandle:
    """Open a lake; errors use the options of ATTACH. Only the statement names a catalog, as settings are of another."""
    try:
        if catalog and given.get("migrate") and not given.get("read_only") and _is_plain(url, given):
            # a plain lake becomes a shared one, with itself as the first catalog; others go below ``DATA_PATH``
            schema = given.get("metadata_schema")
            open_tenants(url, given.pop("data_path", None), convert=catalog, metadata_schema=schema).close()
        return open_lake(url, catalog=catalog, **given)
    except QuacklakeError as error:
        place = parse_url(url)
        shut = given.get("read_only") or given.get("create") is False
        if isinstance(error, NotFoundError) and shut and not (catalog or place.catalog):
            if given.get("create"):
                raise NotFoundError(
                    f'Cannot execute statement of type "CREATE" on database "{METADATA}{alias}" which is attached in'
                    f' read-only mode! There is no lake at "{place}"',
                    hint="leave READ_ONLY out to create it",
                ) from error
            raise NotFoundError(
                f'Existing DuckLake at metadata catalog "{place}" does not exist'
                " - and creating a new DuckLake is explicitly disabled",
                hint="check the place, or leave CREATE_IF_NOT_EXISTS out",
            ) from error
        for written, said in _WORDS:
            error.hint = None if error.hint is None else error.hint.replace(written, said)
        raise


def _is_plain(url: str, given: dict[str, Any]) -> bool:
    """Return True for an existing plain lake, which has no catalogs."""
    try:
        open_lake(url, catalog="", create=False, read_only=True, metadata_schema=given.get("metadata_schema")).close()
    except (ConfigError, NotFoundError):
        return False
    return True


def detach(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run DETACH [DATABASE] [IF EXISTS] name."""
    cursor.expect("DETACH")
    cursor.accept("DATABASE")
    cursor.accept("IF", "EXISTS")
    name = cursor.name()
    cursor.end()
    if session.attachments.get(name) is None:
        return session.native(cursor.text, params)
    _detach(session, name)
    return Result()


def _detach(session: Session, name: str) -> None:
    if fold(session.names.catalog) == fold(name):
        raise SqlError(f'Cannot detach database "{name}" which is the default database. Select another with USE')
    session.attachments.remove(name)


def use(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run USE lake, USE lake.schema or USE schema."""
    cursor.expect("USE")
    names = cursor.names()
    cursor.end()
    default = session.names.default
    if len(names) <= 2 and session.attachments.get(names[0]) is not None:
        session.use(names[0], names[1] if len(names) == 2 else None)
    elif len(names) == 1 and default is not None and session.names.has_schema(default, names[0]):
        session.use(default.alias, names[0])
    else:
        session.native(cursor.text, params)
        session.look_around()
    return Result()


def extension(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run INSTALL or LOAD in DuckDB. Do nothing for the extension ducklake, which Quacklake replaces."""
    word = cursor.peek(2 if cursor.sees("FORCE", "INSTALL") else 1)
    if word is not None and fold(word.value) == "ducklake":
        return Result()
    return session.native(cursor.text, params)


_VERIFIES = re.compile(r"(enable|disable)_verification|(disable_)?verify_(?!parallelism)\w+")
"""The pragmas with which DuckDB's own developers let it check itself."""


def settings(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run SET or RESET: on the lakes for their settings, in DuckDB for all others."""
    word = cursor.take().upper
    cursor.accept("GLOBAL")
    own = cursor.accept("SESSION") or cursor.accept("LOCAL")
    if word == "SET" and cursor.accept("VARIABLE"):  # whose value may be a query over lakes
        name = cursor.name()
        _expect_value(cursor)
        text = cursor.rest()
        value = tree.expression_of(session.connection, text)
        if value.get("class") == "COLUMN_REF":  # DuckDB takes a name for a text
            return session.native(f"SET VARIABLE {quote(name)} = {literal('.'.join(value['column_names']))}")
        bound = Binder(session, params).bind(f"SELECT {text}")
        return session.native(f"SET VARIABLE {quote(name)} = ({bound.sql})", bound.values)
    if word == "PRAGMA" and cursor.accept("TABLE_INFO"):
        return session.query(f"SELECT * FROM pragma_table_info({cursor.parens()})", params)
    name = fold(cursor.name()) if not cursor.done else ""
    if word in ("SET", "RESET") and name.startswith("ducklake_"):
        _set(session, cursor, name, params, reset=word == "RESET", own=own)
        return Result()
    if word == "PRAGMA" and _VERIFIES.fullmatch(name):
        return Result()  # DuckDB would run each statement several times, and the rows of a lake are streams
    result = session.native(cursor.text, params)
    if word in ("SET", "RESET"):
        result.keep()
        session.said(cursor.text)
        session.look_around()
    return result


def _expect_value(cursor: Cursor) -> None:
    if not (cursor.accept("=") or cursor.accept("TO")):
        raise cursor.unexpected()


def _set(session: Session, cursor: Cursor, name: str, params: Any, *, reset: bool, own: bool) -> None:
    """Set or reset a setting of every lake, also later ones. Only RESET SESSION resets what SET SESSION has set."""
    value: Any = None
    if not reset:
        _expect_value(cursor)
        value = _value(session, cursor.rest(), params)
    attachments = session.attachments
    attachments.setting(name)
    field = SETTING_NAMES.get(name, name)
    field = field if field in BY_NAME else name.removeprefix("ducklake_")
    if not reset:
        value = float(value) if isinstance(value, Decimal) else value
        if field in BY_NAME:
            value = getattr(resolve({field: value}, env={}), field)
        else:
            value = parse_option(field, format_option(field, value))
            if value == 0 and field == "target_file_size":
                raise ConfigError("ducklake_target_file_size cannot be 0")
    if reset and field in attachments.pinned and not own:
        return
    (attachments.pinned.add if own and not reset else attachments.pinned.discard)(field)
    if reset:
        attachments.settings.pop(field, None)
    else:
        attachments.settings[field] = value
    for attached in attachments.attached.values():
        attachments.apply(attached, field)


# -- secrets -----------------------------------------------------------------------------------------------------------

_DEFAULT_SECRET = "__default_ducklake"
_NAME = re.compile(r"[^\W\d]\w*")


def create_secret(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run CREATE [OR REPLACE] [TEMPORARY] SECRET [IF NOT EXISTS] [name] (TYPE DUCKLAKE, …); DuckDB runs other types."""
    cursor.expect("CREATE")
    replacing = cursor.accept("OR", "REPLACE")
    lasting = cursor.accept("PERSISTENT")
    cursor.accept("TEMPORARY") or cursor.accept("TEMP")
    cursor.expect("SECRET")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _DEFAULT_SECRET if cursor.sees("(") else cursor.name()
    items = [Cursor(item) for item in cursor.items()] if cursor.sees("(") else []
    given = {fold(item.name()): item.rest() for item in items}
    if fold(given.pop("type", "").strip("'")) != "ducklake":
        return queries.native(session, Cursor(cursor.text), params)
    cursor.end()
    if lasting:
        raise SqlError("secrets of the type DUCKLAKE last as long as the session")
    known = session.attachments.secrets
    if fold(name) in known and not replacing:
        if if_not_exists:
            return Result()
        raise AlreadyExistsError(f'Secret "{name}" exists already', hint="use OR REPLACE")
    binder = Binder(session, params)
    known[fold(name)] = {option: binder.evaluate_text(text) for option, text in given.items()}
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


def _with_secret(session: Session, url: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Replace the name of a secret in ATTACH by the URL and options that it holds. Raise ``NotFoundError``."""
    name = url.removeprefix("ducklake:")
    if name and not _NAME.fullmatch(name):
        return url, options
    known = session.attachments.secrets
    secret = known.get(fold(name or _DEFAULT_SECRET))
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
