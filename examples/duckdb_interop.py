"""One lake, two clients in one process: stock DuckDB and Quacklake take turns.

The ducklake extension comes as a Python package here, so that nothing is downloaded; with a network,
``INSTALL ducklake; INSTALL sqlite;`` in DuckDB does the same.

    pip install quacklake duckdb-extensions duckdb-extension-ducklake duckdb-extension-sqlite-scanner
    python examples/duckdb_interop.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb

import quacklake


def load_extensions(connection: duckdb.DuckDBPyConnection) -> bool:
    """Load what DuckDB needs for a DuckLake in SQLite; False when the packages are not installed."""
    try:
        from duckdb_extensions import import_extension

        for name in ("ducklake", "sqlite_scanner"):
            import_extension(name, con=connection)
            connection.load_extension(name)
    except ImportError as error:
        print(f"nothing to show: {error}")
        return False
    return True


def main(directory: Path) -> None:
    connection = duckdb.connect(config={"extension_directory": str(directory / "extensions")})
    if not load_extensions(connection):
        return

    # DuckDB makes the lake …
    catalog, files = directory / "lake.db", directory / "data"
    connection.execute(f"ATTACH 'ducklake:sqlite:{catalog}' AS lake (DATA_PATH '{files}/')")
    connection.execute("CREATE TABLE lake.numbers AS SELECT i, i * i AS square FROM range(1000) t(i)")

    # … Quacklake reads and writes it at the same time: it excludes DuckDB's own SQLite library (on Linux) …
    with quacklake.connect(f"ducklake:sqlite:{catalog}") as lake:
        numbers = lake.table("numbers")
        print(f"made by DuckDB, read by Quacklake: {numbers.count():,} rows, sum {sum_of(numbers)}")
        numbers.delete("i % 2 = 1")
        numbers.append([{"i": 1000, "square": 1_000_000}])

    # … and DuckDB sees what changed, now and at any snapshot before.
    (rows,) = connection.sql("SELECT count(*), max(i) FROM lake.numbers").fetchall()
    print(f"changed by Quacklake, read by DuckDB: {rows}")
    for (version,) in connection.sql("SELECT snapshot_id FROM ducklake_snapshots('lake')").fetchall():
        if version > 0:
            (count,) = connection.sql(f"SELECT count(*) FROM lake.numbers AT (VERSION => {version})").fetchall()
            print(f"  at snapshot {version}: {count}")
    connection.close()


def sum_of(table: quacklake.Table) -> int:
    """The sum of the squares, by DuckDB over the lake's Arrow stream."""
    stream = table.scan(columns=["square"]).to_reader()  # noqa: F841  DuckDB finds it by its name
    found = duckdb.sql("SELECT sum(square)::BIGINT FROM stream").fetchall()
    return int(found[0][0])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
