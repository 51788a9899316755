"""The changes_made grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.format.snapshots import Change, ChangeKind, parse_changes, render_changes
from quacklake.errors import CatalogError, InputError

_text = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('",.:\n'), max_size=12)
_ids = st.integers(0, 2**63 - 1)


@st.composite
def _changes(draw: st.DrawFn) -> Change:
    kind = draw(st.sampled_from(ChangeKind))
    if kind is ChangeKind.CREATED_SCHEMA:
        return Change(kind, schema=draw(_text))
    if kind.named:
        return Change(kind, schema=draw(_text), name=draw(_text))
    return Change(kind, id=draw(_ids))


@given(st.lists(_changes(), max_size=6))
def test_what_is_rendered_is_parsed_back(changes: list[Change]) -> None:
    text = render_changes(changes)
    assert set(parse_changes(text)) == set(changes)
    assert render_changes(parse_changes(text)) == text


@given(st.lists(_changes(), max_size=6), st.randoms())
def test_the_text_does_not_depend_on_the_order(changes: list[Change], rng: object) -> None:
    assert render_changes(reversed(changes)) == render_changes(changes)


def test_there_are_twenty_kinds() -> None:
    assert len(ChangeKind) == 20


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ('created_schema:"main"', Change(ChangeKind.CREATED_SCHEMA, schema="main")),
        ('created_table:"main"."t"', Change(ChangeKind.CREATED_TABLE, schema="main", name="t")),
        ('created_view:"a""b"."c,d"', Change(ChangeKind.CREATED_VIEW, schema='a"b', name="c,d")),
        ("inserted_into_table:7", Change(ChangeKind.INSERTED_INTO_TABLE, 7)),
        ("INLINED_INSERT:7", Change(ChangeKind.INLINED_INSERT, 7)),
        ("flushed_inlined:7", Change(ChangeKind.INLINE_FLUSH, 7)),
        ("compacted_table:7", Change(ChangeKind.COMPACTED_TABLE, 7)),
    ],
)
def test_entries_are_read(text: str, change: Change) -> None:
    assert parse_changes(text) == (change,)


def test_several_entries_keep_their_order() -> None:
    text = 'inlined_delete:3,created_table:"s"."x",inserted_into_table:4'
    assert [change.kind.value for change in parse_changes(text)] == [
        "inlined_delete",
        "created_table",
        "inserted_into_table",
    ]


@pytest.mark.parametrize("text", [None, ""])
def test_no_text_means_no_changes(text: str | None) -> None:
    assert parse_changes(text) == ()


def test_an_unknown_word_is_named() -> None:
    with pytest.raises(CatalogError, match='unknown kind "inserted_into_tabel"') as caught:
        parse_changes("inserted_into_tabel:4")
    assert "inserted_into_table" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "inserted_into_table",
        "inserted_into_table:",
        "inserted_into_table:x",
        "inserted_into_table:-1",
        "inserted_into_table:١",
        "inserted_into_table:1;dropped_table:2",
        "created_table:main.t",
        'created_table:"main"',
        'created_table:"main"."t',
        'created_table:"main"."t"x',
        'created_schema:"main',
        ",",
    ],
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(CatalogError):
        parse_changes(text)


@given(st.text(max_size=30) | st.lists(st.sampled_from(["created_table:", '"', ".", ",", "a", "1", ":"])).map("".join))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        changes = parse_changes(text)
    except CatalogError:
        return
    assert set(parse_changes(render_changes(changes))) == set(changes)


@pytest.mark.parametrize(
    "change",
    [
        Change(ChangeKind.CREATED_TABLE, 3),
        Change(ChangeKind.DROPPED_TABLE, schema="main"),
        Change(ChangeKind.CREATED_SCHEMA),
    ],
)
def test_a_change_that_lacks_something_is_not_written(change: Change) -> None:
    with pytest.raises(InputError):
        render_changes([change])
