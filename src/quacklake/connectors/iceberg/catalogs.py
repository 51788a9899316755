"""The place of an Iceberg table: a catalog of one of four kinds, a namespace and a name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    ValidationException,
)
from pyiceberg.table import StaticTable, Table
from sqlalchemy.exc import SQLAlchemyError

from quacklake.config import redact
from quacklake.connectors.object_store import iceberg_options
from quacklake.connectors.options import ConnectorOptions
from quacklake.errors import (
    ConfigError,
    ConnectorError,
    ConnectorUnavailableError,
    MissingExtraError,
    NotFoundError,
    QuacklakeError,
)

CATALOGS = ("rest", "glue", "hive", "sql")
_EXAMPLES = {
    "rest": "catalog_uri='https://catalog.example.com'",
    "hive": "catalog_uri='thrift://metastore:9083'",
    "sql": "catalog_uri='sqlite:///catalog.db'",
}
_SIGN_IN = ("credential", "token", "scope", "oauth2_server_uri")
"""Options of a REST catalog."""
_PASSED = ("client.", "glue.", "hive.", "header.")
"""The prefix of options that the library gets as they are."""
_UNREACHED = "Check catalog_uri, and that the catalog and the place of its files can be reached from here."
_ZONED = "timestamp with local time zone"
_HIVE_2 = "Hive 2 has no type for times with a zone: set 'hive.hive2-compatible'=true."
_ARN = re.compile(r"arn:aws[\w-]*:glue:([\w-]+):(\d*)(?::.*)?")


class Place(Protocol):
    """The place of an Iceberg table."""

    def load(self) -> Table:
        """Return the table as it is now."""


@dataclass
class IcebergFile:
    """A table by its metadata file, without a catalog: as it was when that was written, and only to be read."""

    metadata: str
    settings: Mapping[str, str] = field(repr=False)

    def load(self) -> Table:
        """Return the table. Raise ``ConnectorError`` for a file that describes none."""
        with failing("the Iceberg table cannot be opened"):
            try:
                return StaticTable.from_metadata(self.metadata, dict(self.settings))
            except (ValueError, FileNotFoundError) as error:
                raise ConnectorError(f"{self.metadata} is not the metadata of an Iceberg table: {error}") from error


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
        """Take the options. Raise ``ConfigError``."""
        kind = read.choice("catalog_type", CATALOGS, "rest")
        uri = read.optional("catalog_uri")
        if kind != "glue" and uri is None:
            raise ConfigError(f"iceberg: a catalog of the type {kind} needs catalog_uri", hint=_EXAMPLES[kind])
        settings = {"type": kind, "warehouse": read.optional("warehouse"), **_place(kind, uri)}
        if kind == "rest":
            settings |= {name.replace("_", "-"): read.optional(name) for name in _SIGN_IN}
        given: dict[str, Any] = {key: value for key, value in settings.items() if value}
        given |= iceberg_options(read.storage()) | read.prefixed(*_PASSED)
        if (retries := read.number("glue.max-retries")) is not None:
            given["glue.max-retries"] = retries  # the library does not take a text
        parts = read.names("namespace") or [read.text("namespace")]
        namespace = tuple(part for name in parts for part in name.split("."))
        if kind in ("glue", "hive") and len(namespace) > 1:
            raise ConfigError(f"iceberg: a namespace of the type {kind} has one level, not {'.'.join(namespace)}")
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
        """Return the table as it is now. Raise ``NotFoundError``."""
        catalog = self.catalog
        with failing("the Iceberg table cannot be opened"):
            try:
                return catalog.load_table(self.identifier)
            except NoSuchTableError as error:
                raise NotFoundError(f"there is no Iceberg table {'.'.join(self.identifier)}") from error


def _place(kind: str, uri: str | None) -> dict[str, str | None]:
    """Return the settings that an address stands for. Raise ``ConfigError`` for one that is none."""
    if kind == "glue" and uri is not None and not uri.startswith(("http://", "https://")):
        match = _ARN.fullmatch(uri)
        if match is None:
            hint = "catalog_uri='arn:aws:glue:eu-central-1:123456789012:catalog', or the address of an endpoint"
            raise ConfigError(f"iceberg: catalog_uri={redact(uri)!r} is not a Glue catalog", hint=hint)
        return {"glue.region": match[1], "glue.id": match[2]}
    if kind == "glue":
        return {"glue.endpoint": uri}
    schemes = {"hive": ("thrift://",), "rest": ("http://", "https://")}
    if kind in schemes and uri is not None and not uri.startswith(schemes[kind]):
        raise ConfigError(
            f"iceberg: catalog_uri={redact(uri)!r} is not an address of the type {kind}", hint=_EXAMPLES[kind]
        )
    return {"uri": uri}


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Turn the errors of the library into ours."""
    try:
        yield
    except QuacklakeError:
        raise
    except CommitFailedException as error:
        raise ConnectorUnavailableError(f"{what}: {error}") from error
    except (OSError, SQLAlchemyError, RESTError) as error:
        raise ConnectorUnavailableError(f"{what}: {redact(str(error))}", hint=_UNREACHED) from error
    except NotInstalledError as error:
        hint = "pip install boto3 (for Glue), thrift (for Hive), or the driver of the database (for SQL)"
        raise MissingExtraError(f"{what}: {error}", hint=hint) from error
    except (ValueError, NotImplementedError, ValidationException) as error:
        raise ConnectorError(f"{what}: {error}") from error
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if package == "hive_metastore":  # the metastore has answered, and refused
            message = redact(str(getattr(error, "message", error)))
            raise ConnectorError(f"{what}: {message}", hint=_HIVE_2 if _ZONED in message else None) from error
        if package not in ("botocore", "thrift"):
            raise
        raise ConnectorUnavailableError(f"{what}: {redact(str(error))}", hint=_UNREACHED) from error
