"""The lakes of a session: the names they are attached by, and what a name in a statement means."""

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

__all__ = ["METADATA", "PREFIX", "SETTING_NAMES", "Attached", "Attachments", "Target", "attached_as", "parts_of"]

#: Settings of the extension that are one of ``connect`` under another name.
SETTING_NAMES = {
    "ducklake_default_data_inlining_row_limit": "data_inlining_row_limit",
    "ducklake_data_inlining_row_limit": "data_inlining_row_limit",
}
PREFIX = "qls_"
"""What the names of our own temporary objects begin with."""
METADATA = "__ducklake_metadata_"
"""What the name of a lake's metadata database begins with."""


@dataclass(frozen=True)
class Attached:
    """A lake under a name. ``handle`` reads and writes; ``lake`` is the whole lake, where there is one to speak of."""

    alias: str
    handle: Handle
    lake: LakeHandle | None
    owned: bool = False
    read_only: bool = False
    metadata_name: str = ""

    @property
    def context(self) -> LakeContext:
        """The parts of the lake."""
        return self.handle.context

    @property
    def whole(self) -> LakeHandle | None:
        """The lake, where the name stands for it as it is now."""
        return cast("LakeHandle", self.handle) if self.handle.is_lake else None

    @property
    def metadata(self) -> str:
        """The name of its metadata database."""
        return self.metadata_name or f"{METADATA}{self.alias}"


def attached_as(alias: str, lake: Handle | HasHandle) -> Attached:
    """Return an open lake, a past snapshot or an open transaction under a name."""
    handle = cast("Handle", getattr(lake, "handle", lake))
    return Attached(alias, handle, cast("LakeHandle", handle) if handle.is_lake else None)


@dataclass(frozen=True, slots=True)
class Target:
    """Something of a lake by its full name."""

    attached: Attached
    schema: str
    name: str

    @property
    def shown(self) -> str:
        """The name as users write it."""
        return f"{self.attached.alias}.{self.schema}.{self.name}"


@dataclass
class Attachments:
    """What all connections of a session share: the lakes by name, and a database in memory for everything else.

    In that database each lake is an empty database of its name, so that ``USE`` and DuckDB's own rules for names work.
    ``planner`` is a second one, in which statements are bound and listings made: tables of lakes are there by name,
    without rows.
    """

    root: duckdb.DuckDBPyConnection
    planner: duckdb.DuckDBPyConnection
    attached: dict[str, Attached] = field(default_factory=dict)
    """The lakes that are open."""
    late: dict[str, Callable[[], Attached]] = field(default_factory=dict)
    """Those that are opened when a statement first speaks of them."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    cursors: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    """What SET has set, for every lake."""
    pinned: set[str] = field(default_factory=set)
    """What SET SESSION has set."""
    opened: dict[tuple[str, str], Any] = field(default_factory=dict)
    """What lakes were opened with, where SET has changed it."""
    committed: dict[str, int] = field(default_factory=dict)
    """The last snapshot that one of the connections made in each lake."""
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    """How lakes are opened that ATTACH names by a secret."""
    frames: dict[str, Any] = field(default_factory=dict)
    """Rows that a user has given a name."""
    copies: dict[str, Any] = field(default_factory=dict)
    """What the planner's copies of the lakes were made from."""

    @property
    def lakes(self) -> dict[str, Attached]:
        """All lakes; they are open from now on."""
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
        """Attach a lake that is opened when it is needed, in a session that has no other database yet."""
        with self.lock:
            self._name(alias)
            self.late[fold(alias)] = opened

    def add(self, attached: Attached, *, if_not_exists: bool = False) -> bool:
        """Attach a lake; False when the name is taken and that is allowed. Raises ``AlreadyExistsError``."""
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
        """Let a setting hold for a lake, or what the lake was opened with when it is reset."""
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
        """What ``current_setting`` tells of a lake's setting. Raises ``ConfigError`` for an unknown one."""
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
        """True for the name of a DuckDB database."""
        with self.root.cursor() as cursor:
            # without a parameter: for the first one DuckDB loads pandas
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
        """The lake of a name, or None."""
        if alias is None:
            return None
        key = fold(alias)
        if key in self.late:
            self._open(key)
        return self.attached.get(key)

    def find(self, alias: str) -> Attached:
        """The lake of a name. Raises ``NotFoundError``."""
        found = self.get(alias)
        if found is None:
            known = [attached.alias for attached in self.lakes.values()]
            raise NotFoundError(f'no lake "{alias}" is attached', hint=nearest(alias, known))
        return found

    def metadata_of(self, name: str) -> Attached | None:
        """The lake whose metadata database has this name."""
        return next((found for found in self.lakes.values() if fold(found.metadata) == fold(name)), None)

    def close(self) -> None:
        """Give back everything."""
        for attached in list(self.attached.values()):
            if attached.owned and attached.lake is not None:
                attached.lake.close()
        self.attached.clear()
        self.late.clear()
        self.planner.close()
        self.root.close()


def parts_of(names: Sequence[str]) -> tuple[str | None, str | None, str]:
    """Catalog, schema and name of a dotted name. Raises ``SqlError`` for more parts."""
    if len(names) > 3:
        raise SqlError(f"{'.'.join(names)!r} has too many parts", hint="write catalog.schema.name")
    padded = [None] * (3 - len(names)) + list(names)
    return padded[0], padded[1], str(padded[2])
