"""Import a DuckDB file: rows compared by plain DuckDB there and by DuckDB's own ducklake extension here."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake.core.format.names import quote
from quacklake.errors import AlreadyExistsError, InputError, StreamMismatchError
from tests.catalog.stock import Stock
from tests.duckdbs import IS_PINNED
from tests.seeds import SEED
from tests.transfer.conftest import as_texts, in_duckdb, texts

SHOP = """
    CREATE SCHEMA shop;
    CREATE TYPE mood AS ENUM ('low', 'high');
    CREATE TABLE shop.orders (
        id INTEGER PRIMARY KEY, item VARCHAR NOT NULL DEFAULT 'nothing', price DECIMAL(9,2) CHECK (price > 0), since TIMESTAMPTZ,
        mood mood DEFAULT 'low', spots INTEGER[2], twice DECIMAL(18,2) GENERATED ALWAYS AS (price * 2)
    );
    INSERT INTO shop.orders (id, item, price, since, spots)
        SELECT i, 'item ' || i, 1 + i / 4, TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_hours(i::INTEGER), [i, i + 1] FROM range(5000) r(i);
    COMMENT ON TABLE shop.orders IS 'what was ordered';
    COMMENT ON COLUMN shop.orders.price IS 'without taxes';
    CREATE VIEW shop.dear(id, cost) AS SELECT id, price FROM shop.orders WHERE price > 1000;
    CREATE VIEW dearest AS SELECT max(cost) AS most FROM shop.dear;
    CREATE VIEW secrets AS SELECT * FROM read_csv('/etc/passwd', sep = ':');
    CREATE TABLE empty (x BIGINT);
    CREATE SEQUENCE numbers;
    CREATE INDEX by_item ON shop.orders (item);
    CREATE MACRO plus(a) AS a + 1;
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A DuckDB file with something of everything."""
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(SHOP)
    return path


def test_everything_that_a_lake_can_hold_is_taken_over_and_the_rest_is_told(
    lake: quacklake.Lake, file: Path, stock: Stock
) -> None:
    report = lake.import_from(f"duckdb:{file}")
    assert [(table.table, table.rows, table.state) for table in report.tables] == [
        ("main.empty", 0, "imported"),
        ("shop.orders", 5000, "imported"),
    ]
    assert report.views == ("main.dearest", "shop.dear")
    orders = lake.table("shop.orders")
    columns = orders.columns
    theirs = in_duckdb(file, as_texts(columns, "shop.orders"))
    assert texts(stock.run(lake.url, as_texts(columns, "l.shop.orders"))) == texts(theirs)
    assert orders.comment == "what was ordered"
    assert orders.column_comments == {"price": "without taxes"}
    assert orders.primary_key == ("id",)
    assert [column.name for column in orders.info.schema.columns if not column.nullable] == ["id", "item"]
    assert lake.sql("SELECT most::VARCHAR FROM dearest").fetchall() == in_duckdb(
        file, "SELECT most::VARCHAR FROM dearest"
    )
    lake.sql("INSERT INTO shop.orders (id, price) VALUES (-1, 1)")
    assert orders.to_pylist(["item", "mood"], "id = -1") == [{"item": "nothing", "mood": "low"}]
    left = {part.what: part.reason for part in report.left_out}
    assert set(left) == {
        "shop.orders",
        "shop.orders.mood",
        "shop.orders.spots",
        "shop.orders.twice",
        "view main.secrets",
        "sequence main.numbers",
        "index shop.by_item",
        "macro main.plus",
        "type main.mood",
    }
    assert "check" in left["shop.orders"]


def test_a_view_that_could_read_files_is_not_taken_over(lake: quacklake.Lake, file: Path) -> None:
    report = lake.import_from(f"duckdb:{file}")
    assert lake.views() == ["main.dearest", "shop.dear"]
    assert "read_csv" in next(part.reason for part in report.left_out if part.what == "view main.secrets")


def test_an_import_that_was_done_is_not_done_again(lake: quacklake.Lake, file: Path) -> None:
    lake.import_from(f"duckdb:{file}")
    before = lake.current_snapshot()
    again = lake.import_from(f"duckdb:{file}")
    assert lake.current_snapshot() == before
    assert [(table.rows, table.rows_before, table.state) for table in again.tables] == [
        (0, 0, "already imported"),
        (0, 5000, "already imported"),
    ]


def test_a_table_that_was_dropped_is_imported_again(lake: quacklake.Lake, file: Path) -> None:
    lake.import_from(f"duckdb:{file}", include=["orders"])
    lake.drop_table("shop.orders")
    report = lake.import_from(f"duckdb:{file}", include=["orders"])
    assert [(table.rows, table.state) for table in report.tables] == [(5000, "imported")]
    assert lake.table("shop.orders").count() == 5000


def test_a_table_of_somebody_else_stays_and_nothing_is_written(lake: quacklake.Lake, file: Path) -> None:
    lake.create_schema("shop")
    lake.create_table("shop.orders", [{"id": 1}])
    before = lake.current_snapshot()
    with pytest.raises(AlreadyExistsError, match=r"shop\.orders"):
        lake.import_from(f"duckdb:{file}")
    assert lake.current_snapshot() == before
    lake.import_from(f"duckdb:{file}", schema="other")
    assert lake.table("other.orders").count() == 5000


def test_a_file_that_has_changed_is_not_taken_for_the_one_that_was_imported(lake: quacklake.Lake, file: Path) -> None:
    lake.import_from(f"duckdb:{file}")
    with duckdb.connect(str(file)) as connection:
        connection.execute("INSERT INTO empty VALUES (1)")
    with pytest.raises(StreamMismatchError, match="has changed"):
        lake.import_from(f"duckdb:{file}")


def test_a_dry_run_says_what_would_be_done_and_does_nothing(lake: quacklake.Lake, file: Path) -> None:
    report = lake.import_from(f"duckdb:{file}", exclude=["empty"], dry_run=True)
    assert [(table.table, table.rows, table.state) for table in report.tables] == [
        ("shop.orders", 5000, "would be imported")
    ]
    assert report.dry_run
    assert lake.tables() == [] and lake.current_snapshot() == 0


def test_progress_tells_of_every_table(lake: quacklake.Lake, file: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    lake.import_from(f"duckdb:{file}", include=["shop.*"], progress=lambda *now: told.append(now))
    assert told[0] == ("importing shop.orders", 0, 5000)
    assert told[-1] == ("importing shop.orders", 5000, 5000)


@pytest.mark.parametrize("name", ['a"b.', "a'b;--", "{0} %s", "../ä"])
def test_names_are_never_sql(lake: quacklake.Lake, tmp_path: Path, name: str) -> None:
    path = tmp_path / "it's.duckdb"
    quoted = quote(name)
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE SCHEMA {quoted}; CREATE TABLE {quoted}.{quoted} ({quoted} INTEGER)")
        connection.execute(f"INSERT INTO {quoted}.{quoted} VALUES (42)")
    lake.import_from(f"duckdb:{path}")
    assert lake.table(f"{quoted}.{quoted}").to_pylist() == [{name: 42}]
    lake.export_to(f"duckdb:{tmp_path}/out.duckdb")
    assert in_duckdb(tmp_path / "out.duckdb", f"SELECT * FROM {quoted}.{quoted}") == [(42,)]


def test_types_that_a_lake_lacks_are_refused_and_mapped_as_told(lake: quacklake.Lake, tmp_path: Path) -> None:
    path = tmp_path / "odd.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (u UNION(n INTEGER, s VARCHAR), big UHUGEINT, daily TIMETZ)")
        connection.execute(
            "INSERT INTO t VALUES (1, 340282366920938463463374607431768211455, '12:00:00+02'), ('x', NULL, NULL)"
        )
    with pytest.raises(InputError, match=r'the column "u" of main\.t is UNION') as refused:
        lake.import_from(f"duckdb:{path}")
    assert "--map-type 'UNION=…'" in str(refused.value.hint)
    assert lake.tables() == []
    told = {"UNION": "VARCHAR", "UHUGEINT": "VARCHAR", "TIME WITH TIME ZONE": "VARCHAR"}
    lake.import_from(f"duckdb:{path}", map_types=told)
    assert lake.table("t").to_pylist() == [
        {"u": "1", "big": "340282366920938463463374607431768211455", "daily": "12:00:00+02"},
        {"u": "x", "big": None, "daily": None},
    ]


_UNFIT = {
    "INTERVAL": ["3000000:00:00", "-1 month", "00:00:00.000001", "1 year -3 days"],
    "HUGEINT": ["36893488147419103233", "-36893488147419103233"],
    "HUGEINT[]": ["[36893488147419103233, NULL]"],
}


@pytest.mark.parametrize("type_", _UNFIT)
def test_values_that_a_file_would_change_come_over_in_another_type(
    lake: quacklake.Lake, tmp_path: Path, type_: str
) -> None:
    path = tmp_path / "unfit.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t (i INTEGER, v {type_}, w {type_})")
        for text in _UNFIT[type_]:
            connection.execute(f"INSERT INTO t SELECT i, '{text}', NULL FROM range(50) r(i)")
        theirs = connection.execute("SELECT v::VARCHAR, count(*) FROM t GROUP BY 1 ORDER BY 1").fetchall()
    planned = lake.import_from(f"duckdb:{path}", dry_run=True)
    assert [item.what for item in planned.left_out] == ["main.t.v"]
    assert type_ in planned.left_out[0].reason
    assert lake.import_from(f"duckdb:{path}").rows == 50 * len(_UNFIT[type_])
    other = "DECIMAL(38,0)" if type_ == "HUGEINT" else "VARCHAR"
    shown = lake.sql("SELECT v::VARCHAR, count(*) FROM t GROUP BY 1 ORDER BY 1").fetchall()
    assert (shown, str(lake.sql("SELECT typeof(any_value(v)) FROM t").fetchall()[0][0])) == (theirs, other)
    assert lake.sql(f"SELECT count(*) FROM t WHERE v::{type_}::VARCHAR = v::VARCHAR").fetchall() == [
        (50 * len(_UNFIT[type_]),)
    ]


@pytest.mark.parametrize("content", [b"", b"no database at all", b"PAR1" + bytes(5000)], ids=["empty", "text", "zeros"])
def test_a_file_that_is_no_database_is_an_error(lake: quacklake.Lake, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.duckdb"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.duckdb"):
        lake.import_from(f"duckdb:{path}")
    assert path.read_bytes() == content


_SCALARS = {
    "BOOLEAN": "random() < 0.5",
    "TINYINT": "(random() * 255 - 128)::TINYINT",
    "UBIGINT": "CASE WHEN random() < 0.1 THEN 18446744073709551615 ELSE (random() * 1e15)::UBIGINT END",
    "BIGINT": "CASE WHEN random() < 0.1 THEN -9223372036854775808 ELSE (random() * 1e15)::BIGINT END",
    "FLOAT": "CASE WHEN random() < 0.1 THEN 'nan' WHEN random() < 0.1 THEN '-inf' ELSE random()::VARCHAR END::FLOAT",
    "DOUBLE": "CASE WHEN random() < 0.1 THEN 'inf'::DOUBLE ELSE random() * 1e300 END",
    "DECIMAL(38,7)": "(random() * 1e6)::DECIMAL(38,7)",
    "VARCHAR": "CASE WHEN random() < 0.2 THEN '' ELSE 'é\"\\\n,' || chr(9) || (random() * 100)::INTEGER END",
    "BLOB": "'\\x00\\xFF\\x27'::BLOB",
    "DATE": "CASE WHEN random() < 0.1 THEN 'infinity'::DATE ELSE DATE '1900-01-01' + (random() * 90000)::INTEGER END",
    "TIME": "TIME '00:00:00' + to_microseconds((random() * 86399999999)::BIGINT)",
    "TIMESTAMP": "TIMESTAMP '0044-03-15 (BC) 01:02:03' + to_microseconds((random() * 9e16)::BIGINT)",
    "TIMESTAMP_NS": "make_timestamp_ns((random() * 4e18)::BIGINT)",
    "TIMESTAMPTZ": "TIMESTAMPTZ '1970-01-01 00:00:00+00' + to_microseconds((random() * 2e15)::BIGINT)",
    "INTERVAL": "to_months((random() * 50 - 20)::INTEGER) + to_days((random() * 9)::INTEGER) + to_milliseconds((random() * 1e9)::BIGINT)",
    "UUID": "gen_random_uuid()",
    "JSON": "json_object('k', random())",
    "ENUM('a', 'b,')": "CASE WHEN random() < 0.5 THEN 'a' ELSE 'b,' END",
    "BIT": "'0101'::BIT",
}


@pytest.mark.parametrize("turn", range(2))
def test_any_types_come_over_exactly(lake: quacklake.Lake, tmp_path: Path, stock: Stock, turn: int) -> None:
    chance = random.Random(f"import types {SEED} {turn}")
    path = tmp_path / "random.duckdb"
    columns: dict[str, str] = {}
    values: list[str] = []
    for number in range(12):
        type_ = chance.choice(list(_SCALARS))
        value = f"CASE WHEN random() < 0.2 THEN NULL ELSE ({_SCALARS[type_]})::{type_} END"
        match chance.randrange(5) if type_ != "INTERVAL" else 4:
            case 0:
                type_, value = f"{type_}[]", f"[{value}, {value}]"
            case 1:
                type_, value = f'STRUCT("x y" {type_}, n INTEGER)', f'struct_pack("x y" := {value}, n := 1)'
            case 2:
                type_, value = f"MAP(VARCHAR, {type_})", f"map(['k', ''], [{value}, {value}])"
        columns[f"c{number}"] = type_
        values.append(value)
    rows = chance.choice([0, 1, 7, 3000])
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"SELECT setseed({chance.random()})")
        listed = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        connection.execute(f"CREATE TABLE t ({listed}); INSERT INTO t SELECT {', '.join(values)} FROM range({rows})")
    report = lake.import_from(f"duckdb:{path}")
    assert report.rows == rows
    theirs = in_duckdb(path, as_texts(list(columns), "t"))
    # versions of DuckDB write some texts in other ways, and the extension is there for one of them
    ours = (
        stock.run(lake.url, as_texts(list(columns), "l.t"))
        if IS_PINNED
        else lake.sql(as_texts(list(columns), "t")).fetchall()
    )
    assert texts(ours) == texts(theirs), columns
    lake.export_to(f"duckdb:{tmp_path}/back.duckdb")
    assert texts(in_duckdb(tmp_path / "back.duckdb", as_texts(list(columns), "t"))) == texts(theirs), columns
