"""Find the paths used by the catalogs of a shared lake, and by the other lakes of its database.

This reads all catalogs, so it is only used before removing a whole folder.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from quacklake.catalog.file_names import lake_data_paths
from quacklake.catalog.registry import Registry

_TABLES = ("data_file", "delete_file", "table", "schema")
"""The tables whose paths may be absolute."""


def data_paths(registry: Registry) -> list[str]:
    """Return the data paths of all catalogs that are not dropped, and of the other lakes of the database."""
    t, catalog = registry.meta["metadata"], registry.meta.catalog
    own = sa.select(t.c.value).join(catalog, catalog.c.catalog_id == t.c.catalog_id)
    own = own.where(t.c.key == "data_path", t.c.scope.is_(None), catalog.c.dropped_ms.is_(None))
    found = [row[0] for row in registry.run("catalog_data_paths", own)]
    schema = registry.meta.metadata.schema
    return [*found, *lake_data_paths(registry.connection, registry.backend, schema)]


def named_paths(registry: Registry) -> Iterator[str]:
    """Yield the absolute paths named by catalogs that are not dropped; only these lead out of a folder."""
    catalog = registry.meta.catalog
    for name in _TABLES:
        t = registry.meta[name]
        absolute = t.c.path_is_relative == sa.literal(False, t.c.path_is_relative.type)
        statement = sa.select(t.c.path).join(catalog, catalog.c.catalog_id == t.c.catalog_id)
        for row in registry.run("named_paths", statement.where(absolute, catalog.c.dropped_ms.is_(None))):
            yield row[0] or ""


def whole_folders(registry: Registry) -> list[str]:
    """Return the folders of catalogs outside the lake's data path: those of converted lakes."""
    t = registry.meta.catalog
    elsewhere = sa.or_(t.c.folder.startswith("/"), t.c.folder.contains("://"))
    return [row[0] for row in registry.run("whole_folders", sa.select(t.c.folder).where(elsewhere))]
