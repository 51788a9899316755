"""The reference of Ekko is complete: its endpoints, its commands and its settings."""

from __future__ import annotations

import pytest
import typer

from quacklake.cli.app import command_line
from quacklake_ekko.commands import MIGRATE_ARROW
from quacklake_ekko.plugin import SERVICE
from quacklake_ekko.settings import _VARIABLES
from tests.ekko.api import EXAMPLES, MARK, PAGE, make_section


def test_the_section_about_endpoints_is_what_the_service_answers_now() -> None:
    made = PAGE.read_text(encoding="utf-8").partition(MARK)[2]
    assert made == "\n" + make_section(), "run python -m tests.ekko.api"
    operations = {
        route.operation_id for router in SERVICE.routers for route in router.routes if route.include_in_schema
    }  # type: ignore[attr-defined]
    assert operations == {example.operation for example in EXAMPLES}


@pytest.mark.parametrize("name", [entry.name for entry in MIGRATE_ARROW.commands])
def test_every_command_is_documented_with_its_options(name: str) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## quacklake migrate-arrow\n")[2].partition("\n## ")[0]
    command = command_line()
    context = typer.Context(command, info_name="quacklake")
    common = {option for parameter in command.params for option in parameter.opts}
    for word in ("migrate-arrow", name):
        _, command, _ = command.resolve_command(context, [word])
    names = {str(each.metavar) for each in command.params if each.param_type_name == "argument"}
    options = {option for each in command.params if each.param_type_name != "argument" for option in each.opts} - common
    assert f"`quacklake migrate-arrow {name} FOLDER`" in section and names == {"FOLDER"}
    assert [option for option in options if option.startswith("--") and f"`{option}" not in section] == []


def test_every_variable_is_documented_with_its_default() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [variable for variable, _ in _VARIABLES.values() if f"| `{variable}` |" not in page] == []
