"""Import SQLite files: SQLite itself says which values they have."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import ConnectorError, InputError
from tests.seeds import chance
from tests.transfer.conftest import texts

TYPES = """
    CREATE TABLE everything (
        id INTEGER PRIMARY KEY, i INT NOT NULL DEFAULT 7, b BOOLEAN, r REAL, t TEXT DEFAULT 'it''s', v VARCHAR(3), bl BLOB,
        d DATE, ts DATETIME, ti TIME, p DECIMAL(10,2), j JSON, anything, mine MONEY, late TEXT DEFAULT CURRENT_TIMESTAMP,
        made INTEGER GENERATED ALWAYS AS (i % 10), UNIQUE (i));
    INSERT INTO everything (id, i, b, r, t, v, bl, d, ts, ti, p, j, anything, mine) VALUES
        (9223372036854775807, -9223372036854775808, 1, 5e-324, 'a' || char(10) || '☃', '', x'00ff', '2024-02-29',
         '2024-02-29 12:30:00.123456', '23:59:59', 12345678.91, '{"a": 1.10}', 1, 'x'),
        (1, 1, 0, 1, NULL, 'long enough', x'', '9999-12-31', '0001-01-01', '00:00', '5', 'null', 1.5, NULL),
        (2, 2, NULL, 1e999, '', NULL, NULL, NULL, NULL, NULL, -7, NULL, NULL, 'y');
    CREATE TABLE "drop ""table; --" ("a""b" INTEGER, PRIMARY KEY ("a""b") ON CONFLICT ABORT) WITHOUT ROWID;
    INSERT INTO "drop ""table; --" VALUES (3);
    CREATE TABLE child (x TEXT PRIMARY KEY, parent INTEGER REFERENCES everything (id));
    CREATE VIEW seen AS SELECT 1;
    CREATE INDEX quick ON child (parent);
    CREATE TRIGGER watch AFTER INSERT ON child BEGIN SELECT 1; END;
"""


def make(path: Path, script: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


def test_every_value_of_a_file_comes_over(lake: quacklake.Lake, tmp_path: Path) -> None:
    path = make(tmp_path / "a #file?.db", TYPES)
    before = path.read_bytes()
    report = lake.import_from(f"sqlite:{path}")
    assert {table.table: table.rows for table in report.tables} == {
        "main.child": 0,
        'main.drop "table; --': 1,
        "main.everything": 3,
    }
    assert {part.what for part in report.left_out} == {
        "index quick", "main.child", "main.everything.late", "main.everything.made", "trigger watch", "view seen",
    }  # fmt: skip
    everything = lake.table("everything")
    assert everything.primary_key == ("id",)
    defaults = {column.name: column.default for column in everything.info.schema.columns if column.default is not None}
    assert defaults == {"i": "7", "t": "'it''s'"}
    assert [column.name for column in everything.info.schema.columns if not column.nullable] == ["id", "i"]
    query = (
        "SELECT id, i, b, r, t, v, hex(bl), d::VARCHAR, ts::VARCHAR, ti::VARCHAR, p::VARCHAR, j, anything, mine, made"
        " FROM everything ORDER BY id"
    )
    assert lake.sql(query).fetchall() == [
        (1, 1, False, 1.0, None, "long enough", "", "9999-12-31", "0001-01-01 00:00:00", "00:00:00", "5.00", "null", 1.5, None, 1),
        (2, 2, None, float("inf"), "", None, None, None, None, None, "-7.00", None, None, "y", 2),
        (2**63 - 1, -(2**63), True, 5e-324, "a\n☃", "", "00FF", "2024-02-29", "2024-02-29 12:30:00.123456", "23:59:59",
         "12345678.91", '{"a": 1.10}', 1.0, "x", -8),
    ]  # fmt: skip
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("INTEGER", "'seven'"), ("INTEGER", "1.5"), ("BOOLEAN", "2"), ("REAL", "'x'"), ("TEXT", "x'00'"), ("BLOB", "'text'"),
        ("DATE", "'2024-01-01 12:00'"), ("DATE", "20240101"), ("DATETIME", "'2024-01-01 12:00:00+05'"),
        ("DATETIME", "'2024-01-01 12:00:00.1234567'"), ("TIME", "'25:00:00'"), ("DECIMAL(5,2)", "1.234"),
        ("DECIMAL(5,2)", "10000"), ("JSON", "'{'"), ("UUID", "'x'"), ("TEXT", "CAST(x'ff' AS TEXT)"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_of_its_type_is_an_error(
    lake: quacklake.Lake, tmp_path: Path, type_: str, value: str
) -> None:
    path = make(tmp_path / "in.db", f"CREATE TABLE t (a {type_}); INSERT INTO t VALUES (NULL), ({value})")
    with pytest.raises(ConnectorError, match=r"cannot be (imported|read)") as refused:
        lake.import_from(f"sqlite:{path}")
    assert lake.tables() == []
    if "x'" not in value:
        assert "VARCHAR" in str(refused.value.hint)
        lake.import_from(f"sqlite:{path}", map_types={type_.partition("(")[0]: "VARCHAR"})
        assert lake.sql("SELECT count(a), count(*) FROM t").fetchall() == [(1, 2)]


def test_what_is_no_file_of_sqlite_or_of_several_types_is_refused(lake: quacklake.Lake, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to look at" * 100)
    with pytest.raises(InputError, match="cannot be opened"):
        lake.import_from(f"sqlite:{tmp_path}/text.db")
    with pytest.raises(InputError, match="there is no file"):
        lake.import_from(f"sqlite:{tmp_path}/missing.db")
    path = make(tmp_path / "mixed.db", "CREATE TABLE t (a, b MONEY); INSERT INTO t VALUES (1, 'x'), ('y', 2)")
    with pytest.raises(InputError, match="cannot be imported"):
        lake.import_from(f"sqlite:{path}")
    lake.import_from(f"sqlite:{path}", map_types={"": "VARCHAR", "money": "VARCHAR"})
    assert texts(lake.sql("FROM t").fetchall()) == texts([("1", "x"), ("y", "2")])


def test_random_rows_come_over_once_also_after_a_kill(lake: quacklake.Lake, tmp_path: Path) -> None:
    drawn = chance("rows of sqlite")
    rows = [
        (n, drawn.choice([None, drawn.randint(-(2**63), 2**63 - 1)]), drawn.uniform(-1e9, 1e9), chr(drawn.randint(1, 0xD7FF)) * 3,
         drawn.choice([None, drawn.randbytes(5)]))
        for n in range(drawn.randint(1, 5000))
    ]  # fmt: skip
    path = make(tmp_path / "in.db", "CREATE TABLE t (n INTEGER PRIMARY KEY, i BIGINT, r DOUBLE, t TEXT, b BLOB)")
    connection = sqlite3.connect(path)
    with connection:
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()
    command = [sys.executable, "-m", "quacklake.cli", "import", f"sqlite:{path}", "--lake", lake.url]
    at = drawn.choice(["before", "after"])
    environment = os.environ | {"QUACKLAKE_FAULT": f"1:kill:import.commit.{at}"}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    report = lake.import_from(f"sqlite:{path}")
    assert report.rows == (len(rows) if at == "before" else 0)
    assert lake.sql("SELECT n, i, r, t, b FROM t ORDER BY n").fetchall() == rows
