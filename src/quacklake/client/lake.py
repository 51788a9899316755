"""A lake that a service has."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from quacklake import Result
from quacklake.client.parameters import to_json
from quacklake.client.table import RemoteTable
from quacklake.client.transport import Transport, segment, without_token
from quacklake.errors import InputError, NotFoundError, ReadOnlyError

__all__ = ["RemoteLake", "RemoteLakeAt", "RemoteReader", "connect_service"]


def connect_service(
    url: str,
    *,
    token: str | None = None,
    lake: str | None = None,
    timeout: float = 60.0,
    retries: int = 5,
    ca_file: str | None = None,
) -> RemoteLake:
    """Return the lake that a service has. ``lake`` names one of several; ``timeout`` is in seconds.

    ``ca_file`` has the certificates that may sign that of the service, if those of the system do not. A token in the
    URL (``https://token@host``) is used if there is no other. Raise ``UnauthenticatedError`` for a wrong token, and
    ``ConnectorUnavailableError`` when nobody answers.
    """
    address, found = without_token(url)
    token = found if token is None else token
    transport = Transport(address, token, timeout=timeout, retries=retries, lake=lake, ca_file=ca_file)
    try:
        transport.facts("/lake")
    except BaseException:
        transport.close()
        raise
    return RemoteLake(transport)


class RemoteReader:
    """Reads tables and runs SQL; the base of lakes and of past snapshots."""

    def __init__(self, transport: Transport, version: int | None = None) -> None:
        self.transport = transport
        self._version = version

    @property
    def at_params(self) -> dict[str, Any]:
        """The parameters of requests that read this state."""
        return {"version": self._version}

    def check_writable(self) -> None:
        """Raise ``ReadOnlyError`` for a past snapshot."""
        if self._version is not None:
            raise ReadOnlyError("a past snapshot is read-only", hint="write through the lake itself")

    def sql(
        self, text: str, params: Sequence[Any] | dict[str, Any] | None = None, *, request_id: str | None = None
    ) -> Result:
        """Run SQL in a safe session of the service, and return the rows as they arrive.

        With a ``request_id`` of your own, ``cancel`` stops the statement from another thread.
        """
        if isinstance(params, dict):
            given: Any = {str(name): to_json(value) for name, value in params.items()}
        else:
            given = None if params is None else to_json(list(params))
        body = {"sql": text, "typed_parameters": given, "version": self._version}
        return self.transport.rows("POST", "/sql", body=body, request_id=request_id)

    def cancel(self, request_id: str) -> bool:
        """Cancel a statement that runs under this id; False if it has just ended. Raise ``NotFoundError``."""
        return bool(self.transport.delete(f"/sql/{segment(request_id)}")["cancelled"])

    def table(self, name: str) -> RemoteTable:
        """Return a table by name. A missing table raises only on use."""
        return RemoteTable(self, name)

    def __getitem__(self, name: str) -> RemoteTable:
        """Return an existing table. Raise ``NotFoundError``."""
        table = self.table(name)
        table.describe()
        return table

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        try:
            self.table(name).describe()
        except NotFoundError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def schemas(self) -> list[str]:
        """Return the names of the schemas."""
        return list(self.transport.facts("/schemas", self.at_params)["schemas"])

    def tables(self, schema: str | None = None) -> list[str]:
        """Return the names of the tables as ``schema.table``."""
        return list(self.transport.facts("/tables", {**self.at_params, "schema": schema})["tables"])

    def views(self, schema: str | None = None) -> list[str]:
        """Return the names of the views as ``schema.view``."""
        return list(self.transport.facts("/tables", {**self.at_params, "schema": schema})["views"])


class RemoteLake(RemoteReader):
    """A lake that a service has, with the methods of ``quacklake.Lake`` for reading, appending and SQL."""

    def __repr__(self) -> str:
        return f"<Lake {self.transport.url}>"

    @property
    def url(self) -> str:
        """The URL of the service."""
        return self.transport.url

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()

    def __enter__(self) -> RemoteLake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def current_snapshot(self) -> int:
        """Return the id of the newest snapshot."""
        return int(self.transport.facts("/lake")["snapshot"])

    def at(
        self,
        version: int | str | None = None,
        timestamp: dt.datetime | str | None = None,
        tag: str | None = None,
    ) -> RemoteLakeAt:
        """Return the lake, read-only, at a snapshot id, a tag or a time. Text and naive times are UTC."""
        if [version, timestamp, tag].count(None) != 2:
            raise InputError("pass one of version=, timestamp= and tag=")
        if isinstance(version, str):
            version, tag = None, version
        if tag is not None:
            version = self._find_tag(tag)
        when = timestamp.isoformat() if isinstance(timestamp, dt.datetime) else timestamp
        found = self.transport.facts("/schemas", {"version": version, "timestamp": when})
        return RemoteLakeAt(self.transport, int(found["snapshot"]))

    def _find_tag(self, tag: str) -> int:
        for each in self.transport.facts("/tags")["tags"]:
            if each["tag"] == tag:
                return int(each["snapshot_id"])
        raise NotFoundError(f'there is no tag "{tag}"')

    def snapshots(self) -> pa.Table:
        """Return every snapshot, oldest first, as ``Lake.snapshots`` does; times are texts."""
        found: list[dict[str, Any]] = []
        before: int | None = None
        while True:
            page = self.transport.facts("/snapshots", {"before": before})
            found += page["snapshots"]
            before = page["next"]
            if before is None:
                return pa.Table.from_pylist(found[::-1])


class RemoteLakeAt(RemoteReader):
    """A read-only lake at one snapshot."""

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot."""
        assert self._version is not None
        return self._version

    def __repr__(self) -> str:
        return f"<Lake {self.transport.url} at snapshot {self.snapshot_id}>"
