"""Find the ids of a file's fields in the history of the table, if the file has only their names."""

from __future__ import annotations

import pytest

from quacklake.core.format.schema import Column, Past, TableSchema, with_ids


def struct(id_: int, name: str, *children: Column) -> Column:
    return Column(id_, name, "struct", children=children)


def schema(*columns: Column) -> TableSchema:
    return TableSchema(columns)


def a(id_: int, name: str = "a", type_: str = "int64") -> Column:
    return Column(id_, name, type_)


#: 1: s(a=2), 3: s(a=2, b=3), 5: s(b=3), 7: s(b=3, a=4), 9: s renamed to t
PAST: Past = (
    (1, schema(struct(1, "s", a(2)))),
    (3, schema(struct(1, "s", a(2), a(3, "b")))),
    (5, schema(struct(1, "s", a(3, "b")))),
    (7, schema(struct(1, "s", a(3, "b"), a(4)))),
    (9, schema(struct(1, "t", a(3, "b"), a(4)))),
)
NOW = struct(1, "t", a(3, "b"), a(4))


def found(name: str, *children: str, begin: int | None, past: Past = PAST) -> list[int] | None:
    stored = with_ids({name: struct(0, name, *(a(0, child, "int32") for child in children))}, NOW, past, begin)
    return None if stored is None else [child.id for child in stored.children]


def test_names_mean_what_they_meant_when_the_file_began() -> None:
    assert found("s", "a", begin=2) == [2]
    assert found("s", "b", begin=6) == [3]
    assert found("s", "a", "b", begin=4) == [2, 3]
    assert found("s", "b", "a", begin=8) == [3, 4]
    assert found("t", "b", "a", begin=10) == [3, 4]


def test_a_file_may_be_written_before_or_after_its_transaction_changes_fields() -> None:
    assert found("s", "a", begin=3) == [2]
    assert found("s", "a", "b", begin=3) == [2, 3]
    swapped: Past = ((1, schema(struct(1, "t", a(3, "b")))), (3, schema(struct(1, "t", a(4, "b")))))
    with pytest.raises(LookupError):
        found("t", "b", begin=3, past=swapped)


def test_a_compacted_file_is_read_when_its_names_have_one_meaning() -> None:
    assert found("s", "a", begin=None) == [2]
    with pytest.raises(LookupError):
        found("s", "a", "b", begin=None)


def test_names_that_the_history_does_not_know_are_not_guessed() -> None:
    with pytest.raises(LookupError):
        found("s", "x", begin=2)
    assert found("other", "a", begin=2) is None


def test_another_column_that_had_the_name_before_is_another_column() -> None:
    past: Past = ((1, schema(Column(9, "t", "int64"))), (3, schema(NOW)))
    assert with_ids({"t": Column(0, "t", "int64")}, NOW, past, 2) is None


def test_lists_and_maps_are_told_by_their_places_and_scalars_get_the_types_of_the_table() -> None:
    inner = struct(3, "element", a(4, "x"))
    past: Past = ((1, schema(Column(1, "l", "list", children=(inner,)))),)
    stored = Column(0, "l", "list", children=(struct(0, "item", a(0, "x", "int8")),))
    wanted = Column(1, "l", "list", children=(struct(3, "element", a(4, "y", "int128")),))
    result = with_ids({"l": stored}, wanted, past, 2)
    assert result is not None
    (element,) = result.children
    assert (element.id, element.children) == (3, (a(4, "x", "int128"),))
