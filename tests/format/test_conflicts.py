"""The conflict matrix."""

from __future__ import annotations

import itertools

import pytest

from quacklake.core.format.conflicts import MATRIX, READ_MATRIX, TABLE_KINDS, Check, compare, explain
from quacklake.core.format.snapshots import Change, ChangeKind

K = ChangeKind
PAIRS = list(itertools.product(TABLE_KINDS, repeat=2))
SCHEMAS = {"main": 0, "s": 5}


def check(mine: Change, other: Change, *, reads: bool = False) -> Check:
    return compare(mine, other, reads=reads, schema_ids=SCHEMAS)


def test_every_pair_of_table_changes_has_a_cell() -> None:
    assert set(MATRIX) == set(PAIRS)
    assert set(READ_MATRIX) <= set(MATRIX)


def test_every_kind_is_about_a_table_or_another_object() -> None:
    by_id = {kind for kind in ChangeKind if not kind.named and kind is not K.CREATED_SCHEMA}
    others = {K.DROPPED_SCHEMA, K.DROPPED_VIEW, K.DROPPED_SCALAR_MACRO, K.DROPPED_TABLE_MACRO, K.ALTERED_VIEW}
    assert by_id == set(TABLE_KINDS) | others


@pytest.mark.parametrize(("mine", "other"), PAIRS)
def test_different_tables_never_conflict(mine: ChangeKind, other: ChangeKind) -> None:
    assert check(Change(mine, 1), Change(other, 2), reads=True) is Check.OK


@pytest.mark.parametrize("mine", TABLE_KINDS)
def test_a_dropped_table_excludes_everything(mine: ChangeKind) -> None:
    assert check(Change(mine, 1), Change(K.DROPPED_TABLE, 1)) is Check.CONFLICT


@pytest.mark.parametrize(("mine", "other"), PAIRS)
def test_checks_on_files_are_symmetric(mine: ChangeKind, other: ChangeKind) -> None:
    assert (MATRIX[mine, other] is Check.SAME_FILE) == (MATRIX[other, mine] is Check.SAME_FILE)


@pytest.mark.parametrize(("mine", "other"), PAIRS)
def test_a_read_only_adds_checks(mine: ChangeKind, other: ChangeKind) -> None:
    strict, blind = check(Change(mine, 1), Change(other, 1), reads=True), check(Change(mine, 1), Change(other, 1))
    assert blind in (strict, Check.OK)
    assert blind is not Check.READ


@pytest.mark.parametrize(
    ("mine", "other", "blind", "reading"),
    [
        (K.INSERTED_INTO_TABLE, K.INLINED_INSERT, Check.OK, Check.READ),
        (K.INLINED_INSERT, K.DELETED_FROM_TABLE, Check.OK, Check.SAME_FILE),
        (K.INSERTED_INTO_TABLE, K.ALTERED_TABLE, Check.CONFLICT, Check.CONFLICT),
        (K.INSERTED_INTO_TABLE, K.MERGE_ADJACENT, Check.OK, Check.OK),
        (K.DELETED_FROM_TABLE, K.INSERTED_INTO_TABLE, Check.OK, Check.READ),
        (K.DELETED_FROM_TABLE, K.INLINED_DELETE, Check.SAME_FILE, Check.SAME_FILE),
        (K.INLINED_DELETE, K.MERGE_ADJACENT, Check.SAME_FILE, Check.SAME_FILE),
        (K.INLINED_DELETE, K.REWRITE_DELETE, Check.SAME_FILE, Check.SAME_FILE),
        (K.INLINED_DELETE, K.INLINE_FLUSH, Check.SAME_FILE, Check.SAME_FILE),
        (K.MERGE_ADJACENT, K.INLINED_DELETE, Check.SAME_FILE, Check.SAME_FILE),
        (K.MERGE_ADJACENT, K.COMPACTED_TABLE, Check.SAME_FILE, Check.SAME_FILE),
        (K.REWRITE_DELETE, K.ALTERED_TABLE, Check.OK, Check.OK),
        (K.INLINE_FLUSH, K.INLINE_FLUSH, Check.SAME_FILE, Check.SAME_FILE),
        (K.INLINE_FLUSH, K.INLINED_INSERT, Check.OK, Check.OK),
        (K.INLINE_FLUSH, K.ALTERED_TABLE, Check.OK, Check.OK),
        (K.ALTERED_TABLE, K.ALTERED_TABLE, Check.CONFLICT, Check.CONFLICT),
        (K.ALTERED_TABLE, K.INSERTED_INTO_TABLE, Check.OK, Check.READ),
        (K.DROPPED_TABLE, K.INSERTED_INTO_TABLE, Check.OK, Check.OK),
    ],
)
def test_cells(mine: ChangeKind, other: ChangeKind, blind: Check, reading: Check) -> None:
    assert check(Change(mine, 1), Change(other, 1)) is blind
    assert check(Change(mine, 1), Change(other, 1), reads=True) is reading


def created(kind: ChangeKind, schema: str, name: str) -> Change:
    return Change(kind, schema=schema, name=name)


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        (Change(K.CREATED_SCHEMA, schema="new"), Change(K.CREATED_SCHEMA, schema="NEW")),
        (created(K.CREATED_TABLE, "main", "t"), created(K.CREATED_TABLE, "MAIN", "T")),
        (created(K.CREATED_TABLE, "main", "t"), created(K.CREATED_VIEW, "main", "t")),
        (created(K.CREATED_SCALAR_MACRO, "main", "f"), created(K.CREATED_SCALAR_MACRO, "main", "f")),
        (created(K.CREATED_TABLE, "S", "t"), Change(K.DROPPED_SCHEMA, 5)),
        (created(K.CREATED_TABLE_MACRO, "s", "f"), Change(K.DROPPED_SCHEMA, 5)),
        (Change(K.DROPPED_SCHEMA, 5), created(K.CREATED_VIEW, "s", "v")),
        (Change(K.DROPPED_SCHEMA, 5), created(K.CREATED_SCALAR_MACRO, "s", "f")),
        (Change(K.DROPPED_SCHEMA, 5), Change(K.DROPPED_SCHEMA, 5)),
        (Change(K.DROPPED_VIEW, 5), Change(K.DROPPED_VIEW, 5)),
        (Change(K.DROPPED_TABLE_MACRO, 5), Change(K.DROPPED_TABLE_MACRO, 5)),
        (Change(K.ALTERED_VIEW, 5), Change(K.ALTERED_VIEW, 5)),
        (Change(K.ALTERED_VIEW, 5), Change(K.DROPPED_VIEW, 5)),
    ],
)
def test_objects_that_exclude_each_other(mine: Change, other: Change) -> None:
    assert check(mine, other) is Check.CONFLICT
    sentence = explain(mine, other)
    assert sentence.startswith("cannot ")
    assert "another transaction has" in sentence


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        (created(K.CREATED_TABLE, "main", "t"), created(K.CREATED_TABLE, "s", "t")),
        (created(K.CREATED_TABLE, "main", "é"), created(K.CREATED_TABLE, "main", "É")),
        (created(K.CREATED_TABLE, "main", "t"), created(K.CREATED_TABLE_MACRO, "main", "t")),
        (created(K.CREATED_SCALAR_MACRO, "main", "t"), created(K.CREATED_TABLE_MACRO, "main", "t")),
        (created(K.CREATED_TABLE, "main", "t"), Change(K.DROPPED_SCHEMA, 5)),
        (created(K.CREATED_TABLE, "new", "t"), Change(K.DROPPED_SCHEMA, 5)),
        (Change(K.DROPPED_SCHEMA, 5), created(K.CREATED_TABLE, "new", "t")),
        (Change(K.DROPPED_VIEW, 5), Change(K.DROPPED_TABLE, 5)),
        (Change(K.DROPPED_VIEW, 5), Change(K.ALTERED_VIEW, 5)),
        (Change(K.CREATED_SCHEMA, schema="a"), Change(K.CREATED_SCHEMA, schema="b")),
    ],
)
def test_objects_that_do_not_meet(mine: Change, other: Change) -> None:
    assert check(mine, other) is Check.OK


@pytest.mark.parametrize(("mine", "other"), PAIRS)
def test_every_pair_has_a_sentence(mine: ChangeKind, other: ChangeKind) -> None:
    assert "table 7: another transaction has" in explain(Change(mine, 7), Change(other, 7))


def test_a_sentence() -> None:
    assert (
        explain(Change(K.DELETED_FROM_TABLE, 3), Change(K.MERGE_ADJACENT, 3))
        == "cannot delete from table 3: another transaction has compacted it"
    )
