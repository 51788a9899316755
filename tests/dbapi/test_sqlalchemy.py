"""A lake as SQLAlchemy sees it, through its own and pandas' eyes."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import quacklake
from quacklake.sqlalchemy import HUGEINT, UBIGINT, NestedType, QuacklakeDialect


class Base(DeclarativeBase):
    pass


class Book(Base):
    __tablename__ = "books"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    title: Mapped[str]
    price: Mapped[Decimal] = mapped_column(sa.Numeric(10, 2), comment="in €")
    order: Mapped[uuid.UUID | None]
    at: Mapped[dt.datetime | None] = mapped_column(sa.DateTime(timezone=True))
    lent: Mapped[dt.timedelta | None]
    facts: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"quacklake+sqlite:///{tmp_path}/lake.db?data_path={tmp_path}/data"


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


def test_the_dialect_is_found_by_its_name(engine: sa.Engine) -> None:
    assert isinstance(engine.dialect, QuacklakeDialect)
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT :a + 1"), {"a": 41}) == 42


def test_objects_are_stored_changed_and_found(engine: sa.Engine) -> None:
    Base.metadata.create_all(engine)
    now = dt.datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    number = uuid.uuid4()
    with Session(engine) as session:
        emma = Book(
            id=1, title="Emma", price=Decimal("8.50"), order=number, at=now, lent=dt.timedelta(days=2, seconds=3)
        )
        emma.facts = {"tags": ["x", None]}
        session.add_all([emma, Book(id=2, title="Dune", price=Decimal(12))])
        session.commit()
    with Session(engine) as session:
        found = session.get_one(Book, 1)
        assert (found.price, found.order, found.at) == (Decimal("8.50"), number, now)
        assert (found.lent, found.facts) == (dt.timedelta(days=2, seconds=3), {"tags": ["x", None]})
        session.get_one(Book, 2).price = Decimal(9)
        session.delete(found)
        session.commit()
        assert session.execute(sa.select(Book.title, Book.price)).all() == [("Dune", Decimal("9.00"))]


def test_a_session_that_is_rolled_back_leaves_nothing(engine: sa.Engine) -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Book(id=1, title="x", price=Decimal(1)))
        session.flush()
        assert session.scalar(sa.select(sa.func.count()).select_from(Book)) == 1
        session.rollback()
        assert session.scalar(sa.select(sa.func.count()).select_from(Book)) == 0


def test_autocommit_is_an_isolation_level(engine: sa.Engine) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("CREATE TABLE a AS SELECT 1 AS x"))
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM a")) == 1
        assert connection.get_isolation_level() == "SNAPSHOT"


def test_tables_views_columns_keys_and_comments_are_reflected(engine: sa.Engine) -> None:
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE SCHEMA other"))
        connection.execute(sa.text("CREATE TABLE other.wide (h HUGEINT, u UBIGINT, l INTEGER[], s STRUCT(a INTEGER))"))
        connection.execute(sa.text("CREATE VIEW seen AS SELECT id FROM books"))
        connection.execute(sa.text("COMMENT ON TABLE books IS 'all of them'"))
    inspector = sa.inspect(engine)
    assert inspector.get_schema_names() == ["main", "other"]
    assert (inspector.get_table_names(), inspector.get_view_names()) == (["books"], ["seen"])
    assert "SELECT id FROM books" in inspector.get_view_definition("seen")
    assert inspector.get_pk_constraint("books")["constrained_columns"] == ["id"]
    assert inspector.get_table_comment("books") == {"text": "all of them"}
    columns = {column["name"]: column for column in inspector.get_columns("books")}
    assert list(columns) == ["id", "title", "price", "order", "at", "lent", "facts"]
    assert (columns["price"]["comment"], str(columns["price"]["type"])) == ("in €", "DECIMAL(10, 2)")
    assert (columns["id"]["nullable"], columns["order"]["nullable"]) == (False, True)
    assert columns["at"]["type"].timezone is True  # type: ignore[attr-defined]
    kinds = [type(column["type"]) for column in inspector.get_columns("wide", "other")]
    assert kinds == [HUGEINT, UBIGINT, sa.ARRAY, NestedType]
    assert (inspector.get_foreign_keys("books"), inspector.get_indexes("books")) == ([], [])
    with pytest.raises(exc.NoSuchTableError):
        inspector.get_columns("missing")


def test_a_reflected_table_can_be_made_again(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE SCHEMA other"))
        types = "a TINYINT, b UTINYINT, c FLOAT, d DOUBLE, e DECIMAL(5, 1), f BLOB, g TIME, h INTERVAL, i UUID, j JSON"
        more = "k TIMESTAMPTZ, l VARCHAR[], m STRUCT(x DATE), n MAP(VARCHAR, BIGINT), o BOOLEAN, p HUGEINT"
        connection.execute(sa.text(f"CREATE TABLE first ({types}, {more})"))
    table = sa.Table("first", sa.MetaData(), autoload_with=engine)
    table.to_metadata(sa.MetaData(), schema="other").create(engine)
    inspector = sa.inspect(engine)
    spelled = [
        [str(column["type"].compile(engine.dialect)) for column in inspector.get_columns("first", schema)]
        for schema in ("main", "other")
    ]
    assert spelled[0] == spelled[1]


def test_a_pattern_is_searched_in_a_text(engine: sa.Engine) -> None:
    texts = ["abc", "xabcx", "ABC", "ac", ""]
    pattern = sa.literal_column("t")
    rows = sa.select(pattern).select_from(sa.text("(SELECT unnest(:texts) AS t)").bindparams(texts=texts))
    with engine.connect() as connection:
        for expression in ("b", "^a", "(?i)B", "a.?c"):
            found = connection.scalars(rows.where(pattern.regexp_match(expression))).all()
            assert list(found) == [text for text in texts if re.search(expression, text)]
            others = connection.scalars(rows.where(sa.not_(pattern.regexp_match(expression)))).all()
            assert list(others) == [text for text in texts if not re.search(expression, text)]
        assert connection.scalars(rows.where(pattern.regexp_match("b", flags="i"))).all() == texts[:3]


def test_parts_of_json_values_are_found_by_any_name(engine: sa.Engine) -> None:
    names = ["a", "$a", "/b", "a.b", 'q"q', "~", "0", "", "[0]", "ü"]
    value: dict[str, Any] = {name: {"n": number, "l": [1, None, {name: True}]} for number, name in enumerate(names)}
    table = sa.Table("docs", sa.MetaData(), sa.Column("doc", sa.JSON))
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert(), [{"doc": value}])
        for number, name in enumerate(names):
            parts = sa.select(
                table.c.doc[name],
                table.c.doc[(name, "n")].as_integer(),
                table.c.doc[(name, "l", 2, name)].as_boolean(),
                table.c.doc[name]["l"][-3].as_string(),
                table.c.doc[(name, "missing")],
            )
            assert connection.execute(parts).one() == (value[name], number, True, "1", None)


def test_numbers_and_durations_are_computed_as_in_python(engine: sa.Engine) -> None:
    half, third = Decimal("5.50"), Decimal("2.20")
    quotient = sa.literal(half, sa.Numeric(10, 2)) / sa.literal(third, sa.Numeric(10, 2))
    span = dt.timedelta(days=-1, seconds=5, microseconds=7)
    with engine.connect() as connection:
        found = connection.scalar(sa.select(quotient))
        assert (type(found), found) == (Decimal, Decimal("2.5"))
        assert connection.scalar(sa.select(sa.literal(6).bitwise_xor(3))) == 6 ^ 3
        literal = sa.select(sa.literal(span, sa.Interval(), literal_execute=True))
        assert connection.scalar(literal) == span


def test_pandas_writes_and_reads(engine: sa.Engine) -> None:
    frame = pd.DataFrame(
        {
            "a": [1, 2],
            "b": ["x", None],
            "c": [1.5, -2.5],
            "d": pd.to_datetime(["2024-01-01 00:00:00.1", "2024-01-02 03:04:05.6"]),
        }
    )
    frame.to_sql("frame", engine, index=False)
    frame.to_sql("frame", engine, index=False, if_exists="append")
    assert pd.read_sql("SELECT sum(c) AS c FROM frame", engine)["c"][0] == -2.0
    frame.to_sql("frame", engine, index=False, if_exists="replace")
    back = pd.read_sql("frame", engine)
    assert back["a"].tolist() == [1, 2]
    assert back["d"].tolist() == frame["d"].tolist()
    assert back["c"].tolist() == frame["c"].tolist()


def test_constraints_that_a_lake_does_not_keep_are_refused_or_left_out(url: str) -> None:
    metadata = sa.MetaData()
    sa.Table("a", metadata, sa.Column("id", sa.Integer, primary_key=True, autoincrement=False))
    sa.Table("b", metadata, sa.Column("a", sa.ForeignKey("a.id")), sa.Column("u", sa.Integer, unique=True, index=True))
    engine = sa.create_engine(url)
    with pytest.raises(exc.CompileError, match="keeps no"):
        metadata.create_all(engine)
    engine.dispose()
    lenient = sa.create_engine(url, ignore_constraints=True)
    metadata.create_all(lenient)
    assert sa.inspect(lenient).get_table_names() == ["a", "b"]
    lenient.dispose()


def test_errors_and_conflicts_have_sqlalchemys_classes(engine: sa.Engine, tmp_path: Path) -> None:
    with engine.connect() as connection, pytest.raises(exc.ProgrammingError):
        connection.execute(sa.text("SELECT * FROM nowhere"))
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as lake, engine.connect() as connection:
        table = lake.create_table("t", [{"id": 1}])
        connection.execute(sa.text("UPDATE t SET id = 2"))
        table.update({"id": 3})
        with pytest.raises(exc.OperationalError, match="conflict"):
            connection.commit()
    with pytest.raises(exc.ArgumentError):
        sa.create_engine("quacklake:///lake.db").connect()


def test_hostile_names_are_quoted(engine: sa.Engine) -> None:
    for number, name in enumerate(['a"b', "select", "x; DROP TABLE t", "ünï", "at", "with space", "%s", "?", ":p"]):
        table = sa.Table(f"{name} {number}", sa.MetaData(), sa.Column(name, sa.String, comment=name + "'"))
        table.create(engine)
        with engine.begin() as connection:
            connection.execute(table.insert(), [{name: name}, {name: "other"}])
            assert connection.scalar(sa.select(table.c[name]).where(table.c[name] == name)) == name
        (column,) = sa.inspect(engine).get_columns(table.name)
        assert (column["name"], column["comment"]) == (name, name + "'")
