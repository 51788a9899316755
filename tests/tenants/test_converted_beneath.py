"""A client that has a plain lake open when it becomes a shared one stops: the tables hold rows of other catalogs now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.catalog import parse_url
from quacklake.errors import UnsupportedVersionError

NOW = dt.timedelta(0)
OPERATIONS: dict[str, Callable[[quacklake.Lake], object]] = {
    "tables": lambda lake: lake.tables(),
    "append": lambda lake: lake.table("t").append([{"a": 1}]),
    "count": lambda lake: lake.table("t").count(),
    "snapshots": lambda lake: lake.at(version=1).tables(),
    "expire_versions": lambda lake: lake.expire_snapshots(versions=[0]),
    "expire_age": lambda lake: lake.expire_snapshots(older_than=NOW),
    "cleanup": lambda lake: lake.cleanup_old_files(older_than=NOW),
    "orphans": lambda lake: lake.delete_orphaned_files(older_than=NOW),
    "maintain": lambda lake: lake.maintain(),
    "flush": lambda lake: lake.maintenance.flush_inlined_data(),
    "merge": lambda lake: lake.maintenance.merge_adjacent_files(),
    "set_option": lambda lake: lake.options.set("target_file_size", "64MB"),
    "unset_option": lambda lake: lake.options.unset("target_file_size"),
    "options": lambda lake: lake.options.list(),
    "tag": lambda lake: lake.tag("x", 1),
    "untag": lambda lake: lake.history.untag("first"),
    "retention": lambda lake: lake.history.set_retention("t", "9 days"),
    "claim_stream": lambda lake: lake.streams.claim("s", "q"),
    "forget_stream": lambda lake: lake.streams.forget("s"),
    "streams": lambda lake: lake.streams.list(),
    "tags": lambda lake: lake.history.tags(),
    "migrate": lambda lake: lake.migrate(),
    "verify": lambda lake: lake.verify(),
}


@pytest.mark.parametrize("database", ["sqlite", "mysql"])
def test_nothing_is_read_or_changed_through_it(database: str, new_url: Callable[[str], str], tmp_path: Path) -> None:
    url = new_url(database)
    with quacklake.connect(url, tmp_path / "plain") as old:
        old.create_table("t", {"a": list(range(30))})
        old.options.set("target_file_size", "32MB")
        old.tag("first", 1)
        old.streams.claim("s", "q")
        old.table("t").delete("a < 5")
        with quacklake.tenants(url, tmp_path / "data", convert="acme") as tenants:
            with tenants.open("beta", create=True) as lake:
                lake.create_table("t", {"a": list(range(30))})
                lake.table("t").append({"a": list(range(30))})
                lake.options.set("target_file_size", "16MB")
            before = _rows(url)
            for name, operation in OPERATIONS.items():
                if name == "migrate":
                    assert operation(old) == old.version  # nothing is to be done
                    continue
                with pytest.raises(UnsupportedVersionError, match="many catalogs"):
                    operation(old)
                    pytest.fail(f"{name} went on")
            assert _rows(url) == before


def test_it_stops_in_whatever_order_the_database_gives_the_versions(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with quacklake.connect(url, tmp_path / "plain") as old:
        quacklake.tenants(url, tmp_path / "data", convert="acme").close()
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            aside = "CREATE TEMP TABLE m AS SELECT * FROM ducklake_metadata ORDER BY catalog_id DESC"
            for statement in (aside, "DELETE FROM ducklake_metadata", "INSERT INTO ducklake_metadata SELECT * FROM m"):
                connection.execute(sa.text(statement))
        engine.dispose()
        with pytest.raises(UnsupportedVersionError, match="many catalogs"):
            old.tables()
    with quacklake.connect(url, catalog="acme") as lake:
        assert lake.tables() == []


def _rows(url: str) -> dict[str, list[str]]:
    engine = sa.create_engine(parse_url(url).url)
    with engine.connect() as connection:
        found = {
            name: sorted(map(repr, connection.execute(sa.text(f"SELECT * FROM {name}")).all()))
            for name in sa.inspect(connection).get_table_names()
        }
    engine.dispose()
    return found
