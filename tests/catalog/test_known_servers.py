"""Lakes on one server share what was learnt of it, and the statements compiled for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.sql.compiler import SQLCompiler

import quacklake
from quacklake.core.catalog.databases.urls import parse_url
from quacklake.errors import QuacklakeError


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count how often a dialect asks its server, and how often a statement is compiled."""
    found: Counter[str] = Counter()
    initialize, compile_ = sa.engine.default.DefaultDialect.initialize, SQLCompiler.__init__

    def asked(dialect: Any, connection: Any) -> None:
        found["asked"] += 1
        initialize(dialect, connection)

    def compiled(compiler: Any, *args: Any, **options: Any) -> None:
        found["compiled"] += 1
        compile_(compiler, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sa.engine.default.DefaultDialect, "initialize", asked)
        patch.setattr(SQLCompiler, "__init__", compiled)
        yield found


@pytest.mark.parametrize("server", ["postgres_url", "mysql_url"])
def test_the_second_lake_on_a_server_neither_asks_nor_compiles_again(
    server: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url: str = request.getfixturevalue(server)
    with quacklake.tenants(url, data_path=tmp_path) as tenants:
        for name in ("first", "second"):
            with tenants.open(name, create=True) as lake:
                lake.create_table("t", [{"id": 1, "name": name}])

    def names_of(tenant: str) -> list[Any]:
        with quacklake.connect(url, catalog=tenant) as lake:
            return lake.table("t").to_pylist()

    assert names_of("first") == [{"id": 1, "name": "first"}]
    with counted(monkeypatch) as found:
        assert names_of("second") == [{"id": 1, "name": "second"}]
        assert names_of("first") == [{"id": 1, "name": "first"}]
    assert found["asked"] == 0
    # of each tenant only what names a table of its own, such as its inlined rows
    assert found["compiled"] <= 8


def test_a_lake_of_each_layout_has_its_own_statements(postgres_url: str, tmp_path: Path) -> None:
    with quacklake.connect(postgres_url, data_path=tmp_path, metadata_schema="plain") as lake:
        lake.create_table("t", [{"id": 1}])
    with quacklake.tenants(postgres_url, data_path=tmp_path / "shared", metadata_schema="shared") as tenants:
        with tenants.open("one", create=True) as lake:
            lake.create_table("t", [{"id": 2}])
    with (
        quacklake.connect(postgres_url, metadata_schema="plain") as plain,
        quacklake.connect(postgres_url, metadata_schema="shared", catalog="one") as one,
    ):
        for _ in range(2):
            assert plain.table("t").to_pylist() == [{"id": 1}]
            assert one.table("t").to_pylist() == [{"id": 2}]
            plain.table("t").append([{"id": 3}])
            assert one.table("t").delete("id = 3") == 0
            assert plain.table("t").delete("id = 3") == 1


def test_a_server_that_never_answered_is_asked_at_the_next_attempt(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = parse_url(postgres_url).url.set(database="there_is_no_such_database").render_as_string(False)
    for _ in range(2):
        with pytest.raises(QuacklakeError):
            quacklake.connect(nowhere, data_path=tmp_path)
    with counted(monkeypatch) as found, quacklake.connect(postgres_url, data_path=tmp_path) as lake:
        assert lake.create_table("t", [{"id": 1}]).count() == 1
    assert found["asked"] == 1
