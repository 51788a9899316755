"""Reads past deletes of any density: a row is looked for by its block, and only the deleted ones are left out."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import quacklake
from tests import seeds

ROWS = 2_500
FILES = 3
#: Deleted rows of each thousand, and the bits that number a row within its block then.
DENSITIES = {0.4: 5, 2: 5, 10: 4, 40: 2, 90: 1, 400: 0}


@pytest.mark.daily(0.3)
@pytest.mark.parametrize("per_thousand", DENSITIES)
@pytest.mark.parametrize("kind", ["files", "vectors", "inline", "encrypted"])
def test_just_the_deleted_rows_are_gone(tmp_path: Path, kind: str, per_thousand: float) -> None:
    chance = seeds.chance("deleted blocks", kind, per_thousand)
    with _lake(tmp_path, kind) as lake:
        table = lake.table("t")
        left = set(range(FILES * ROWS))
        at = {lake.current_snapshot(): set(left)}
        for _ in range(2):  # the second delete makes files whose rows belong to two snapshots
            gone = {id_ for id_ in left if chance.random() * 2_000 < per_thousand} or {chance.choice(sorted(left))}
            gone |= {id_ + chance.choice((-1, 1)) for id_ in sorted(gone)[::7]} & left  # neighbours share a block
            table.delete(f"id IN ({', '.join(map(str, sorted(gone)))})")
            left -= gone
            at[lake.current_snapshot()] = set(left)
        for snapshot, expected in at.items():
            then = lake.at(version=snapshot).table("t")
            assert sorted(then.to_arrow(["id"]).column("id").to_pylist()) == sorted(expected)
            assert then.count("id % 2 = 0 AND name IS NULL") == sum(id_ % 6 == 0 for id_ in expected)
        with duckdb.connect() as connection:
            lake.register(connection)
            row = connection.execute("SELECT count(*), sum(id), count(name) FROM t").fetchone()
        assert row == (len(left), sum(left), sum(id_ % 3 != 0 for id_ in left))


def test_blocks_are_as_large_as_deletes_are_rare(tmp_path: Path) -> None:
    for per_thousand, bits in DENSITIES.items():
        with _lake(tmp_path / str(per_thousand), "files") as lake:
            table = lake.table("t")
            table.delete(f"hash(id) % 10_000 < {per_thousand * 10}")
            text = _sql(lake)
            assert text.count("ANTI JOIN") == 1
            assert (f"d.key >> {bits}" in text) is (bits > 0)


def _lake(folder: Path, kind: str) -> quacklake.Lake:
    folder.mkdir(exist_ok=True)
    lake = quacklake.connect(
        f"sqlite:///{folder}/lake.db",
        data_path=folder / "data",
        data_inlining_row_limit=ROWS if kind == "inline" else 0,
        encrypted=kind == "encrypted",
    )
    lake.options.set("write_deletion_vectors", kind == "vectors")
    table = lake.create_table("t", {"id": pa.int64(), "name": pa.string()})
    for first in range(0, FILES * ROWS, ROWS):
        ids = range(first, first + ROWS)
        table.append(pa.table({"id": ids, "name": [None if id_ % 3 == 0 else f"n{id_}" for id_ in ids]}))
    table.flush_inlined_data()
    return lake


def _sql(lake: quacklake.Lake) -> str:
    with duckdb.connect() as connection:
        lake.register(connection)
        row = connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 't'").fetchone()
    assert row is not None
    return str(row[0]).replace(chr(34), "")
