"""Names, paths and patterns: text, without a pond."""

from __future__ import annotations

import pytest

from quacklake.errors import InputError, InvalidNameError
from quacklake.pond.paths import check_name, parts
from quacklake.pond.patterns import compile_pattern


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "a\0b", "é" * 200, "\ud800"])
def test_a_name_that_no_node_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "Größe (°C).csv", ".hidden", "a b", "-rf", '"quoted"', "é" * 127])
def test_any_other_name_is_fine(name: str) -> None:
    assert check_name(name) == name


def test_a_path_is_text_without_nul() -> None:
    with pytest.raises(InvalidNameError):
        parts("a\0")
    with pytest.raises(InvalidNameError):
        parts(b"a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "name", "captures"),
    [
        ("*.series", "dock.series", ("dock",)),
        ("*.series", "dock.csv", None),
        ("a?c", "abc", ("b",)),
        ("a?c", "ac", None),
        ("[ab]*", "bcd", ("b", "cd")),
        ("[!ab]*", "bcd", None),
        ("[a-c]x", "bx", ("b",)),
        ("*_*.csv", "AT500_Surface.csv", ("AT500", "Surface")),
        ("a.b", "axb", None),
        ("plain", "plain", ()),
        ("(a|b)+", "(a|b)+", ()),
    ],
)
def test_a_part_of_a_pattern_matches_a_name_and_captures_what_wildcards_stand_for(
    pattern: str, name: str, captures: tuple[str, ...] | None
) -> None:
    (part,) = compile_pattern(pattern)
    assert part.match(name) == captures


@pytest.mark.parametrize("pattern", ["../a", "a**", "a/**b/c"])
def test_a_pattern_that_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(InputError):
        compile_pattern(pattern)
