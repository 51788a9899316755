"""The documentation is complete: settings, commands, links and promises."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from quacklake.cli.app import command_line
from quacklake.cli.commands import COMMANDS
from quacklake.cli.pond import COMMANDS as POND_COMMANDS
from quacklake.cli.pond import POND
from quacklake.cli.programs import QUACKLAKE, Program
from quacklake.config import SETTINGS
from tests.cli.names import command_names
from tests.docs.blocks import PAGES, REPOSITORY, page_id
from tests.docs.connector_features import NAMES, ROLES, UNTESTED
from tests.docs.tables import TABLES, in_page

CLI = REPOSITORY / "docs/reference/cli.md"
POND_CLI = REPOSITORY / "docs/reference/pond.md"
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def _parameters(name: str, program: Program = QUACKLAKE) -> Iterator[str]:
    """The options and arguments of a command, as its documentation spells them."""
    command = command_line(program)
    context = typer.Context(command, info_name=program.name)
    for word in name.split():
        _, command, _ = command.resolve_command(context, [word])
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            yield str(parameter.metavar)
        else:
            yield from parameter.opts


@pytest.mark.parametrize("name", TABLES)
def test_a_table_made_from_the_code_is_up_to_date(name: str) -> None:
    assert in_page(name) == TABLES[name][1](), "run python -m tests.docs.tables"


def test_every_setting_is_documented() -> None:
    page = in_page("settings")
    assert [setting.name for setting in SETTINGS if f"| `{setting.name}` |" not in page] == []


@pytest.mark.parametrize("name", list(command_names()))
def test_every_command_is_documented_with_its_options(name: str) -> None:
    page = CLI.read_text(encoding="utf-8")
    head = f"## quacklake {name.split()[0]}\n"
    assert head in page
    section = page.partition(head)[2].partition("\n## ")[0]
    general = page.partition("## Options of every command\n")[2].partition("\n## ")[0]
    assert len(name.split()) == 1 or f"`quacklake {name}" in section
    missing = [text for text in _parameters(name) if f"`{text}" not in section and f"`{text}" not in general]
    assert missing == []


def test_the_command_page_has_no_command_that_is_gone() -> None:
    documented = re.findall(r"^## quacklake ([\w-]+)$", CLI.read_text(encoding="utf-8"), re.MULTILINE)
    assert documented == [entry.name for entry in COMMANDS]


@pytest.mark.parametrize("name", list(command_names(POND_COMMANDS)))
def test_every_command_of_the_pond_is_documented_with_its_options(name: str) -> None:
    page = POND_CLI.read_text(encoding="utf-8")
    section = page.partition(f"## pond {name.split()[0]}\n")[2].partition("\n## ")[0]
    assert section
    assert len(name.split()) == 1 or f"`pond {name}" in section
    general = page.partition("## Options of every command\n")[2].partition("\n## ")[0]
    texts = list(_parameters(name, POND))
    missing = [
        text for text in texts if f"`{text}" not in section and f"`{text}" not in general and text not in section
    ]
    assert missing == []


@pytest.mark.parametrize("program", [QUACKLAKE, POND], ids=lambda program: program.name)
def test_the_page_of_the_demos_has_their_options(program: Program) -> None:
    page = (REPOSITORY / "docs/guides/demo.md").read_text(encoding="utf-8")
    section = page.partition(f"## {program.name} demo\n")[2].partition("\n## ")[0]
    general = CLI.read_text(encoding="utf-8") + POND_CLI.read_text(encoding="utf-8")
    texts = list(_parameters("demo", program))
    assert len(texts) > 1
    assert [text for text in texts if f"`{text}" not in section and f"`{text}" not in general] == []


def test_the_page_of_the_pond_has_no_command_that_is_gone() -> None:
    documented = re.findall(r"^## pond ([\w-]+)$", POND_CLI.read_text(encoding="utf-8"), re.MULTILINE)
    assert documented == [entry.name for entry in POND_COMMANDS]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target.partition("#")[0] for target in _LINK.findall(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if target and "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_variable_of_ducklake_and_minio_is_in_the_table_of_the_page() -> None:
    page, _ = TABLES["settings"]
    part = page.read_text(encoding="utf-8").partition("## Set up by variables alone")[2].partition("\n## ")[0]
    told = {name.strip() for line in part.splitlines() for name in _variables(line)}
    read = {name for setting in SETTINGS for name in setting.env if name.startswith(("DUCKLAKE_", "MINIO_"))}
    assert told == read


def _variables(line: str) -> list[str]:
    """The variables in the first cell; one that begins with ``_`` has the beginning of the one before it."""
    found: list[str] = []
    for name in re.findall(r"`(\w+)`", line.split("|")[1]) if line.startswith("| `") else []:
        found.append(f"{_PREFIX.match(found[0])[0]}{name}" if name.startswith("_") else name)  # type: ignore[index]
    return found


_PREFIX = re.compile(r"DUCKLAKE_(?:POSTGRES|S3)")


_ANSWER = re.compile(r"(yes|partly: \S.*|no: \S.*|not tested: \S.*)")


def _test_names(path: str) -> set[str]:
    """Return the names of the test functions of a file, without running it."""
    tree = ast.parse((REPOSITORY / "tests" / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


# L39, L48
@pytest.mark.parametrize("connector", NAMES)
def test_every_feature_of_a_connector_names_a_test_that_is_there(connector: str) -> None:
    rows = [[cell.strip() for cell in line.split(" | ")] for line in in_page(f"{connector}-features").splitlines()[2:]]
    answers, wrong = Counter((role.strip("| "), answer.partition(":")[0]) for role, _, answer, _ in rows), []
    for role, feature, answer, test in rows:
        path, _, name = test.rstrip("| ").strip("`").partition("::")
        known = not path if answer.startswith(UNTESTED) else bool(path) and name in _test_names(path)
        if not known or _ANSWER.fullmatch(answer) is None:
            wrong.append((role, feature, answer, test))
    assert wrong == []
    for role in ROLES:
        column = list(NAMES).index(connector) + 1
        matrix = [line.strip("| ").split(" | ")[column] for line in in_page(f"{role}-features").splitlines()[2:]]
        assert Counter(matrix) == {answer: count for (of, answer), count in answers.items() if of == role}


def test_every_promise_names_a_test_that_is_there() -> None:
    page = (REPOSITORY / "docs" / "reference" / "promises.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)` \|$", page, re.MULTILINE)
    rows = [line for line in page.splitlines() if line.startswith("| ") and "| promise |" not in line]
    assert len(named) == len(rows)
    sources = {path: (REPOSITORY / "tests" / path).read_text(encoding="utf-8") for path, _ in named}
    assert [test for path, test in named if f"def {test}(" not in sources[path]] == []


_INSIDE = [
    REPOSITORY / "docs/architecture.md",
    REPOSITORY / "docs/design.md",
    *(REPOSITORY / "docs/internals").glob("*.md"),
]
_MODULE = re.compile(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`")


@pytest.mark.parametrize("page", _INSIDE, ids=page_id)
def test_a_page_about_the_inside_names_modules_that_exist(page: Path) -> None:
    paths = [
        f"/{path.relative_to(REPOSITORY)}"
        for folder in ("src", "tests", "services", "apps")
        for path in (REPOSITORY / folder).rglob("*.py")
    ]
    named = _MODULE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in paths)] == []


def test_the_pages_to_begin_with_are_short() -> None:
    assert len((REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8").split()) <= 900
    assert len((REPOSITORY / "docs/design.md").read_text(encoding="utf-8").split()) <= 5_000
