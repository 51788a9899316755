"""Types that Arrow does not carry, or not whole: read, kept by our updates, and seen by both alike."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from decimal import Decimal

import pytest

from quacklake.errors import ConstraintError

from .clients import LakeSite, plain_duckdb
from .conftest import LONG, MakeSite, kinds

pytestmark = pytest.mark.daily(0.3)

KINDS = kinds("sqlite", "duckdb", "postgres") if LONG else kinds("sqlite", "postgres")

# type -> values, and whether a file can hold them
TYPES: dict[str, tuple[list[str], bool]] = {
    "TIMETZ": (["'12:34:56.789+05:30'", "'00:00:00-15:59:59'", "'24:00:00+00'"], True),
    "UHUGEINT": (["340282366920938463463374607431768211455", "0"], False),
    "HUGEINT": (["-170141183460469231731687303715884105728", "170141183460469231731687303715884105727"], False),
    "TIME_NS": (["'12:34:56.123456789'", "'00:00:00'"], False),
    "GEOMETRY": (["'POINT(1 2)'", "'LINESTRING(0 0, 1 1)'"], True),
    "VARIANT": (["42::VARIANT", "'x'::VARIANT", "{'a': [1, 2]}::VARIANT"], True),
    "INTERVAL": (["'-1 month 3 days'", "'00:00:00.000001'", "'1 year -3 days -25 hours'"], False),
    "DATE": (["'infinity'", "'-infinity'", "'5877642-06-25 (BC)'"], True),
    "TIMESTAMP": (["'infinity'", "'-infinity'", "'290309-12-22 (BC) 00:00:00'"], True),
    "TIMESTAMPTZ": (["'infinity'", "'0044-03-15 (BC) 12:00:00+00'"], True),
    "TIMETZ[]": (["['12:34:56+05:30', NULL]", "[]"], False),
}


def ours(site: LakeSite) -> list[tuple[str | None, ...]]:
    """The table as SQL over our views of it shows it."""
    with plain_duckdb() as connection:
        site.lake().register(connection)
        return connection.execute("SELECT k::VARCHAR, v::VARCHAR FROM x ORDER BY ALL").fetchall()


def stock(site: LakeSite) -> list[tuple[str | None, ...]]:
    return site.stock().execute("SELECT k::VARCHAR, v::VARCHAR FROM x ORDER BY ALL").fetchall()


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_values_that_arrow_does_not_carry_are_read_and_kept(kind: str, type_: str, make_site: MakeSite) -> None:
    if (kind, type_) == ("postgres", "TIME_NS"):
        pytest.skip("the reference implementation cannot make such a table there")
    site, (values, in_files) = make_site(kind), TYPES[type_]
    site.stock().execute(f"CREATE TABLE x(k INTEGER, v {type_})")
    for number, value in enumerate([*values, "NULL"]):
        site.stock().execute(f"INSERT INTO x VALUES ({number}, {value})")
    assert ours(site) == stock(site)
    if in_files:
        for number, value in enumerate([*values, "NULL"]):
            site.stock().execute(f"INSERT INTO x SELECT {100 * (number + 1)} + i, {value} FROM range(15) r(i)")
        assert ours(site) == stock(site)
    before = [row[1] for row in stock(site) if row[0] == "0"]
    table = site.lake().table("x")
    table.update({"k": -1}, "k = 0")
    if in_files:
        table.update({"k": -2}, "k BETWEEN 100 AND 114")
    table.delete("k = 1")
    assert ours(site) == stock(site)
    assert [row[1] for row in stock(site) if row[0] == "-1"] == before


def test_arrow_gets_what_it_can_hold_and_an_error_for_the_rest(make_site: MakeSite) -> None:
    site = make_site("sqlite")
    site.stock().execute("CREATE TABLE x(k INTEGER, u UHUGEINT, v VARIANT, t TIMETZ)")
    site.stock().execute(
        "INSERT INTO x VALUES (1, 5, 42::VARIANT, '12:00:00+00'), (2, 340282366920938463463374607431768211455, NULL, NULL)"
    )
    table = site.lake().table("x")
    assert table.to_pylist(where="k = 1") == [{"k": 1, "u": Decimal(5), "v": "42", "t": dt.time(12)}]
    with pytest.raises(ConstraintError):
        table.to_arrow(columns=["u"])


_PROGRAM = """
import datetime as dt, sys, quacklake, pyarrow as pa
url, data = sys.argv[1:]
with quacklake.connect(url, data_path=data) as lake:
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    table = lake.create_table("z", {"seen": pa.timestamp("us", tz="UTC")})
    table.append([{"seen": noon}])
    table.append([{"seen": noon + dt.timedelta(days=i)} for i in range(20)])
    table.update({"seen": noon + dt.timedelta(hours=1)}, "seen = '2024-07-01 12:00:00+00'")
    print(table.count("seen = '2024-07-01 13:00:00+00'"), sorted(row["seen"].isoformat() for row in table.to_pylist())[0])
"""


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
def test_the_time_zone_of_the_process_changes_nothing(zone: str, make_site: MakeSite) -> None:
    site = make_site("sqlite")
    command = [sys.executable, "-c", _PROGRAM, site.url, str(site.data_path)]
    environment = os.environ | {"TZ": zone}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert found == ["2", "2024-07-01T13:00:00+00:00"]
    at = site.stock().execute("SELECT min(seen)::VARCHAR, max(seen)::VARCHAR FROM z").fetchone()
    assert at == ("2024-07-01 13:00:00+00", "2024-07-20 12:00:00+00")
