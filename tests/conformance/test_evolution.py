"""Columns that either client has changed: defaults that are computed, layouts that depend on them, the same catalog."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import InputError

from .clients import LakeSite
from .conftest import MakeSite
from .history import History
from .scenarios import SCENARIOS

pytestmark = pytest.mark.daily(0.45)


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite")


def test_defaults_that_are_computed_hold_for_both_clients(site: LakeSite) -> None:
    site.stock().execute("CREATE TABLE t(id INTEGER, made TIMESTAMPTZ DEFAULT now(), n INTEGER DEFAULT 2 + 3)")
    table = site.lake().table("t")
    table.append([{"id": 1}])
    assert isinstance(table.to_pylist()[0]["made"], dt.datetime)
    table.set_default("n", quacklake.expr("length('four') * 10"))
    table.add_column("word", "VARCHAR", "NULL")
    site.stock().execute("INSERT INTO t (id) VALUES (2)")
    assert site.stock().execute("SELECT id, made IS NULL, n, word FROM t ORDER BY id").fetchall() == [
        (1, False, 5, "NULL"),
        (2, False, 40, "NULL"),
    ]
    assert site.lake().table("t").count("n = 40 AND made IS NOT NULL AND word = 'NULL'") == 1


def test_a_column_that_a_table_is_partitioned_by_stays(site: LakeSite) -> None:
    site.stock().execute("CREATE TABLE t(id INTEGER, day DATE); ALTER TABLE t SET PARTITIONED BY (year(day))")
    table = site.lake().table("t")
    with pytest.raises(InputError, match="partitioned by this column"):
        table.drop_column("day")
    table.rename_column("day", "date")
    table.drop_column("id")
    assert table.columns == ["date"]


@pytest.mark.parametrize("scenario", ["evolution", "evolving"])
def test_we_make_inlined_tables_for_the_schema_versions_that_the_reference_implementation_does(
    scenario: str, make_site: MakeSite
) -> None:
    found = []
    for writer in ("ours", "stock"):
        history = History(make_site("sqlite", 10))
        history.play(SCENARIOS[scenario], (writer,))
        found.append(
            history.site.metadata("SELECT table_id, schema_version FROM {m}.ducklake_inlined_data_tables ORDER BY ALL")
        )
    assert found[0] == found[1]


def test_a_column_never_shows_the_values_of_one_that_its_own_transaction_dropped(site: LakeSite) -> None:
    lake = site.lake()
    lake.create_table("t", {"id": pa.int64()})
    with lake.transaction() as tx:
        tx.table("t").add_column("old", "varchar")
        tx.table("t").append([{"id": number, "old": "old"} for number in range(30)])
        tx.table("t").drop_column("old")
    lake.table("t").add_column("new", "varchar")
    assert lake.table("t").count("new IS NULL") == 30
    assert site.stock().execute("SELECT count(*) FROM t WHERE new IS NULL").fetchall() == [(30,)]


@pytest.mark.postgres
def test_rows_inlined_by_another_client_do_not_let_row_ids_come_twice(make_site: MakeSite) -> None:
    site = make_site("postgres", 10)
    stock = site.stock()
    stock.execute("CREATE TABLE t(id INTEGER); INSERT INTO t VALUES (1)")
    stock.execute("ALTER TABLE t ALTER id SET NOT NULL")  # looks at the totals of the table, and remembers them
    site.lake().table("t").append([{"id": 2}, {"id": 3}])
    stock.execute("INSERT INTO t VALUES (4)")
    assert stock.execute("SELECT rowid, id FROM t ORDER BY id").fetchall() == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_promotions_that_change_values_are_refused_here_and_not_by_stock(site: LakeSite) -> None:
    large, noon = 2**63 - 1, dt.datetime(2024, 1, 1, 12)
    table = site.lake().create_table("t", pa.table({"a": [large] * 20, "b": [noon] * 20}))
    for column, wanted in (("a", "HUGEINT"), ("b", "TIMESTAMP WITH TIME ZONE")):
        with pytest.raises(InputError, match="only widening"):
            table.alter_column(column, wanted)
    stock = site.stock()
    stock.execute("ALTER TABLE t ALTER a TYPE HUGEINT; ALTER TABLE t ALTER b TYPE TIMESTAMPTZ")
    moments = set()
    for zone in ("UTC", "America/New_York"):
        stock.execute(f"SET timezone = '{zone}'")
        moments.add(stock.execute("SELECT min(epoch_us(b)) FROM t").fetchone())
    assert len(moments) == 2  # which moment it was depends on who asks
    stock.execute(f"INSERT INTO t SELECT {large}::BIGINT, NULL FROM range(20)")
    assert stock.execute("SELECT max(a) FROM t").fetchone() == (large + 1,)  # files hold such numbers as DOUBLE
