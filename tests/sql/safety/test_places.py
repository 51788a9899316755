"""A safe session does not reveal where its lakes are."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake import Safety
from quacklake.errors import QuacklakeError

_FRAME = re.compile(r"[\s│┌┐└┘├┤┬┴┼─]+")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "a-secret-place"


@pytest.fixture
def session(home: Path) -> Iterator[quacklake.Session]:
    home.mkdir()
    url = f"sqlite:///{home}/lake.db"
    with (
        quacklake.connect(url, data_path=home / "data", data_inlining_row_limit=0) as lake,
        quacklake.session(safety=Safety.server(read_only=False)) as found,
    ):
        lake.create_table("t", pa.table({"id": range(5)}))
        lake.table("t").append(pa.table({"id": range(5)}))
        lake.create_table("one", pa.table({"id": range(5)}))
        found.attach(lake, "lake")
        found.use("lake")
        yield found


def _tells(text: str, home: Path) -> bool:
    return home.name in _FRAME.sub("", text.replace("\\n", ""))


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT filename FROM t",
        "SELECT DISTINCT filename || '' FROM t WHERE filename LIKE '%parquet'",
        "WITH x AS (SELECT filename AS f FROM t) SELECT max(f) FROM x",
        "EXPLAIN FROM t",
        "EXPLAIN ANALYZE FROM one",
        "EXPLAIN ANALYZE FROM t JOIN one USING (id)",
        "EXPLAIN ANALYZE SELECT filename FROM t WHERE id > 2",
        "EXPLAIN ANALYZE (FORMAT HTML) FROM one",
        *(
            f"EXPLAIN (FORMAT {name}) SELECT filename FROM t"
            for name in ("JSON", "HTML", "YAML", "GRAPHVIZ", "MERMAID")
        ),
        "FROM lake.table_info()",
        "FROM lake.snapshots()",
        "FROM duckdb_tables()",
        "FROM duckdb_schemas()",
        "FROM duckdb_views()",
        "FROM information_schema.tables",
        "SHOW ALL TABLES",
        "SHOW CREATE TABLE t",
        "SUMMARIZE t",
        "FROM lake.table_changes('t', 0, 3)",
    ],
)
def test_no_answer_tells_where_the_files_are(session: quacklake.Session, home: Path, statement: str) -> None:
    try:
        shown = str(session.sql(statement).fetchall())
    except QuacklakeError as error:
        pytest.fail(f"{statement}: {error}")
    assert not _tells(shown, home)


def test_the_name_of_a_file_begins_at_the_data_path(session: quacklake.Session) -> None:
    for (name,) in session.sql("SELECT DISTINCT filename FROM t").fetchall():
        assert name.startswith("main/t/ducklake-")


@pytest.mark.parametrize("damage", ["short", "gone", "link"])
def test_no_error_tells_where_the_files_are(session: quacklake.Session, home: Path, damage: str) -> None:
    path = next((home / "data" / "main" / "one").iterdir())
    statements = [
        "FROM one",
        "SELECT count(*) FROM one WHERE id > 2",
        "UPDATE one SET id = 9",
        "EXPLAIN ANALYZE FROM one",
    ]
    path.unlink()
    if damage == "short":
        path.write_bytes(b"junk")
    elif damage == "link":
        path.symlink_to(next((home / "data" / "main" / "t").iterdir()).rename(home / "x"))
    for statement in statements:
        with pytest.raises(QuacklakeError) as caught:
            session.sql(statement).fetchall()
        error: BaseException | None = caught.value
        assert not _tells("".join(traceback.format_exception_only(caught.value)), home), statement
        while error is not None:
            assert not _tells(f"{error} {error!r} {getattr(error, 'hint', '')}", home), statement
            error = error.__cause__ or error.__context__
