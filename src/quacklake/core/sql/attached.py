"""The lakes that are attached to a session, and the meaning of names in statements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import duckdb

from quacklake.config.settings import BY_NAME
from quacklake.core.format.names import fold, quote
from quacklake.core.format.options import OPTIONS
from quacklake.core.operations.reference import DEFAULT_SCHEMA
from quacklake.errors import AlreadyExistsError, ClosedError, ConfigError, NotFoundError, SqlError, nearest

if TYPE_CHECKING:
    from quacklake.core.format.objects import TableInfo, ViewInfo
    from quacklake.core.operations.context import LakeContext
    from quacklake.core.operations.handles import Handle, HasHandle, LakeHandle
    from quacklake.core.scan import ScanPlan
    from quacklake.core.sql.session_databases import Planners, SessionDatabase
    from quacklake.core.transaction import Transaction


#: Settings of the DuckLake extension that ``connect`` has under another name.
SETTING_NAMES = {
    "ducklake_default_data_inlining_row_limit": "data_inlining_row_limit",
    "ducklake_data_inlining_row_limit": "data_inlining_row_limit",
}
PREFIX = "qls_"
"""Prefix of the names of Quacklake's temporary objects."""
METADATA = "__ducklake_metadata_"
"""Prefix of the name of a lake's metadata database."""


@dataclass(frozen=True)
class Attached:
    """A lake under a name. ``handle`` reads and writes it; ``lake`` is the whole lake, None for a single snapshot."""

    alias: str
    handle: Handle
    lake: LakeHandle | None
    owned: bool = False
    read_only: bool = False
    metadata_name: str = ""

    @property
    def context(self) -> LakeContext:
        return self.handle.context

    @property
    def whole(self) -> LakeHandle | None:
        """The lake if the name stands for its current state, or None."""
        return cast("LakeHandle", self.handle) if self.handle.is_lake else None

    @property
    def metadata(self) -> str:
        """The name of the lake's metadata database."""
        return self.metadata_name or f"{METADATA}{self.alias}"


def attached_as(alias: str, lake: Handle | HasHandle) -> Attached:
    """Return an open lake, a past snapshot or an open transaction under a name."""
    handle = cast("Handle", getattr(lake, "handle", lake))
    return Attached(alias, handle, cast("LakeHandle", handle) if handle.is_lake else None)


@dataclass(frozen=True, slots=True)
class Target:
    """An object of a lake, by its full name."""

    attached: Attached
    schema: str
    name: str

    @property
    def shown(self) -> str:
        """The name as users write it."""
        return f"{self.attached.alias}.{self.schema}.{self.name}"


@dataclass
class Attachments:
    """State that all connections of a session share: the lakes by name, and an in-memory database for everything else.

    In that database each lake is an empty database of its name, so that ``USE`` and DuckDB's name resolution work.
    ``planner`` is a second database, in which statements are bound and listings are built. It holds the tables of the
    lakes by name, without rows. The first statement that needs it takes it from ``planners``.
    """

    root: duckdb.DuckDBPyConnection
    planners: Planners
    database: SessionDatabase | None = None
    """The database of ``root``, if another session may get it."""
    spare: str | None = None
    """The name of an empty database that stands for no lake yet."""
    attached: dict[str, Attached] = field(default_factory=dict)
    """The lakes that are open."""
    late: dict[str, Callable[[], Attached]] = field(default_factory=dict)
    """Lakes that are opened when a statement first uses them."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    cursors: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings made with SET, which hold for every lake."""
    pinned: set[str] = field(default_factory=set)
    """Names of the settings made with SET SESSION."""
    opened: dict[tuple[str, str], Any] = field(default_factory=dict)
    """The values that lakes were opened with, for settings that SET has changed."""
    committed: dict[str, int] = field(default_factory=dict)
    """The last snapshot that any of the connections committed to each lake."""
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Connection parameters of lakes that ATTACH names by a secret."""
    frames: dict[str, Any] = field(default_factory=dict)
    """Rows that the user has registered under a name."""
    copies: dict[str, Any] = field(default_factory=dict)
    """The states from which the planner's copies of the lakes were made."""
    _planner: duckdb.DuckDBPyConnection | None = None
    _is_clean: bool = True
    """True while nothing but plain queries has been explained in the planner."""
    _knows_lakes: bool = False
    """True when the planner has the lakes by name, and its settings are locked where they are to be."""
    _names: dict[str, str] = field(default_factory=dict)
    """The names of all lakes, as they were written."""
    _locks: tuple[str, ...] = ()
    """Statements that lock the databases."""
    _closed: bool = False

    @property
    def planner(self) -> duckdb.DuckDBPyConnection:
        """The database without rows. Raise ``ClosedError`` after ``close``."""
        with self.lock:
            self._is_clean = False
            found = self._require_open()
            if not self._knows_lakes:
                try:
                    for statement in (*map(_attach, self._names.values()), *self._locks):
                        found.execute(statement)
                except BaseException:
                    self._planner = None
                    found.close()
                    raise
                self._knows_lakes = True
            return found

    def plain_planner(self) -> duckdb.DuckDBPyConnection:
        """Return the database without rows for a cursor that explains plain queries, and leaves nothing behind.

        It need not know the lakes, and another session may get it later. Raise ``ClosedError`` after ``close``.
        """
        with self.lock:
            return self._require_open() if self.planners.reuse else self.planner

    def _require_open(self) -> duckdb.DuckDBPyConnection:
        if self._closed:
            raise ClosedError
        if self._planner is None:
            self._planner = self.planners.take()
        return self._planner

    def keep_planner(self) -> None:
        """Leave the planner to no other session: something has gone wrong in it."""
        self._is_clean = False

    def keep_database(self) -> None:
        """Leave the database to no other session: something may have changed in it."""
        if self.database is not None:
            self.database.is_kept = True

    def has_read(self, plans: Iterable[ScanPlan]) -> None:
        """Count the files that a query has read."""
        if self.database is not None:
            self.database.has_read(plans)

    def lock_settings(self, statements: Sequence[str]) -> None:
        """Run statements that lock the settings of a database in both, in the planner as soon as it is made."""
        with self.lock:
            self._run(*statements)
            self._locks = (*self._locks, *statements)

    @property
    def lakes(self) -> dict[str, Attached]:
        """All lakes. Lakes that are not open yet are opened."""
        with self.lock:
            for key in list(self.late):
                self._open(key)
        return self.attached

    def _open(self, key: str) -> None:
        with self.lock:
            if key in self.late:
                found = self.late[key]()
                del self.late[key]
                self._take(found)

    def _take(self, attached: Attached) -> None:
        self.attached[fold(attached.alias)] = attached
        for name in self.settings:
            self.apply(attached, name)

    def _run(self, *statements: str) -> None:
        for connection in (self.root, self._planner if self._knows_lakes else None):
            if connection is not None:
                for statement in statements:
                    connection.execute(statement)

    def add_late(self, alias: str, opened: Callable[[], Attached]) -> None:
        """Attach a lake that is opened when it is needed, to a session that has no other database yet."""
        with self.lock:
            self._run(_attach(alias))
            self._names[fold(alias)] = alias
            self.late[fold(alias)] = opened

    def add(self, attached: Attached, *, if_not_exists: bool = False) -> bool:
        """Attach a lake. Return False when the name is taken and that is allowed, else raise ``AlreadyExistsError``."""
        with self.lock:
            if attached.alias != self.spare:
                self.keep_database()
                taken = self.is_database(attached.alias)
                if taken and if_not_exists:
                    return False
                if taken:
                    raise AlreadyExistsError(
                        f'Failed to attach database: database with name "{attached.alias}" already exists',
                        hint="choose another name after AS, or use OR REPLACE",
                    )
                self._run(_attach(attached.alias))
            self.spare = None
            self._names[fold(attached.alias)] = attached.alias
            self._take(attached)
            return True

    def apply(self, attached: Attached, name: str) -> None:
        """Apply a setting to a lake. After RESET this is the value that the lake was opened with."""
        context = attached.context
        if not hasattr(context.config, name):
            context.overrides.pop(name, None)
            if name in self.settings:
                context.overrides[name] = self.settings[name]
            return
        before = self.opened.setdefault((attached.alias, name), getattr(context.config, name))
        changes: dict[str, Any] = {name: self.settings.get(name, before)}
        context.config = replace(context.config, **changes)

    def setting(self, name: str) -> Any:
        """Return the value of a lake setting for ``current_setting``. Raise ``ConfigError`` for an unknown setting."""
        field = SETTING_NAMES.get(name, name)
        if field in BY_NAME:
            found = self.settings.get(field, BY_NAME[field].default)
            return 10 if found is None and field == "data_inlining_row_limit" else found
        field = name.removeprefix("ducklake_")
        if field not in OPTIONS:
            known = (*BY_NAME, *SETTING_NAMES, *(f"ducklake_{option}" for option in OPTIONS))
            raise ConfigError(f'unrecognized configuration parameter "{name}"', hint=nearest(name, known))
        return self.settings.get(field)

    def is_database(self, name: str) -> bool:
        """Return True for the name of a DuckDB database."""
        with self.root.cursor() as cursor:
            # without a parameter, because DuckDB loads pandas for the first one
            found = cursor.execute("SELECT database_name FROM duckdb_databases()").fetchall()
        return fold(name) in {fold(known) for (known,) in found}

    def remove(self, alias: str) -> Attached:
        """Detach a lake."""
        with self.lock:
            attached = self.find(alias)
            self._run(f"DETACH {quote(attached.alias)}")
            del self.attached[fold(alias)], self._names[fold(alias)]
            self.copies.pop(attached.alias, None)
            self.committed.pop(fold(alias), None)
            self.opened = {key: value for key, value in self.opened.items() if key[0] != attached.alias}
        if attached.owned and attached.lake is not None:
            attached.lake.close()
        return attached

    def get(self, alias: str | None) -> Attached | None:
        """Return the lake with this name, or None."""
        if alias is None:
            return None
        key = fold(alias)
        if key in self.late:
            self._open(key)
        return self.attached.get(key)

    def find(self, alias: str) -> Attached:
        """Return the lake with this name. Raise ``NotFoundError`` when there is none."""
        found = self.get(alias)
        if found is None:
            known = [attached.alias for attached in self.lakes.values()]
            raise NotFoundError(f'no lake "{alias}" is attached', hint=nearest(alias, known))
        return found

    def metadata_of(self, name: str) -> Attached | None:
        """Return the lake whose metadata database has this name, or None."""
        return next((found for found in self.lakes.values() if fold(found.metadata) == fold(name)), None)

    def close(self) -> None:
        """Close all lakes and databases."""
        for attached in list(self.attached.values()):
            if attached.owned and attached.lake is not None:
                attached.lake.close()
        self.attached.clear()
        self.late.clear()
        with self.lock:
            self._closed = True
            planner, self._planner = self._planner, None
            database, self.database = self.database, None
        if planner is not None:  # other connections may still use theirs
            self.planners.give_back(planner, clean=self._is_clean and not self.cursors)
        self.root.close()
        if database is not None:
            database.is_kept = database.is_kept or self.cursors > 0
            database.leave()


def _attach(alias: str) -> str:
    return f"ATTACH ':memory:' AS {quote(alias)}"


#: Schemas that exist in every database.
SYSTEM = frozenset({"information_schema", "pg_catalog"})


@dataclass
class Names:
    """The names of one connection: its attached lakes, and the catalog and schema of unqualified names."""

    attachments: Attachments
    view: Callable[[Attached], Transaction]
    catalog: str = "memory"
    schema: str = DEFAULT_SCHEMA
    temporary: set[str] = field(default_factory=set)
    """Names of temporary objects that the user has created, which hide others."""

    @property
    def default(self) -> Attached | None:
        """The current lake, or None."""
        return self.attachments.get(self.catalog)

    def places(self, names: Sequence[str]) -> Iterable[Target]:
        """Yield the places in lakes where an object of this name may be, the first choice first."""
        catalog, schema, name = _parts(names)
        used = self.default
        if catalog is not None:
            attached = self.attachments.get(catalog)
            if attached is not None and schema is not None:
                yield Target(attached, schema, name)
            return
        if schema is None:
            if used is not None and fold(name) not in self.temporary:
                yield Target(used, self.schema, name)
                if fold(self.schema) != DEFAULT_SCHEMA:
                    yield Target(used, DEFAULT_SCHEMA, name)
            return
        if used is not None and self.has_schema(used, schema):
            yield Target(used, schema, name)
        attached = self.attachments.get(schema)
        if attached is not None:
            own = self.schema if attached is used else DEFAULT_SCHEMA
            yield Target(attached, own, name)

    def relation(self, names: Sequence[str]) -> tuple[Target, Transaction, TableInfo | ViewInfo] | None:
        """Return the table or view of a lake that has this name, with its place, or None."""
        for place in self.places(names):
            tx = self.view(place.attached)
            found = tx.get_table(place.schema, place.name) or tx.objects.get_view(place.schema, place.name)
            if found is not None:
                return place, tx, found
        return None

    def similar(self, name: str) -> str | None:
        """Return a hint with the names in the current lake that are similar to this one."""
        used = self.default
        if used is None:
            return None
        view = self.view(used)
        return nearest(name, [*(table.name for table in view.tables()), *(v.name for v in view.objects.views())])

    def has_schema(self, attached: Attached, schema: str) -> bool:
        """Return True when a lake has this schema."""
        return any(fold(info.name) == fold(schema) for info in self.view(attached).schemas())

    def target(self, names: Sequence[str]) -> Target | None:
        """Return the place where an object of this name is created or changed, or None when that is not in a lake."""
        catalog, schema, name = _parts(names)
        found = next(iter(self.places(names)), None)
        used = self.default
        if found is None and catalog is None and schema is not None and used is not None:
            is_other = fold(schema) in ("temp", "memory", "system") or self.attachments.is_database(schema)
            is_other = is_other or self.attachments.metadata_of(schema) is not None
            return None if is_other else Target(used, schema, name)
        return found

    def explicit(self, names: Sequence[str]) -> bool:
        """Return True when the name itself is qualified with a lake."""
        catalog, schema, _ = _parts(names)
        return self.attachments.get(catalog if catalog is not None else schema) is not None


def _parts(names: Sequence[str]) -> tuple[str | None, str | None, str]:
    """Split a dotted name into catalog, schema and name. Raise ``SqlError`` for more parts."""
    if len(names) > 3:
        raise SqlError(f"{'.'.join(names)!r} has too many parts", hint="write catalog.schema.name")
    padded = [None] * (3 - len(names)) + list(names)
    return padded[0], padded[1], str(padded[2])


def missing(target: Target, tx: Transaction, what: str = "Table", *, version: int | None = None) -> NotFoundError:
    """Return the error for a name that a lake, at the ``version`` of the statement, does not have."""
    if what == "Table" and tx.objects.get_view(target.schema, target.name) is not None:
        return NotFoundError(f'"{target.name}" is a View, not a table')
    if what == "View" and tx.get_table(target.schema, target.name) is not None:
        return NotFoundError(f'"{target.name}" is a Table, not a view')
    views = [view.qualified_name for view in tx.objects.views()]
    known = [info.qualified_name for info in tx.tables()] + views
    short = {name.removeprefix(f"{DEFAULT_SCHEMA}."): name for name in known}
    own = target.name if fold(target.schema) == DEFAULT_SCHEMA else f"{target.schema}.{target.name}"
    at = "" if version is None else f" at version {version}"
    message = f'{what} with name {own} does not exist{at} in the lake "{target.attached.alias}"'
    if all(fold(info.name) != fold(target.schema) for info in tx.schemas()):
        message += f' because schema "{target.schema}" does not exist'
    same = fold(f"{target.schema}.{target.name}")
    elsewhere = [name for name in known if fold(name.rpartition(".")[2]) == fold(target.name) and fold(name) != same]
    if elsewhere:
        message += f'. Did you mean "{" or ".join(elsewhere[:3])}"?'
    short.pop(own, None)
    return NotFoundError(message, hint=None if elsewhere else nearest(own, short))
