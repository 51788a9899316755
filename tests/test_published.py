"""Published figures are read back: what got worse is marked, and the aims show what the sections say."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.aims import AIMS
from benchmarks.common import Measure, Result, at_least, faster, slowdown
from benchmarks.published import Aim, aims_table, lines, size, worse
from benchmarks.report import README, update_readme

TEXT = "<!-- aims -->\n<!-- /aims -->\n<!-- cli -->\nold\n<!-- /cli -->\n<!-- feed -->\nkept \\1\n<!-- /feed -->\n"


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    path = tmp_path / "README.md"
    path.write_text(TEXT)
    return path


def _result(*measures: Measure) -> Result:
    return Result("cli", "how fast", "full", measures=list(measures))


def test_what_is_published_can_be_read_back_and_other_sections_stay(readme: Path) -> None:
    update_readme(_result(faster("a | b", 1.0, 12.0, "ms", at_least(20))), readme, readme.parent)
    text = readme.read_text()
    assert "kept \\1" in text
    assert "old" not in text
    assert size(text, "cli") == "full"
    (line,) = lines(text, "cli")
    assert (line.what, line.ratio_value, line.short) == ("a | b", 12.0, True)


def test_a_ratio_that_got_worse_by_a_fifth_is_told(readme: Path) -> None:
    update_readme(_result(faster("f", 1.0, 12.0, "ms"), slowdown("s", 2.0, 1.0, "ms")), readme, readme.parent)
    published = lines(readme.read_text(), "cli")
    assert worse(faster("f", 1.0, 9.0, "ms"), published) == pytest.approx(1 / 3)
    assert worse(faster("f", 1.0, 11.0, "ms"), published) is None
    assert worse(slowdown("s", 3.0, 1.0, "ms"), published) == pytest.approx(0.5)
    assert worse(slowdown("s", 1.0, 1.0, "ms"), published) is None
    assert worse(slowdown("new", 9.0, 1.0, "ms"), published) is None
    assert worse(slowdown("s", 9.0, 1.0, "ms", peer_name="another"), published) is None


def test_an_aim_shows_its_figure_and_the_reason_only_where_it_is_short(readme: Path) -> None:
    update_readme(_result(faster("f", 1.0, 2.0, "ms", at_least(5)), faster("g", 1.0, 9.0, "ms", at_least(5))), readme)
    text = readme.read_text()
    aims = (Aim("F", "cli", "f", "≥ 5×", "because"), Aim("G", "cli", "g", "≥ 5×", "because"), Aim("H", "cli", "h", "–"))
    assert aims_table(text, aims).splitlines()[2:] == [
        "| F (cli) | 2.00× as fast | ≥ 5× | ✗ because |",
        "| G (cli) | 9.00× as fast | ≥ 5× | ✓ |",
        "| H (cli) | not measured | – |  |",
    ]


def test_the_table_of_aims_is_that_of_the_published_figures() -> None:
    text = README.read_text()
    assert aims_table(text, AIMS) in text
