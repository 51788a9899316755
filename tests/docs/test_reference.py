"""What the documentation must have is in it."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from quacklake.cli import build_parser
from quacklake.config import SETTINGS
from tests.docs.blocks import PAGES, REPOSITORY, page_id
from tests.docs.tables import TABLES, in_page

CLI = REPOSITORY / "docs/reference/cli.md"
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def _parsers() -> dict[str, argparse.ArgumentParser]:
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise AssertionError("there are no commands")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_made_from_the_code_is_up_to_date(name: str) -> None:
    assert in_page(name) == TABLES[name][1](), "run python -m tests.docs.tables"


def test_every_setting_is_documented() -> None:
    page = in_page("settings")
    assert [setting.name for setting in SETTINGS if f"| `{setting.name}` |" not in page] == []


@pytest.mark.parametrize("name", _parsers())
def test_every_command_is_documented_with_its_options(name: str) -> None:
    page = CLI.read_text(encoding="utf-8")
    assert f"## quacklake {name}\n" in page
    section = page.partition(f"## quacklake {name}\n")[2].partition("\n## ")[0]
    general = page.partition("## Options of every command\n")[2].partition("\n## ")[0]
    for action in _parsers()[name]._actions:
        for option in action.option_strings or [str(action.metavar)]:
            assert f"`{option}" in section or f"`{option}" in general or option in ("-h", "--help"), option


def test_the_command_page_has_no_command_that_is_gone() -> None:
    documented = re.findall(r"^## quacklake ([\w-]+)$", CLI.read_text(encoding="utf-8"), re.MULTILINE)
    assert documented == list(_parsers())


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target.partition("#")[0] for target in _LINK.findall(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if target and "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []
