"""Ways to ruin a lake: by SQL in its catalog, or by damaging a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Corruption", "Ruin", "backwards", "break_footer", "damaged", "scramble", "shorten", "sql", "stored"]

Ruin = Callable[[sqlite3.Connection, Path], None]


@dataclass(frozen=True)
class Corruption:
    """One way to damage a lake, and the code that must report it."""

    code: str
    name: str
    ruin: Ruin
    deep: bool = False
    repairable: bool = False


def sql(*statements: str) -> Ruin:
    def ruin(connection: sqlite3.Connection, folder: Path) -> None:
        for statement in statements:
            before = connection.total_changes
            connection.execute(statement)
            if not statement.startswith(("DROP", "ALTER", "CREATE")):
                assert connection.total_changes > before, f"{statement} changed nothing"

    return ruin


def damaged(damage: Callable[[Path], None], condition: str = "data_file_id = 0", table: str = "data_file") -> Ruin:
    def ruin(connection: sqlite3.Connection, folder: Path) -> None:
        (path,) = connection.execute(f"SELECT path FROM ducklake_{table} WHERE {condition}").fetchone()
        found = next((folder / "data").rglob(Path(path).name))
        damage(found)

    return ruin


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def scramble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4:40] = b"\xff" * 36
    path.write_bytes(data)


def break_footer(path: Path) -> None:
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[-8:-4], "little")
    data[-8 - length : -8] = b"\xff" * length
    path.write_bytes(data)


def stored(name: str, field_id: int, first: int) -> Ruin:
    """The first file gets a column of numbers from ``first`` on, as compaction would store them."""

    def ruin(connection: sqlite3.Connection, folder: Path) -> None:
        (path,) = connection.execute("SELECT path FROM ducklake_data_file WHERE data_file_id = 0").fetchone()
        found = next((folder / "data").rglob(path))
        table = pq.read_table(found)
        field = pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": str(field_id).encode()})
        table = table.append_column(field, pa.array(range(first, first + table.num_rows), pa.int64()))
        pq.write_table(table, found)
        data = found.read_bytes()
        connection.execute(
            "UPDATE ducklake_data_file SET file_size_bytes = ?, footer_size = ? WHERE data_file_id = 0",
            (len(data), int.from_bytes(data[-8:-4], "little")),
        )

    return ruin


def backwards(connection: sqlite3.Connection, folder: Path) -> None:
    """The positions of a delete file are out of order."""
    id_, path = connection.execute("SELECT delete_file_id, path FROM ducklake_delete_file ORDER BY 1").fetchone()
    found = next((folder / "data").rglob(path))
    table = pq.read_table(found)
    pq.write_table(table.take(list(range(table.num_rows))[::-1]), found)
    data = found.read_bytes()
    connection.execute(
        "UPDATE ducklake_delete_file SET file_size_bytes = ?, footer_size = ? WHERE delete_file_id = ?",
        (len(data), int.from_bytes(data[-8:-4], "little"), id_),
    )
