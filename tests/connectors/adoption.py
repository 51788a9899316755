"""Delta tables that the library cannot write, and what foreign tables are compared by."""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import quacklake
from tests.catalog.stock import Stock

__all__ = ["HandMade", "Json", "check_stock", "contents", "delta_vector", "field", "sorted_rows"]

Json = dict[str, Any]
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, and a digest of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def sorted_rows(table: pa.Table, names: Sequence[str] | None = None) -> list[str]:
    """The rows of a table as texts, in an order that does not depend on where they come from."""
    chosen = sorted(table.column_names) if names is None else list(names)
    return sorted(repr(row) for row in table.select(chosen).to_pylist())


def check_stock(lake: quacklake.Lake, found: pa.Table, stock: Stock, name: str = "t") -> None:
    """Stock DuckDB reads the same rows from the lake."""
    columns = ", ".join(f'"{each}"::VARCHAR' for each in sorted(found.column_names))
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.register("found", found)
        ours = connection.execute(f"SELECT {columns} FROM found").fetchall()
    theirs = stock.run(lake.url, f"SELECT {columns} FROM {name}")
    assert sorted(map(repr, theirs)) == sorted(map(repr, ours))


def field(name: str, type_: Any, *, id_: int | None = None, physical: str | None = None, nullable: bool = True) -> Json:
    """A column as the schema of a Delta table has it."""
    metadata: Json = {}
    if id_ is not None:
        metadata["delta.columnMapping.id"] = id_
    if physical is not None:
        metadata["delta.columnMapping.physicalName"] = physical
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def delta_vector(positions: Sequence[int]) -> bytes:
    """A deletion vector as Delta has it, without its frame."""
    from pyroaring import BitMap64

    return struct.pack("<i", 1681511377) + BitMap64(positions).serialize()


def z85(data: bytes) -> str:
    text = ""
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4])
        digits = ""
        for _ in range(5):
            number, digit = divmod(number, 85)
            digits = _Z85[digit] + digits
        text += digits
    return text


class HandMade:
    """A Delta table whose log a test writes itself."""

    def __init__(
        self,
        folder: Path,
        fields: Sequence[Json],
        *,
        partition_by: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        features: Sequence[str] = (),
        id_: str = "the-table",
    ) -> None:
        self.folder = folder
        self.version = -1
        (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
        protocol: Json = (
            {"minReaderVersion": 3, "minWriterVersion": 7}
            if features
            else {"minReaderVersion": 1, "minWriterVersion": 2}
        )
        if features:
            protocol |= {"readerFeatures": list(features), "writerFeatures": list(features)}
        self.commit({"protocol": protocol}, self.metadata(fields, partition_by, configuration, id_))

    @staticmethod
    def metadata(
        fields: Sequence[Json],
        partition_by: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        id_: str = "the-table",
    ) -> Json:
        return {
            "metaData": {
                "id": id_,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": list(fields)}),
                "partitionColumns": list(partition_by),
                "configuration": dict(configuration or {}),
                "createdTime": 0,
            }
        }

    def commit(self, *actions: Json) -> None:
        self.version += 1
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (self.folder / "_delta_log" / f"{self.version:020}.json").write_text(text)

    def file(
        self, name: str, rows: pa.Table, values: Mapping[str, str | None] | None = None, vector: Json | None = None
    ) -> Json:
        """Write a Parquet file, and return the action that adds it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            pq.write_table(rows, path)
        add: Json = {
            "path": name,
            "partitionValues": dict(values or {}),
            "size": path.stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
        }
        return {"add": add | ({} if vector is None else {"deletionVector": vector})}

    def vector(self, positions: Sequence[int], *, prefix: str = "", inline: bool = False) -> Json:
        """Write a deletion vector, and return what the log says of it."""
        data = delta_vector(positions)
        facts: Json = {"sizeInBytes": len(data), "cardinality": len(positions)}
        if inline:
            padded = data + b"\0" * (-len(data) % 4)
            return {"storageType": "i", "pathOrInlineDv": z85(padded), **facts}
        name = uuid.uuid4()
        folder = self.folder / prefix
        folder.mkdir(exist_ok=True)
        frame = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        (folder / f"deletion_vector_{name}.bin").write_bytes(b"\x01" + frame)
        return {"storageType": "u", "pathOrInlineDv": prefix + z85(name.bytes), "offset": 1, **facts}
