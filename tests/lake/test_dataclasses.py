"""Rows as instances of dataclasses, in and out (P54)."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NewType
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import ConstraintError, InputError, QuacklakeError, SchemaMismatchError

UserId = NewType("UserId", int)
Cents = Annotated[Decimal, "DECIMAL(12, 2)"]


class State(enum.Enum):
    OPEN = "open"
    DONE = "done"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Place:
    latitude: float
    longitude: float
    name: str | None = None


@dataclass(frozen=True)
class Visit:
    place: Place
    marks: dict[str, int]


@dataclass
class Order:
    id: UserId
    buyer: str
    paid: bool
    total: Cents
    weight: float | None
    seen: Annotated[dt.datetime, "TIMESTAMPTZ"]
    local: dt.datetime
    day: dt.date
    at: dt.time | None
    waited: dt.timedelta
    key: uuid.UUID
    data: bytes
    extra: Annotated[str, "JSON"]
    small: Annotated[int, pa.int8()]
    state: State
    level: Level | None
    kind: Literal["new", "old"]
    mark: Literal["a", None]
    home: Place | None
    visits: list[Visit]
    tags: set[str]
    path: tuple[int, ...] | None
    prices: dict[str, Cents]
    places: dict[int, list[Place | None]]
    note: str = ""
    more: list[str] = field(default_factory=list)


def order(number: int) -> Order:
    """Return an order whose optional parts are missing in some, by its number."""
    odd = bool(number % 2)
    place = Place(number / 2, -1.5, "dock" if odd else None)
    return Order(
        id=UserId(number),
        buyer=f"buyer {number} é",
        paid=odd,
        total=Decimal(number) / 4,
        weight=None if odd else number / 8,
        seen=dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=number % 3))),
        local=dt.datetime(2026, 1, 1) + dt.timedelta(microseconds=number),
        day=dt.date(2026, 1, 1) + dt.timedelta(number),
        at=dt.time(number % 24, 30) if odd else None,
        waited=dt.timedelta(days=number % 40, milliseconds=number),
        key=uuid.UUID(int=number),
        data=bytes([number % 256]),
        extra=f'{{"n":{number}}}',
        small=number % 100,
        state=State.OPEN if odd else State.DONE,
        level=Level.HIGH if odd else None,
        kind="new",
        mark="a" if odd else None,
        home=place if odd else None,
        visits=[Visit(place, {"n": number})] * (number % 3),
        tags={"x", str(number)},
        path=None if odd else tuple(range(number % 4)),
        prices={"EUR": Decimal("1.25")} if odd else {},
        places={1: [place, None], 2: []},
        more=["m"] * (number % 2),
    )


@pytest.fixture(params=[0, 1000], ids=["files", "inlined"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=request.param
    ) as lake:
        yield lake


def test_rows_come_back_as_they_were(lake: quacklake.Lake) -> None:
    rows = [order(number) for number in range(100)]
    orders = lake.create_table("orders", Order)
    assert orders.append(rows) == 100
    assert sorted(orders.rows(Order), key=lambda row: row.id) == rows
    assert sorted(orders.rows(Order, "id >= 90", batch_rows=3), key=lambda row: row.id) == rows[90:]
    assert list(orders.scan(where="id = 7").rows(Order)) == rows[7:8]
    assert list(lake.sql("SELECT * FROM orders WHERE id = 8").rows(Order)) == rows[8:9]
    assert orders.delete("id > 3") == 96
    assert {row.id for row in lake.at(version=2).table("orders").rows(Order)} == set(range(100))
    inserted = orders.changes(since=2, until=2).where("change_type = 'insert'")
    assert sorted(inserted.rows(Order), key=lambda row: row.id) == rows


def test_a_table_has_the_types_of_the_fields(lake: quacklake.Lake) -> None:
    lake.create_table("orders", Order)
    described = {name: (type_, null) for name, type_, null, *_ in lake.sql("DESCRIBE orders").fetchall()}
    assert described == {
        "id": ("BIGINT", "NO"),
        "buyer": ("VARCHAR", "NO"),
        "paid": ("BOOLEAN", "NO"),
        "total": ("DECIMAL(12,2)", "NO"),
        "weight": ("DOUBLE", "YES"),
        "seen": ("TIMESTAMP WITH TIME ZONE", "NO"),
        "local": ("TIMESTAMP", "NO"),
        "day": ("DATE", "NO"),
        "at": ("TIME", "YES"),
        "waited": ("INTERVAL", "NO"),
        "key": ("UUID", "NO"),
        "data": ("BLOB", "NO"),
        "extra": ("JSON", "NO"),
        "small": ("TINYINT", "NO"),
        "state": ("VARCHAR", "NO"),
        "level": ("BIGINT", "YES"),
        "kind": ("VARCHAR", "NO"),
        "mark": ("VARCHAR", "YES"),
        "home": ('STRUCT(latitude DOUBLE, longitude DOUBLE, "name" VARCHAR)', "YES"),
        "visits": (
            'STRUCT(place STRUCT(latitude DOUBLE, longitude DOUBLE, "name" VARCHAR), marks MAP(VARCHAR, BIGINT))[]',
            "NO",
        ),
        "tags": ("VARCHAR[]", "NO"),
        "path": ("BIGINT[]", "YES"),
        "prices": ("MAP(VARCHAR, DECIMAL(12,2))", "NO"),
        "places": (
            'MAP(BIGINT, STRUCT(latitude DOUBLE, longitude DOUBLE, "name" VARCHAR)[])',
            "NO",
        ),
        "note": ("VARCHAR", "NO"),
        "more": ("VARCHAR[]", "NO"),
    }
    filled = lake.create_table("filled", (order(number) for number in range(3)))
    assert lake.sql("DESCRIBE filled").fetchall() == lake.sql("DESCRIBE orders").fetchall()
    assert filled.count() == 3


@dataclass
class Item:
    id: int
    name: str | None = None
    price: float = 1.5


@dataclass
class Named:
    ID: int
    name: str | None = None


def test_instances_go_wherever_rows_go(lake: quacklake.Lake) -> None:
    items = lake.create_table("items", Item, primary_key="id")
    items.append([Item(1, "a"), Item(2)])
    assert items.append([Item(2, "again"), Item(3)], dedup=True) == 1
    result = items.merge([Item(1, "b", 2.0), Item(4)])
    assert (result.inserted, result.updated) == (1, 1)
    with lake.transaction() as tx:
        tx.table("items").append(iter([Item(5)]))
        assert [row.id for row in tx.table("items").rows(Item, "id = 5")] == [5]
    items.overwrite([Item(9)], "id = 3")
    assert sorted(items.rows(Named), key=lambda row: row.ID) == [
        Named(1, "b"), Named(2), Named(4), Named(5), Named(9),
    ]  # fmt: skip
    assert items.append([]) == 0


def test_columns_that_came_later_have_the_default_in_older_snapshots(lake: quacklake.Lake) -> None:
    items = lake.create_table("items", {"id": int, "other": int})
    items.append([{"id": 1, "other": 7}])
    items.append([Item(2, "b")], evolve=True)
    assert list(lake.at(version=2).table("items").rows(Item)) == [Item(1)]
    assert list(items.rows(Item, "id = 2")) == [Item(2, "b")]
    with pytest.raises(ConstraintError, match=r'"Item\.price" cannot be None'):
        list(items.rows(Item))


@dataclass
class Wide:
    n: int
    x: float
    y: float
    big: int
    seen: Annotated[dt.datetime, pa.timestamp("us", "Europe/Berlin")]
    second: dt.datetime


def test_numbers_and_times_of_other_widths_are_read(lake: quacklake.Lake) -> None:
    lake.sql("""CREATE TABLE narrow AS SELECT 1::TINYINT AS n, 2::INTEGER AS x, 0.5::FLOAT AS y, 3::HUGEINT AS big,
        TIMESTAMPTZ '2026-07-01 00:00:00+00' AS seen, TIMESTAMP_S '2026-07-01 00:00:01' AS second""")
    (found,) = lake.table("narrow").rows(Wide)
    assert (found.n, found.x, found.y, found.big) == (1, 2.0, 0.5, 3)
    assert type(found.x) is float
    assert found.seen == dt.datetime(2026, 7, 1, 2, tzinfo=ZoneInfo("Europe/Berlin"))
    assert found.seen.hour == 2
    assert found.second == dt.datetime(2026, 7, 1, 0, 0, 1)


def replaced(**values: Any) -> list[Order]:
    return [order(1), dataclasses.replace(order(2), **values)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"buyer": 7}, r'the field "Order\.buyer" holds int, not str'),
        ({"buyer": b"x"}, r'"Order\.buyer" holds bytes, not str'),
        ({"buyer": None}, r'"Order\.buyer" cannot be None'),
        ({"id": True}, r'"Order\.id" holds bool, not int'),
        ({"id": 1.5}, r'"Order\.id" holds float, not int'),
        ({"id": 2**63}, r'a value of the field "Order\.id" is not int'),
        ({"small": 128}, r'a value of the field "Order\.small" is not int'),
        ({"total": Decimal("1.125")}, r'a value of the field "Order\.total" is not Decimal'),
        ({"total": 1.5}, r'"Order\.total" holds float, not Decimal'),
        ({"seen": dt.datetime(2026, 1, 1)}, r'"Order\.seen" cannot hold a time without a zone'),
        ({"local": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, r'"Order\.local" cannot hold a time with a zone'),
        ({"day": dt.datetime(2026, 1, 1)}, r'"Order\.day" holds datetime, not date'),
        ({"state": "open"}, r'"Order\.state" holds str, not State'),
        ({"kind": "other"}, r"\"Order\.kind\" cannot be 'other'"),
        ({"home": {"latitude": 1.0}}, r'"Order\.home" holds dict, not Place'),
        ({"home": Place("north", 1.0)}, r'"Order\.home\.latitude" holds str, not float'),  # type: ignore[arg-type]
        ({"visits": [Visit(Place(1.0, 1.0), {"n": "x"})]}, r'"Order\.visits\[\]\.marks\[\]" holds str, not int'),
        ({"visits": [None]}, r'"Order\.visits\[\]" cannot be None'),
        ({"tags": "text"}, r'"Order\.tags" holds str, not set'),
        ({"prices": [1]}, r'"Order\.prices" holds list, not dict'),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_an_error_with_its_field(
    lake: quacklake.Lake, values: dict[str, Any], message: str
) -> None:
    orders = lake.create_table("orders", Order)
    before = lake.current_snapshot()
    with pytest.raises((SchemaMismatchError, ConstraintError), match=message):
        orders.append(replaced(**values))
    assert lake.current_snapshot() == before


def test_rows_of_one_table_are_of_one_class(lake: quacklake.Lake) -> None:
    items = lake.create_table("items", Item)
    with pytest.raises(SchemaMismatchError, match=r'"Item" holds Named, not Item'):
        items.append([Item(1), Named(2)])
    with pytest.raises(SchemaMismatchError, match=r'"Item" holds dict, not Item'):
        items.append([Item(1), {"id": 2}])
    with pytest.raises(SchemaMismatchError, match="cannot read rows from Item"):
        items.append(Item(1))
    assert items.count() == 0


@dataclass
class Single:
    value: int


@dataclass
class Chosen:
    value: State


@dataclass
class Worded:
    value: Literal["a", "b"]


@dataclass
class Timed:
    value: dt.datetime


@dataclass
class Waited:
    value: dt.timedelta


@dataclass
class Moment:
    value: dt.time


@dataclass
class Keyed:
    value: uuid.UUID


@dataclass
class Listed:
    value: list[int]


@dataclass
class Mapped:
    value: dict[str, int]


@dataclass
class Inside:
    value: Single


@pytest.mark.parametrize(
    ("row", "sql", "message"),
    [
        (Single, "'7'", r'the column of the field "Single\.value" is string, which is not int'),
        (Single, "NULL::BIGINT", r'"Single\.value" cannot be None'),
        (Single, "1.5", r'"Single\.value" is decimal128\(2, 1\), which is not int'),
        (Chosen, "'lost'", r"\"Chosen\.value\": 'lost' is not a valid State"),
        (Worded, "'c'", r"\"Worded\.value\" cannot be 'c'"),
        (Timed, "TIMESTAMPTZ '2026-01-01 00:00:00+00'", r'"Timed\.value" cannot hold timestamp'),
        (Timed, "TIMESTAMP '12026-01-01'", r'"Timed\.value" holds str, not datetime'),
        (Timed, "TIMESTAMP_NS '2026-01-01 00:00:00.000000001'", r'a value of the field "Timed\.value" is not datetime'),
        (Waited, "INTERVAL 1 MONTH", r'"Waited\.value" is not timedelta: an interval has months'),
        (Moment, "TIME '24:00:00'", r'"Moment\.value" holds str, not time'),
        (Keyed, "'x'", r'a value of the field "Keyed\.value" is not UUID'),
        (Listed, "[1, NULL]", r'"Listed\.value\[\]" cannot be None'),
        (Listed, "1", r'"Listed\.value" is int32, which is not list'),
        (Mapped, "MAP {'a': 'b'}", r'the column of the field "Mapped\.value\[\]" is string'),
        (Mapped, "{'a': 1}", r'"Mapped\.value" is struct<a: int32>, which is not dict'),
        (Inside, "{'other': 1}", r'there is no column for the field "Inside\.value\.value"'),
        (Inside, "'x'", r'"Inside\.value" is string, which is not Single'),
    ],
)
def test_a_value_that_a_field_cannot_hold_is_an_error_when_it_is_read(
    lake: quacklake.Lake, row: type[Single], sql: str, message: str
) -> None:
    lake.sql(f"CREATE TABLE t AS SELECT {sql} AS value")
    with pytest.raises((SchemaMismatchError, ConstraintError), match=message):
        list(lake.table("t").rows(row))


@dataclass
class Looped:
    inner: list[Looped]


@dataclass
class Unknown:
    value: Missing  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Empty:
    computed: int = field(default=1, init=False)


@dataclass
class Shown:
    value: list[int] | dict[str, complex | None]


class Mixed(enum.Enum):
    A = 1
    B = "b"


def of(hint: Any) -> type:
    return dataclasses.make_dataclass("Made", [("value", hint)])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (int, "is not a dataclass"),
        (Item(1), "is not a dataclass"),
        (Empty, "has no fields"),
        (Unknown, "a type that is not known"),
        (Looped, "nested too deeply, or holds itself"),
        (Shown, r'"Shown\.value": .* is not one type'),
        (of(complex), r'"Made\.value": complex is not a type of a field'),
        (of(Any), r"Any is not a type of a field"),
        (of(list), r"list is not a type of a field"),
        (of(tuple[int, str]), r"tuple\[int, str\] is not a type of a field"),
        (of(dict[str | None, int]), "a key cannot be None"),
        (of(Mixed), "its values are of one simple type, not of int, str"),
        (of(Annotated[int, "VARCHAR"]), "int does not fit into a column of varchar"),
        (of(Annotated[int, "no type"]), r'"Made\.value": .*type NO'),
        (of(Annotated[list[int], "INTEGER[]"]), "only a type without parts"),
        (of(list[dict[str, complex]]), r'"Made\.value\[\]\[\]": complex is not'),
    ],
)
def test_a_type_that_is_no_row_is_refused_with_the_name_of_the_field(row: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        quacklake.RowType(row)


def test_a_missing_column_is_named_before_rows_are_read(lake: quacklake.Lake) -> None:
    items = lake.create_table("items", {"name": str})
    with pytest.raises(SchemaMismatchError, match=r'no column for the field "Item\.id"') as caught:
        items.rows(Item)
    assert "the columns are name" in str(caught.value)


@dataclass
class Alive:
    """A row that counts how many there are at a time."""

    id: int
    count = most = 0

    def __post_init__(self) -> None:
        Alive.count += 1
        Alive.most = max(Alive.most, Alive.count)

    def __del__(self) -> None:
        Alive.count -= 1


def test_rows_are_converted_in_batches(lake: quacklake.Lake) -> None:
    table = lake.create_table("alive", Alive)
    count = 200_000
    assert table.append(Alive(number) for number in range(count)) == count
    assert 0 < Alive.most <= 70_000
    Alive.most = 0
    assert sum(row.id for row in table.rows(Alive, batch_rows=5_000)) == count * (count - 1) // 2
    assert 0 < Alive.most <= 10_001


def test_batches_of_arrow_are_converted_without_a_lake() -> None:
    rows = [order(number) for number in range(10)]
    mapping = quacklake.RowType(Order)
    batches = list(mapping.to_batches(rows, batch_rows=4))
    assert [batch.num_rows for batch in batches] == [4, 4, 2]
    assert all(batch.schema == mapping.schema for batch in batches)
    assert list(mapping.from_batches(batch.slice(1) for batch in batches)) == [*rows[1:4], *rows[5:8], rows[9]]
    assert mapping.schema.field("weight").nullable
    assert not mapping.schema.field("id").nullable


def test_an_error_in_a_later_batch_changes_nothing(lake: quacklake.Lake) -> None:
    items = lake.create_table("items", Item)
    rows: list[Any] = [Item(number) for number in range(70_000)]
    rows[-1] = Item(1, price="x")  # type: ignore[arg-type]
    with pytest.raises(QuacklakeError, match=r'"Item\.price" holds str, not float'):
        items.append(rows)
    assert items.count() == 0
