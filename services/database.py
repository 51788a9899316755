"""The base of database servers."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from services.process import Server

__all__ = ["DatabaseServer"]


class DatabaseServer(Server):
    """A server that holds many databases."""

    @abstractmethod
    def url_of(self, database: str) -> str:
        """The URL of ``database``."""

    @abstractmethod
    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""

    @abstractmethod
    def drop_database(self, name: str) -> None:
        """Drop a database if it exists."""

    @contextmanager
    def new_database(self) -> Iterator[str]:
        """The URL of an empty database by a name that no other has, dropped afterwards."""
        name = f"d_{uuid.uuid4().hex}"
        url = self.create_database(name)
        try:
            yield url
        finally:
            self.drop_database(name)
