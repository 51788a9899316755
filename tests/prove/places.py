"""The places of the lakes of the proofs: each has a folder and, on a server, its own database."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import quacklake
from services import DatabaseServer, Server
from tests.crash.homes import Home

__all__ = ["SERVERS", "Places"]

SERVERS = ("postgres", "mysql")


class Places:
    """Makes places for lakes; ``servers`` gives the server of a kind of catalog."""

    def __init__(self, folder: Path, servers: Callable[[str], Server]) -> None:
        self.folder = folder
        self._servers = servers
        self._names: dict[Home, tuple[str, str]] = {}

    def new(self, database: str) -> Home:
        """A place without a lake."""
        name = f"p_{uuid.uuid4().hex}"
        folder = self.folder / name
        folder.mkdir(parents=True)
        if database in SERVERS:
            url = cast(DatabaseServer, self._servers(database)).create_database(name)
        else:
            url = f"{database}:///{folder / 'lake.db'}"
        home = Home(url, folder / "data")
        self._names[home] = database, name
        return home

    def make(self, database: str, **settings: object) -> Home:
        """A place with an empty lake."""
        home = self.new(database)
        options = cast(Mapping[str, str], settings)
        quacklake.connect(home.url, data_path=home.data, **options).close()  # type: ignore[arg-type]
        return home

    def remove(self, home: Home) -> None:
        """Remove a lake. Lakes that are not removed are kept for the search for an error."""
        database, name = self._names.pop(home)
        if database in SERVERS:
            cast(DatabaseServer, self._servers(database)).drop_database(name)
        shutil.rmtree(self.folder / name)
