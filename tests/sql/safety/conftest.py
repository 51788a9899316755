"""A lake with honest and hostile objects, and what must stay as it is around it."""

from __future__ import annotations

import hashlib
import socket
import sqlite3
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import quacklake
from quacklake import Safety

CANARY = "canary-7f3a91"
HERE = Path(__file__).parent

_SETUP = """
    CREATE TABLE t (id INTEGER, name VARCHAR, day DATE);
    INSERT INTO t VALUES (1, 'n1', '2024-01-01'), (2, 'n2', '2024-02-01'), (3, 'n3', NULL);
    INSERT INTO t SELECT i + 4, 'n' || (i + 4), DATE '2024-03-01' + i::INTEGER FROM range(20) r(i);
    DELETE FROM t WHERE id = 3;
    CREATE TABLE u (id INTEGER, tags VARCHAR[], doc JSON, amount DOUBLE);
    INSERT INTO u VALUES (1, ['a', 'b'], '{"a": "x", "b": [1]}', 1.5), (2, [], '{}', 2.5), (4, ['c'], NULL, 3);
    CREATE SCHEMA s2;
    CREATE TABLE s2.more AS SELECT 7 AS id;
    CREATE VIEW v AS SELECT id, name FROM t WHERE id < 10;
    CREATE VIEW vv AS SELECT * FROM v WHERE id > 1;
    CREATE MACRO twice(x) AS x * 2;
    CREATE MACRO above(x) AS TABLE SELECT id FROM t WHERE id > x;
    CREATE MACRO evil_macro(x) AS x;
    CREATE MACRO evil_table_macro(x) AS TABLE SELECT x AS x;
"""
#: Views that another client has stored and that we would refuse.
_VIEWS = {
    "evil_view": "SELECT content FROM read_text('{canary}')",
    "evil_csv_view": "SELECT * FROM read_csv('{canary}')",
    "evil_table_view": "SELECT * FROM '{data}/numbers.csv'",
    "evil_nested_view": "SELECT * FROM evil_view",
    "evil_settings_view": "SELECT current_setting('temp_directory') AS x",
    "evil_query_view": "SELECT * FROM query('FROM t')",
}
_MACROS = {
    "evil_macro": "(SELECT content FROM read_text(x))",
    "evil_table_macro": "SELECT content FROM read_text(x)",
}


@dataclass
class Place:
    """The files and the port of a test, and the connections made to that port."""

    home: Path
    port: int
    connections: list[object] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.home}/lake.db"

    def filled(self, statement: str) -> str:
        """A statement of a corpus with the places of this run."""
        return statement.format(
            canary=self.home / "canary.txt", data=self.home, files=self.home / "files", port=self.port
        )

    def state(self) -> dict[str, str]:
        """Every file but those that SQLite keeps beside a database, with what is in it."""
        return {
            str(path.relative_to(self.home)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.home.rglob("*"))
            if path.is_file() and not path.name.endswith(("-wal", "-shm"))
        }


def corpus(name: str) -> list[tuple[str, str]]:
    """The statements of a corpus with their kinds."""
    found = tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
    return [(kind, statement) for kind, statements in found.items() for statement in statements]


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("safe")
    (home / "canary.txt").write_text(f"{CANARY},1\n", encoding="utf-8")
    (home / "numbers.csv").write_text(f"id,word\n1,{CANARY}\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Place(home, listener.getsockname()[1])
        threading.Thread(target=_listen, args=(listener, found.connections), daemon=True).start()
        with quacklake.connect(found.url, data_path=home / "files", data_inlining_row_limit=2) as lake:
            lake.sql(_SETUP)
            for name in _VIEWS:
                lake.sql(f"CREATE VIEW {name} AS SELECT 1 AS x")
        _store(found)
        yield found


def _listen(listener: socket.socket, connections: list[object]) -> None:
    while True:
        try:
            connections.append(listener.accept())
        except OSError:
            return


def _store(place: Place) -> None:
    """Change stored queries as no client of ours would."""
    with sqlite3.connect(place.home / "lake.db") as database:
        for name, sql in _VIEWS.items():
            database.execute("UPDATE ducklake_view SET sql = ? WHERE view_name = ?", [place.filled(sql), name])
        for name, sql in _MACROS.items():
            which = "SELECT macro_id FROM ducklake_macro WHERE macro_name = ?"
            database.execute(f"UPDATE ducklake_macro_impl SET sql = ? WHERE macro_id = ({which})", [sql, name])
    database.close()


@pytest.fixture(scope="package")
def lake(place: Place) -> Iterator[quacklake.Lake]:
    with quacklake.connect(place.url) as found:
        yield found


@pytest.fixture(scope="package")
def safe(lake: quacklake.Lake) -> Iterator[quacklake.Session]:
    with quacklake.session(safety=Safety.server()) as found:
        found.attach(lake, "lake")
        found.use("lake")
        yield found


@pytest.fixture(scope="package")
def writing(lake: quacklake.Lake) -> Iterator[quacklake.Session]:
    """A safe session that may change rows."""
    with quacklake.session(safety=Safety.server(read_only=False)) as found:
        found.attach(lake, "lake")
        found.use("lake")
        yield found


@pytest.fixture(scope="package")
def open_session(lake: quacklake.Lake) -> Iterator[quacklake.Session]:
    with quacklake.session() as found:
        found.attach(lake, "lake")
        found.use("lake")
        yield found
