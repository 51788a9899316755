"""Filters become predicates if statistics can answer them, "anything" if not, and errors if they are not filters."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quacklake
from quacklake.core.format.bounds import ANYTHING, Compare, Every, IsNull, Some
from quacklake.core.format.schema import from_arrow
from quacklake.core.scan import to_predicate
from quacklake.core.scan.planner import unknown_columns
from quacklake.errors import PredicateError, QuacklakeError

SCHEMA = from_arrow(
    pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("x", pa.float64()),
            ("day", pa.date32()),
            ("price", pa.decimal128(10, 2)),
            ("ts", pa.timestamp("us")),
            ("tz", pa.timestamp("us", "UTC")),
            ("point", pa.struct([("x", pa.int64())])),
            ("f32", pa.float32()),
        ]
    )
)
ID = SCHEMA.find("id").id


def shape(where: str) -> str:
    """A predicate as a short text."""

    def show(predicate: object) -> str:
        if isinstance(predicate, Compare):
            name = next(column.name for column in SCHEMA.columns if column.id == predicate.column_id)
            return f"{name} {predicate.operator} {predicate.text}"
        if isinstance(predicate, IsNull):
            return f"{predicate.column_id} null"
        assert isinstance(predicate, Every | Some)
        word = " and " if isinstance(predicate, Every) else " or "
        return "(" + word.join(show(part) for part in predicate.parts) + ")"

    return show(to_predicate(where, SCHEMA))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id = 5", "id = 5"),
        ("5 = id", "id = 5"),
        ("5 < id", "id > 5"),
        ("id >= -5", "id >= -5"),
        ("ID = 5", "id = 5"),
        ('"id" = 5', "id = 5"),
        ("id = '5'", "id = 5"),
        ("(id) = (5)", "id = 5"),
        ("id BETWEEN 1 AND 3", "(id >= 1 and id <= 3)"),
        ("id IN (1, 2)", "(id = 1 or id = 2)"),
        ("id = 1 AND name = 'a' AND x < 1.5", "(id = 1 and name = a and x < 1.5)"),
        ("id = 1 OR name = 'a'", "(id = 1 or name = a)"),
        ("id IS NULL", f"{ID} null"),
        ("day = DATE '2024-01-01'", "day = 2024-01-01"),
        ("day = '2024-01-01'", "day = 2024-01-01"),
        ("price = 1.5", "price = 1.50"),
        ("ts < TIMESTAMP '2024-01-01 00:00:00'", "ts < 2024-01-01 00:00:00"),
        ("tz < TIMESTAMPTZ '2024-01-01 00:00:00+00'", "tz < 2024-01-01 00:00:00+00"),
        ("id = 1 AND random() < 0.5", "id = 1"),
    ],
)
def test_what_statistics_can_answer_becomes_a_predicate(where: str, expected: str) -> None:
    assert shape(where) == expected


@pytest.mark.parametrize(
    "where",
    [
        "true",
        "id <> 5",
        "NOT id = 5",
        "NOT (id IS NULL)",
        "id IS NOT NULL",
        "id NOT IN (1, 2)",
        "id + 1 = 5",
        "abs(id) = 5",
        "id = x",
        "id = 1 OR random() < 0.5",
        "id = 1.5",
        "id = NULL",
        "id = '--5'",
        "id = '²'",
        "id = ' 5'",
        "name = 5",
        "name LIKE 'a%'",
        "point.x = 5",
        "point IS NULL",
        "f32 = 0.1",
        "tz = '2024-01-01 00:00:00'",
        "id IN (SELECT 1)",
        "x = 'nan'",
        "price = 1e2",
        "unknown = 5",
        "CASE WHEN id = 1 THEN true END",
    ],
)
def test_what_statistics_cannot_answer_is_anything(where: str) -> None:
    assert to_predicate(where, SCHEMA) == ANYTHING


def test_no_filter_is_anything() -> None:
    assert to_predicate(None, SCHEMA) == ANYTHING


@pytest.mark.parametrize(
    "where",
    [
        "",
        " ",
        "id =",
        "id = 5; DROP TABLE t",
        "id = 5) OR (1 = 1",
        "id = 5 ORDER BY id",
        "id = 5 LIMIT 1",
        "id = 5 GROUP BY id",
        "id = 5 UNION SELECT 1",
        "1 = 1 -- '\n) UNION ALL SELECT (2",
        "(" * 3000 + "1" + ")" * 3000,
        "'unclosed",
    ],
)
def test_what_is_not_one_expression_is_refused(where: str) -> None:
    with pytest.raises(PredicateError):
        to_predicate(where, SCHEMA)


@pytest.mark.parametrize("where", [5, b"id = 5", ["id = 5"], {"id": 5}])
def test_what_is_no_filter_at_all_is_refused_with_a_hint(where: object) -> None:
    with pytest.raises(PredicateError) as caught:
        to_predicate(where, SCHEMA)  # type: ignore[arg-type]
    assert caught.value.hint


@given(st.text(max_size=40))
def test_any_text_is_a_predicate_or_a_predicate_error(text: str) -> None:
    try:
        to_predicate(text, SCHEMA)
    except PredicateError:
        pass


def test_an_unknown_column_is_named_with_its_neighbours() -> None:
    assert unknown_columns("nmae = 'x'", SCHEMA) == 'did you mean "name"?'
    assert unknown_columns("name = 'x'", SCHEMA) is None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (pc.field("id") == 5, "id = 5"),
        (pc.scalar(5) < pc.field("id"), "id > 5"),
        ((pc.field("id") > 1) & (pc.field("name") == "a"), "(id > 1 and name = a)"),
        ((pc.field("id") > 1) | (pc.field("name") == "a"), "(id > 1 or name = a)"),
        (pc.field("id").isin([1, 2]), "(id = 1 or id = 2)"),
        (pc.field("id").is_null(), f"{ID} null"),
        (~(pc.field("id") == 5), "()"),
        (pc.field("id") + 1 == 5, "()"),
    ],
)
def test_arrow_expressions_become_predicates_too(expression: pc.Expression, expected: str) -> None:
    assert shape(expression) == expected  # type: ignore[arg-type]


def test_an_arrow_expression_over_an_unknown_column_is_refused() -> None:
    with pytest.raises(PredicateError):
        to_predicate(pc.field("nowhere") == 5, SCHEMA)


@pytest.mark.parametrize(
    "where",
    [
        "nowhere = 5",
        "id = 'five'",
        "id = 5; SELECT 1",
        "id = 5) OR (1 = 1",
        "id + name = 5",
        "sum(id) > 5",
        "id",
        "'x'",
    ],
)
def test_a_filter_that_cannot_run_is_an_error_of_ours(where: str, tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path / 'l.db'}", data_path=tmp_path / "data") as lake:
        t = lake.create_table("t", [{"id": n, "name": "x"} for n in range(20)])
        for work in (lambda: t.to_arrow(where=where), lambda: t.delete(where), lambda: t.update({"name": "y"}, where)):
            if where == "id":  # a number is a condition for DuckDB
                continue
            with pytest.raises(QuacklakeError):
                work()
        assert t.count() == 20
        assert lake.snapshots().num_rows == 2
