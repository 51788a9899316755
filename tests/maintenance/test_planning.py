"""Compaction groups the right files: pure planning, no lake."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.maintenance.planning import (
    Group,
    SourceFile,
    batches,
    merge_groups,
    optimize_groups,
    rewrite_groups,
)

X, Y = (7, ((0, "x"),)), (7, ((0, None),))


def small(id_: int, size: int = 10, **facts: object) -> SourceFile:
    return SourceFile(**{"id": id_, "size": size, "records": 10, "begin": id_, **facts})  # type: ignore[arg-type]


def ids(groups: list[Group]) -> list[list[int]]:
    return [group.ids for group in groups]


def test_files_are_merged_in_their_order_until_one_is_full() -> None:
    files = [small(3), small(1), small(2), small(4), small(5)]
    assert ids(merge_groups(files, 30, max_files=100)) == [[1, 2, 3], [4, 5]]
    assert ids(merge_groups(files, 25, max_files=100)) == [[1, 2, 3], [4, 5]]
    assert ids(merge_groups(files, 1000, max_files=2)) == [[1, 2], [3, 4]]
    assert ids(merge_groups(files, 1000, max_files=100, max_groups=1)) == [[1, 2, 3, 4, 5]]
    assert ids(merge_groups(files, 20, max_files=100, max_groups=1)) == [[1, 2]]


def test_a_file_alone_is_not_merged() -> None:
    assert merge_groups([small(1)], 100, max_files=10) == []
    assert merge_groups([small(1), small(2, size=100)], 100, max_files=10) == []
    assert merge_groups([small(1), small(2, layout=X)], 100, max_files=10) == []


def test_files_with_deletes_other_columns_or_another_partition_are_kept_apart() -> None:
    files = [
        small(1),
        small(2, deleted=1),
        small(3, version=1),
        small(4, layout=X),
        small(5, layout=Y),
        small(6, version=None),
        small(7),
        small(8, version=1),
        small(9, layout=Y),
        small(10, layout=X),
        small(11, version=None),
    ]
    assert ids(merge_groups(files, 1000, max_files=100)) == [[1, 7], [3, 8], [4, 10], [5, 9]]


def test_only_files_of_the_wanted_sizes_are_merged() -> None:
    files = [small(n, size=n * 10) for n in range(1, 7)]
    assert ids(merge_groups(files, 1000, max_files=100, min_size=20, max_size=50)) == [[2, 3, 4]]
    assert ids(merge_groups(files, 45, max_files=100, max_size=1000)) == [
        [1, 2, 3],
    ]


def test_files_are_rewritten_from_a_share_of_deleted_rows_on() -> None:
    files = [small(n, deleted=n - 1) for n in range(1, 12)]
    assert ids(rewrite_groups(files, 0.5, 1000, max_files=100)) == [[6, 7, 8, 9, 10, 11]]
    assert ids(rewrite_groups(files, 1, 1000, max_files=100)) == [[11]]
    assert ids(rewrite_groups(files, 0, 1000, max_files=4)) == [[2, 3, 4, 5], [6, 7, 8, 9], [10, 11]]
    mixed = [small(1, deleted=5, layout=X), small(2, deleted=5, version=3), small(3, deleted=5, layout=X)]
    assert ids(rewrite_groups(mixed, 0.5, 1000, max_files=100)) == [[1, 3], [2]]


def test_all_files_of_a_partition_are_optimized_together() -> None:
    files = [small(1, size=5000, layout=Y), small(2, layout=X), small(3, deleted=4, layout=Y, version=None)]
    assert ids(optimize_groups(files, 7)) == [[1, 3], [2]]
    assert (
        ids(optimize_groups([*files, small(4)], 7)) == ids(optimize_groups([*files, small(4)], None)) == [[1, 2, 3, 4]]
    )


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3), st.integers(0, 2)), max_size=40),
    st.integers(1, 120),
    st.integers(2, 9),
)
def test_every_file_is_in_at_most_one_group_and_no_group_is_too_large(
    found: list[tuple[int, int, int]], target: int, limit: int
) -> None:
    files = [small(n, size=size, deleted=deleted, version=version) for n, (size, deleted, version) in enumerate(found)]
    for groups in (merge_groups(files, target, max_files=limit), rewrite_groups(files, 0.1, target, max_files=limit)):
        chosen = [id_ for group in groups for id_ in group.ids]
        assert len(set(chosen)) == len(chosen)
        for group in groups:
            assert len(group.files) <= limit
            assert sum(file.live_size for file in group.files[:-1]) < target
    groups = merge_groups(files, target, max_files=limit)
    commits = batches(groups, max_files=limit, max_bytes=target)
    assert [group for batch in commits for group in batch] == groups
    for batch in commits:
        assert len(batch) == 1 or sum(len(group.files) for group in batch) <= limit
