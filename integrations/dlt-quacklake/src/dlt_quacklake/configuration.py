"""The settings of a destination."""

import dataclasses
from typing import Any, Final, Optional

from dlt.common.configuration import configspec
from dlt.common.configuration.specs import CredentialsConfiguration
from dlt.common.destination.client import DestinationClientDwhWithStagingConfiguration
from dlt.common.typing import TSecretStrValue

from quacklake import dbapi


@configspec
class QuacklakeCredentials(CredentialsConfiguration):
    """A lake, as ``quacklake.connect`` opens it."""

    lake: TSecretStrValue = None  # type: ignore[assignment]
    """The URL of the lake's catalog, which may hold a password."""
    data_path: Optional[str] = None  # noqa: UP045 - dlt reads these annotations
    catalog: Optional[str] = None  # noqa: UP045
    """The tenant, in a shared lake."""
    settings: Optional[dict[str, Any]] = None  # noqa: UP045
    """Further settings of ``quacklake.connect``."""

    def parse_native_representation(self, native_value: Any) -> None:
        """Take the URL of a lake for its credentials."""
        self.lake = native_value

    def connect(self) -> dbapi.Connection:
        """Open the lake, or create it."""
        more = {} if self.catalog is None else {"catalog": self.catalog}
        return dbapi.connect(self.lake, self.data_path, autocommit=True, **more, **(self.settings or {}))

    def __str__(self) -> str:
        return "quacklake"  # a URL may hold a password


@configspec
class QuacklakeClientConfiguration(DestinationClientDwhWithStagingConfiguration):
    """The destination as dlt knows it."""

    destination_type: Final[str] = dataclasses.field(  # type: ignore[misc]
        default="quacklake", init=False, repr=False, compare=False
    )
    credentials: QuacklakeCredentials = None  # type: ignore[assignment]
