"""Bad input: a typed error with a hint, and nothing changed."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

import quacklake
from quacklake.errors import (
    ConfigError,
    ConstraintError,
    InputError,
    InvalidNameError,
    MissingExtraError,
    NotFoundError,
    PathError,
    QuacklakeError,
    ReadOnlyError,
    SchemaMismatchError,
    UnsupportedVersionError,
)

_SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])


@pytest.fixture(params=[0, 10], ids=["files", "inlined"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=request.param
    ) as lake:
        lake.create_table("t", _SCHEMA)
        lake.table("t").append([{"id": 1, "name": "a"}])
        yield lake


def _state(lake: quacklake.Lake) -> tuple[Any, ...]:
    return lake.current_snapshot(), lake.tables(), sorted(entry.path for entry in lake._context.store.list())


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([{"id": "one", "name": "x"}], SchemaMismatchError),
        ([{"id": 1.5, "name": "x"}], SchemaMismatchError),
        ([{"id": 2, "name": 5}], SchemaMismatchError),
        ([{"id": 2, "name": "x", "extra": 1}], SchemaMismatchError),
        ([{"id": 2}], SchemaMismatchError),
        ([{"id": 2, "name": "x", "ID": 3}], SchemaMismatchError),
        ([{"id": 2, "name": "x"}, {"id": "two", "name": "y"}], SchemaMismatchError),
        ([{"id": None, "name": "x"}], ConstraintError),
        ([{"id": 2**31, "name": "x"}], ConstraintError),
        ([{"id": -(2**31) - 1, "name": "x"}], ConstraintError),
        ([1, 2, 3], SchemaMismatchError),
        ("text", InputError),
        (42, SchemaMismatchError),
    ],
    ids=repr,
)
def test_rows_that_do_not_fit_are_refused_and_change_nothing(
    lake: quacklake.Lake, rows: Any, error: type[QuacklakeError]
) -> None:
    before = _state(lake)
    with pytest.raises(error) as caught:
        lake.table("t").append(rows)
    assert caught.value.code.startswith("input")
    assert _state(lake) == before


def test_a_bad_value_late_in_a_stream_leaves_no_file(lake: quacklake.Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    good = pa.record_batch({"id": list(range(1000)), "name": ["x"] * 1000}, schema=schema)
    bad = pa.record_batch({"id": [2**40], "name": ["x"]}, schema=schema)
    before = _state(lake)
    with pytest.raises(ConstraintError):
        lake.table("t").append(pa.RecordBatchReader.from_batches(schema, [good] * 5 + [bad]))
    assert _state(lake) == before


@pytest.mark.parametrize(
    "work",
    [
        lambda t: t.update({"id": None}),
        lambda t: t.update({"id": 2**40}),
        lambda t: t.update({"nope": 1}),
        lambda t: t.update({}),
        lambda t: t.update({"id": quacklake.expr("nope + 1")}),
        lambda t: t.merge([{"id": 1, "name": "x"}, {"id": 1, "name": "y"}], on="id"),
        lambda t: t.merge([{"name": "x"}], on="id"),
        lambda t: t.merge([{"id": 1, "name": "x"}], on="nope"),
        lambda t: t.merge([{"id": 1, "name": "x"}], on=[]),
        lambda t: t.delete("nope = 1"),
        lambda t: t.to_arrow(columns=["nope"]),
    ],
)
def test_a_statement_that_cannot_work_changes_nothing(lake: quacklake.Lake, work: Callable[[Any], Any]) -> None:
    before = _state(lake)
    with pytest.raises(QuacklakeError):
        work(lake.table("t"))
    assert _state(lake) == before


def test_duplicate_keys_in_a_merge_are_named(lake: quacklake.Lake) -> None:
    with pytest.raises(ConstraintError, match=r"\(id\): 7, 8"):
        lake.table("t").merge([{"id": i, "name": "x"} for i in (7, 8, 7, 8, 9)], on="id")


def test_an_unknown_table_comes_with_the_nearest_names(lake: quacklake.Lake) -> None:
    lake.create_table("events", [{"id": 1}])
    with pytest.raises(NotFoundError) as caught:
        lake.table("evnets").to_arrow()
    assert caught.value.hint is not None
    assert "main.events" in caught.value.hint


@pytest.mark.parametrize("name", ["", ".", "a.b.c", "a.", ".b", 'a"b', 5, None])
def test_a_name_that_is_no_table_name_is_refused(lake: quacklake.Lake, name: Any) -> None:
    with pytest.raises(InvalidNameError):
        lake.table(name)


@pytest.mark.parametrize("name", ["../../etc", "..", "a/b", "a\\b", "con:", "ü" * 300])
def test_a_table_may_have_an_odd_name_but_never_an_odd_folder(lake: quacklake.Lake, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    table = lake.create_table(quoted, pa.table({"id": range(20)}))
    assert table.count() == 20
    assert all(".." not in entry.path for entry in lake._context.store.list())


@pytest.mark.parametrize(
    "url",
    ["", "lake.db", "oracle://x/y", "sqlite:/lake.db", "sqlite://host/lake.db", "postgres//x", "ducklake:", "ftp://x"],
)
def test_a_url_that_is_no_catalog_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        quacklake.connect(url, data_path=tmp_path)
    assert caught.value.hint


def test_no_message_contains_a_password(tmp_path: Path) -> None:
    for url in (
        "postgresql://user:hunter2@127.0.0.1:1/db",
        "mysql://user:hunter2@127.0.0.1:1/db",
        "ducklake:postgres:host=127.0.0.1 port=1 user=u password=hunter2 dbname=d",
    ):
        with pytest.raises(QuacklakeError) as caught:
            quacklake.connect(url, data_path=tmp_path, busy_timeout_ms=1000)
        assert "hunter2" not in f"{caught.value!s} {caught.value!r} {caught.value.hint}"


@pytest.mark.parametrize(
    ("url", "module"), [("postgresql://u@127.0.0.1:1/d", "psycopg"), ("mysql://u@127.0.0.1:1/d", "pymysql")]
)
def test_a_missing_driver_is_one_clear_sentence(
    url: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as caught:
        quacklake.connect(url, data_path=tmp_path)
    assert caught.value.hint is not None
    assert "pip install" in caught.value.hint


def test_a_data_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError):
        quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "file")
    assert not (tmp_path / "lake.db").exists()


def test_another_data_path_than_the_lakes_own_is_refused(lake: quacklake.Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="override_data_path"):
        quacklake.connect(lake.url, data_path=tmp_path / "elsewhere")


def test_a_lake_that_does_not_exist_is_not_made_by_accident(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        quacklake.connect(f"sqlite:///{tmp_path}/lake.db")
    with pytest.raises(NotFoundError):
        quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_of_an_unknown_version_is_refused_with_the_version(tmp_path: Path) -> None:
    quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data").close()
    with sqlite3.connect(tmp_path / "lake.db") as database:
        database.execute("UPDATE ducklake_metadata SET value = '9.9' WHERE key = 'version'")
    database.close()
    with pytest.raises(UnsupportedVersionError, match=r"9\.9"):
        quacklake.connect(f"sqlite:///{tmp_path}/lake.db")


@pytest.mark.parametrize(
    "path", ["../../secret.parquet", "/etc/passwd", "a/../../b.parquet", "%2e%2e/x.parquet", "a\\..\\b"]
)
def test_a_hostile_path_in_the_catalog_is_refused(tmp_path: Path, path: str) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", pa.table({"id": range(100)}))
        with sqlite3.connect(tmp_path / "lake.db") as database:
            relative = 0 if path.startswith("/") else 1
            database.execute("UPDATE ducklake_data_file SET path = ?, path_is_relative = ?", (path, relative))
        database.close()
        with pytest.raises(PathError):
            table.to_arrow()


def test_a_lake_opened_read_only_takes_no_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": 1}])
    with quacklake.connect(url, read_only=True) as lake:
        assert lake.table("t").count() == 1
        with pytest.raises(ReadOnlyError):
            lake.table("t").append([{"id": 2}])
        with pytest.raises(ReadOnlyError):
            lake.create_schema("s")


def test_a_postgres_role_with_only_select_reads_and_gets_a_clear_refusal(postgres_url: str, tmp_path: Path) -> None:
    with quacklake.connect(postgres_url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": 1, "name": "a"}])
        lake.table("t").append(pa.table({"id": range(100), "name": ["x"] * 100}))
    url = sa.make_url(postgres_url)
    role = f"reader_{url.database}"
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f'CREATE ROLE "{role}" LOGIN'))
        connection.execute(sa.text(f'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "{role}"'))
    try:
        reader = url.set(username=role, password=None).render_as_string(hide_password=False)
        with quacklake.connect(reader) as lake:
            assert lake.table("t").count() == 101
            with pytest.raises(ReadOnlyError):
                lake.table("t").append([{"id": 2, "name": "b"}])
    finally:
        with engine.connect() as connection:
            connection.execute(sa.text(f'DROP OWNED BY "{role}"'))
            connection.execute(sa.text(f'DROP ROLE "{role}"'))
        engine.dispose()
