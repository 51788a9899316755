"""Resolve names in statements to objects of a lake, of its metadata, or of DuckDB itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quacklake.errors import NotFoundError, nearest
from quacklake.format.names import fold
from quacklake.operations.reference import DEFAULT_SCHEMA
from quacklake.sql.attached import Attached, Attachments, Target, parts_of

if TYPE_CHECKING:
    from quacklake.transaction import Transaction

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
        catalog, schema, name = parts_of(names)
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

    def has_schema(self, attached: Attached, schema: str) -> bool:
        """Return True when a lake has this schema."""
        return any(fold(info.name) == fold(schema) for info in self.view(attached).schemas())

    def target(self, names: Sequence[str]) -> Target | None:
        """Return the place where an object of this name is created or changed, or None when that is not in a lake."""
        catalog, schema, name = parts_of(names)
        found = next(iter(self.places(names)), None)
        used = self.default
        if found is None and catalog is None and schema is not None and used is not None:
            is_other = fold(schema) in ("temp", "memory", "system") or self.attachments.is_database(schema)
            is_other = is_other or self.attachments.metadata_of(schema) is not None
            return None if is_other else Target(used, schema, name)
        return found

    def explicit(self, names: Sequence[str]) -> bool:
        """Return True when the name itself is qualified with a lake."""
        catalog, schema, _ = parts_of(names)
        return self.attachments.get(catalog if catalog is not None else schema) is not None


def missing(target: Target, tx: Transaction, what: str = "Table", *, version: int | None = None) -> NotFoundError:
    """Return the error for a name that a lake does not have, with the most similar names that it has.

    ``version`` is the snapshot that the statement itself asks for.
    """
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
    elsewhere = [name for name in known if fold(name.rpartition(".")[2]) == fold(target.name)]
    if elsewhere:
        message += f'. Did you mean "{" or ".join(elsewhere[:3])}"?'
    return NotFoundError(message, hint=None if elsewhere else nearest(own, short))
