"""The place of an Iceberg table: a catalog of one of four kinds, a namespace and a name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from quacklake.connectors.object_store import iceberg_options
from quacklake.connectors.options import ConnectorOptions
from quacklake.errors import ConfigError, ConnectorError, ConnectorUnavailableError, NotFoundError

CATALOGS = ("rest", "glue", "hive", "sql")


@dataclass
class IcebergTable:
    """One table of a catalog, which is opened when it is first needed. Its settings, which hold keys, are not shown."""

    namespace: tuple[str, ...]
    name: str
    catalog_name: str
    settings: Mapping[str, Any] = field(repr=False)
    _catalog: Catalog | None = field(default=None, repr=False)

    @classmethod
    def of(cls, read: ConnectorOptions) -> IcebergTable:
        """Take the options. Raises ``ConfigError``."""
        kind = read.choice("catalog_type", CATALOGS, "rest")
        settings = {"type": kind, "warehouse": read.optional("warehouse"), "uri": read.optional("catalog_uri")}
        if kind == "glue" and (uri := settings.pop("uri")):  # arn:aws:glue:<region>:<account>:catalog
            settings["glue.region"] = uri.split(":")[3] if uri.startswith("arn:") and uri.count(":") > 3 else None
            settings["glue.endpoint"] = None if uri.startswith("arn:") else uri
        given = {key: value for key, value in settings.items() if value} | iceberg_options(read.storage())
        if kind != "glue" and "uri" not in given:
            raise ConfigError(f"iceberg: a catalog of the type {kind} needs catalog_uri")
        namespace = tuple(read.text("namespace").split("."))
        return cls(namespace, read.text("table_name"), read.text("catalog_name", "quacklake"), given)

    @property
    def identifier(self) -> tuple[str, ...]:
        """The namespace and the name."""
        return (*self.namespace, self.name)

    @property
    def catalog(self) -> Catalog:
        """The catalog, open."""
        if self._catalog is None:
            with failing("the Iceberg catalog cannot be opened"):
                self._catalog = load_catalog(self.catalog_name, **self.settings)
        return self._catalog

    def load(self) -> Table:
        """Return the table as it is now. Raises ``NotFoundError``."""
        catalog = self.catalog
        with failing("the Iceberg table cannot be opened"):
            try:
                return catalog.load_table(self.identifier)
            except NoSuchTableError as error:
                raise NotFoundError(f"there is no Iceberg table {'.'.join(self.identifier)}") from error


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Turn the errors of the library into ours."""
    try:
        yield
    except (CommitFailedException, OSError, SQLAlchemyError, RESTError) as error:
        raise ConnectorUnavailableError(f"{what}: {error}") from error
    except (ValueError, NotImplementedError) as error:
        raise ConnectorError(f"{what}: {error}") from error
