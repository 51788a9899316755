"""Name mappings: to and from catalog rows, what folders say, and which types fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.format.mappings import (
    MappedColumn,
    MappingRow,
    NameMapping,
    fits,
    flatten_mapping,
    hive_values,
    unflatten_mappings,
)
from quacklake.errors import CatalogError

_names = st.text(min_size=1, max_size=5)
_ids = st.integers(1, 1_000)
_leaves = st.builds(MappedColumn, _names, _ids, st.booleans())


def _with_children(inner: st.SearchStrategy[MappedColumn]) -> st.SearchStrategy[MappedColumn]:
    return st.builds(MappedColumn, _names, _ids, st.just(False), st.lists(inner, max_size=3).map(tuple))


_columns = st.recursive(_leaves, _with_children, max_leaves=6)
_mappings = st.builds(
    NameMapping,
    st.integers(0, 9),
    st.lists(_columns, min_size=1, max_size=4, unique_by=lambda column: column.target_id).map(tuple),
)


@given(_mappings)
def test_a_mapping_survives_the_catalog(mapping: NameMapping) -> None:
    rows = flatten_mapping(mapping)
    assert [row.column_id for row in rows] == list(range(len(rows)))
    assert unflatten_mappings(reversed(rows)) == (mapping,)


@given(_mappings, st.randoms())
def test_the_order_of_columns_does_not_make_another_mapping(mapping: NameMapping, random: object) -> None:
    columns = list(mapping.columns)
    random.shuffle(columns)  # type: ignore[attr-defined]
    assert NameMapping(-1, tuple(columns)).key == mapping.key


@pytest.mark.parametrize(
    "rows",
    [
        [MappingRow(1, 0, "a", 1, 7, False)],
        [MappingRow(1, 0, "a", 1, 0, False)],
        [MappingRow(1, 0, "a", 1, 1, False), MappingRow(1, 1, "b", 2, 0, False)],
        [MappingRow(1, 0, "a", 1, None, False), MappingRow(1, 1, "b", 1, None, False)],
    ],
)
def test_rows_that_are_no_tree_are_refused(rows: list[MappingRow]) -> None:
    with pytest.raises(CatalogError):
        unflatten_mappings(rows)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/a/b.parquet", {}),
        ("/x=1/f.parquet", {"x": "1"}),
        ("x=1/y=2/f=3.parquet", {"x": "1", "y": "2"}),
        ("/x=1/x=2/f", {"x": "1"}),
        ("/x=a%2Fb/f", {"x": "a/b"}),
        ("/x=nUlL/y=__HIVE_DEFAULT_PARTITION__/z=/f", {"x": None, "y": None, "z": ""}),
        ("/x=a=b/f", {}),
        ("s3://bucket/x=1/f", {"x": "1"}),
        ("=1/f", {}),
    ],
)
def test_folders_are_read_as_stock_clients_read_them(path: str, values: dict[str, str | None]) -> None:
    assert hive_values(path) == values


@given(st.text(max_size=40))
def test_any_path_has_some_values(path: str) -> None:
    assert all("/" not in name for name in hive_values(path))


def test_a_type_fits_itself_and_nothing_fits_an_unknown_one() -> None:
    for name in ("int8", "uint64", "varchar", "blob", "date", "timestamptz", "uuid", "decimal(9,2)", "interval"):
        assert fits(name, name)
        assert not fits(None, name)
        assert not fits("list", name)
