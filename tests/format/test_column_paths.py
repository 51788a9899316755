"""Paths to columns and nested fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.format.evolution import find_column, replace_column
from quacklake.core.format.names import format_path, parse_path
from quacklake.core.format.schema import Column, TableSchema
from quacklake.errors import InputError, InvalidNameError

SCHEMA = TableSchema(
    (
        Column(1, "id", "int32"),
        Column(
            2, "s", "struct", children=(Column(3, "l", "list", children=(Column(4, "element", "int32"),)),)
        ),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b.c", ("a", "b", "c")),
        ('"a"."b"', ("a", "b")),
        ('"a.b".c', ("a.b", "c")),
        ('"say ""x"""', ('say "x"',)),
        (" a . b ", ("a", "b")),
        ("two words.ü", ("two words", "ü")),
        ('" "', (" ",)),
    ],
)
def test_names_are_separated_by_dots(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), min_size=1))
def test_a_path_comes_back_from_its_text(names: list[str]) -> None:
    assert parse_path(format_path(tuple(names))) == tuple(names)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", '"', '"a', '""', 'a"b', '"a"b', "a\0"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError):
        parse_path(text)


def test_a_field_is_found_without_regard_to_case() -> None:
    assert find_column(SCHEMA, ("S", "L", "Element")).id == 4


@pytest.mark.parametrize("path", [(), ("x",), ("s", "x"), ("id", "x")])
def test_a_missing_field_is_refused(path: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        find_column(SCHEMA, path)


def test_a_missing_field_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r'Column "s.ll" does not exist\n.*did you mean "l"'):
        find_column(SCHEMA, ("s", "ll"))


def test_only_the_column_of_the_path_changes() -> None:
    changed = replace_column(SCHEMA, ("s", "l", "element"), lambda old: Column(old.id, old.name, "int64"))
    assert [(column.id, column.type) for column in changed.walk()] == [
        (1, "int32"),
        (2, "struct"),
        (3, "list"),
        (4, "int64"),
    ]
    assert replace_column(SCHEMA, ("s",), lambda old: None).names == ("id",)
