"""The lakes that are attached to a session, and the meaning of names in statements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import duckdb

from quacklake.config.settings import BY_NAME
from quacklake.errors import AlreadyExistsError, ConfigError, NotFoundError, SqlError, nearest
from quacklake.format.names import fold, quote
from quacklake.format.options import OPTIONS

if TYPE_CHECKING:
    from quacklake.operations.context import LakeContext
    from quacklake.operations.handles import Handle, HasHandle, LakeHandle

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
        """The context of the lake."""
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
    lakes by name, without rows.
    """

    root: duckdb.DuckDBPyConnection
    planner: duckdb.DuckDBPyConnection
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

    def _name(self, alias: str) -> None:
        for connection in (self.root, self.planner):
            connection.execute(f"ATTACH ':memory:' AS {quote(alias)}")

    def add_late(self, alias: str, opened: Callable[[], Attached]) -> None:
        """Attach a lake that is opened when it is needed, to a session that has no other database yet."""
        with self.lock:
            self._name(alias)
            self.late[fold(alias)] = opened

    def add(self, attached: Attached, *, if_not_exists: bool = False) -> bool:
        """Attach a lake. Return False when the name is taken and that is allowed, else raise ``AlreadyExistsError``."""
        with self.lock:
            taken = self.is_database(attached.alias)
            if taken and if_not_exists:
                return False
            if taken:
                raise AlreadyExistsError(
                    f'Failed to attach database: database with name "{attached.alias}" already exists',
                    hint="choose another name after AS, or say OR REPLACE",
                )
            self._name(attached.alias)
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
        """Return the value of a lake setting for ``current_setting``. Raises ``ConfigError`` for an unknown setting."""
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
            for connection in (self.root, self.planner):
                connection.execute(f"DETACH {quote(attached.alias)}")
            del self.attached[fold(alias)]
            self.copies.pop(attached.alias, None)
            self.committed.pop(fold(alias), None)
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
        """Return the lake with this name. Raises ``NotFoundError`` when there is none."""
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
        self.planner.close()
        self.root.close()


def parts_of(names: Sequence[str]) -> tuple[str | None, str | None, str]:
    """Split a dotted name into catalog, schema and name. Raises ``SqlError`` for more parts."""
    if len(names) > 3:
        raise SqlError(f"{'.'.join(names)!r} has too many parts", hint="write catalog.schema.name")
    padded = [None] * (3 - len(names)) + list(names)
    return padded[0], padded[1], str(padded[2])
