"""Rules that hold for the project as a whole."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import quacklake

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "quacklake"
CORE = SOURCE / "core"
APPS = sorted(REPOSITORY.glob("apps/*/src/*/__init__.py"))
README = REPOSITORY / "README.md"

# Package registries: where packages come from is the installer's setting, not the project's.
REGISTRIES = (
    "pypi." + "org",
    "files.python" + "hosted.org",
    "registry.npm" + "js.org",
    "registry.yarn" + "pkg.com",
    "repo1." + "maven.org",
    "repo.maven." + "apache.org",
    "proxy." + "golang.org",
    "deb." + "debian.org",
)

# Where the tests of a package are, if not in the folder or file of its name.
TESTED_IN: dict[str, tuple[str, ...]] = {
    "operations": ("lake", "conformance"),
    "sqlalchemy": ("dbapi",),
    "tenancy": ("tenants",),
}


def public_modules() -> list[str]:
    packages = [quacklake, *(importlib.import_module(path.parent.name) for path in APPS)]
    found = [(each.__name__, pkgutil.walk_packages(each.__path__, f"{each.__name__}.")) for each in packages]
    names = [name for package, modules in found for name in (package, *(module.name for module in modules))]
    return [name for name in names if not any(part.startswith("_") for part in name.split("."))]


@pytest.fixture(params=public_modules())
def module(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def sort_key(name: str) -> tuple[int, list[tuple[int, str]]]:
    """The order that ruff's RUF022 keeps: constants, classes, functions; numbers by value."""
    group = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    parts = re.findall(r"(\d+)|(\D+)", name)
    return group, [(int(digits) if digits else -1, text) for digits, text in parts]


def test_every_package_lists_what_it_offers_in_order(module: ModuleType) -> None:
    names = getattr(module, "__all__", ())
    assert list(names) == sorted(names, key=sort_key)
    assert [name for name in names if not hasattr(module, name)] == []


def test_examples_in_docstrings_are_true(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


_MAX_EXTENSION_NAMES = 119
"""The most public names that the extension API may have."""


def test_the_extension_api_is_small_and_each_name_has_an_example() -> None:
    import quacklake.extend as api

    modules = [getattr(api, name) for name in api.__all__] + [importlib.import_module("quacklake.extend.example")]
    names = [(module, name) for module in modules for name in module.__all__]
    assert len(names) <= _MAX_EXTENSION_NAMES
    parts = {name: getattr(module, name) for module, name in names if callable(getattr(module, name))}
    ours = {name: part for name, part in parts.items() if (part.__module__ or "").startswith("quacklake.")}
    assert len(ours) > 20
    assert [name for name, part in ours.items() if ">>>" not in (part.__doc__ or "")] == []


def test_the_guide_to_extending_names_every_module() -> None:
    import quacklake.extend as api

    guide = (REPOSITORY / "docs" / "extending.md").read_text()
    assert len(api.__all__) > 10
    assert [name for name in api.__all__ if f"`extend.{name}`" not in guide] == []


def find_provided() -> dict[str, tuple[str, str]]:
    """Return the functions that lower layers declare, each with the module that declares it and the one that has it."""
    homes = dict(re.findall(r'^provide\("(\w+)", "([\w.]+)"\)$', (SOURCE / "__init__.py").read_text(), re.MULTILINE))
    found = {}
    for path in SOURCE.rglob("*.py"):
        for name in re.findall(r"^@provided\ndef (\w+)\(", path.read_text(), re.MULTILINE):
            module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
            found[name] = (module, homes.pop(name, ""))
    assert homes == {}, "provided, and declared nowhere"
    return found


@pytest.mark.parametrize(("name", "modules"), find_provided().items())
def test_a_function_of_a_package_above_takes_what_is_declared(name: str, modules: tuple[str, str]) -> None:
    assert modules[1], "declared, and provided by nobody"
    declared, made = (
        inspect.signature(inspect.unwrap(getattr(importlib.import_module(each), name))).parameters for each in modules
    )
    for place, (parameter, known) in enumerate(declared.items()):
        if known.kind is not inspect.Parameter.VAR_KEYWORD:
            assert made[parameter].kind is known.kind
            assert known.kind is inspect.Parameter.KEYWORD_ONLY or list(made)[place] == parameter


def test_the_readme_lists_every_make_target() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    readme = README.read_text()
    assert len(targets) >= 8
    assert [target for target in targets if f"make {target}" not in readme] == []


def test_the_readme_lists_every_command() -> None:
    commands = [entry.name for entry in pytest.importorskip("quacklake.cli.commands").COMMANDS]
    readme = README.read_text()
    assert commands
    assert [command for command in commands if f"quacklake {command}" not in readme] == []


def test_no_file_names_a_package_registry() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [REPOSITORY / name for name in listed.stdout.split("\0") if name]
    found = [
        f"{path.relative_to(REPOSITORY)}: {host}"
        for path in paths
        if path.is_file()
        for host in REGISTRIES
        if host.encode() in path.read_bytes()
    ]
    assert found == []


def _floors() -> dict[str, int]:
    """Each package or module at the top of the project, and its floor from above, as import-linter holds them."""
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "layers")
    return {name: floor for floor, layer in enumerate(layers) for name in re.findall(r"\w+", layer)}


def _named_modules(path: Path) -> list[str]:
    """The modules of the project that a file names as texts: those that it may import while it runs."""
    tree = ast.parse(path.read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in texts if re.fullmatch(r"quacklake(\.\w+)+\.?", text)]


def find_imports() -> dict[tuple[str, str], str]:
    """Return every name that any file of the repository imports from the package, also late, with one such file."""
    folders = ("src", "apps", "integrations", "tests", "benchmarks", "services", "scripts", "examples")
    paths = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]
    found = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "quacklake":
                found |= {(str(node.module), alias.name): str(path.relative_to(REPOSITORY)) for alias in node.names}
    return found


def test_every_import_names_what_is_there() -> None:
    imports = find_imports()
    assert len(imports) > 1000
    assert [
        f"{path}: {name} of {module}" for (module, name), path in imports.items() if not _is_there(module, name)
    ] == []


def _is_there(module: str, name: str) -> bool:
    return hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}") is not None


def test_no_import_at_run_time_goes_around_the_floors() -> None:
    floors = _floors()
    found = []
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own == "__init__":
            continue  # the face of the whole project
        above = [name for name in _named_modules(path) if floors.get(name.split(".")[1], 99) < floors[own]]
        found += [f"{path.relative_to(SOURCE)}: {name}" for name in above]
    assert found == []
    assert "quacklake.lake.lake" in _named_modules(SOURCE / "lake" / "__init__.py"), "nothing was looked at"


def test_quacklake_names_no_app() -> None:
    names = "|".join(path.parent.name for path in APPS)
    assert names == "quacklake_demo|quacklake_ekko|quacklake_sensors"
    found = [str(path.relative_to(REPOSITORY)) for path in SOURCE.rglob("*.py") if re.search(names, path.read_text())]
    assert found == []


def test_no_docstring_opens_like_a_question() -> None:
    question = re.compile(r'^ *"""(?:How|What|When|Where|Whether|Which|Who|Whose|Why)\b.*', re.MULTILINE)
    assert question.search('    """' + "Which files there are."), "the pattern finds nothing"
    folders = ("src", "apps", "tests", "benchmarks", "services", "scripts", "examples")
    paths = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]
    found = {str(path.relative_to(REPOSITORY)): question.findall(path.read_text(encoding="utf-8")) for path in paths}
    assert len(found) > 500
    assert {path: lines for path, lines in found.items() if lines} == {}, "say what it is or does: 'Return the files …'"


def test_every_rule_of_the_format_has_a_test_that_bears_its_id() -> None:
    rules = re.findall(r"^\| F(\d+)\.(\d+) \|", (REPOSITORY / "docs" / "format.md").read_text(), re.MULTILINE)
    assert len(rules) == len(set(rules)) >= 57
    tests = set()
    for path in (REPOSITORY / "tests").rglob("test_*.py"):
        tests |= set(re.findall(r"^def test_f(\d+)_(\d+)_", path.read_text(), re.MULTILINE))
    assert set(rules) - tests == set(), "rules without a test"
    assert tests - set(rules) == set(), "tests of unknown rules"


def test_every_package_has_its_tests() -> None:
    packages = {path.parent.name for path in (*SOURCE.glob("*/__init__.py"), *CORE.glob("*/__init__.py"))} - {"core"}
    assert set(TESTED_IN) <= packages, "packages that are gone"
    places = {name: TESTED_IN.get(name, (name,)) for name in sorted(packages)}
    missing = [f"{name}: tests/{place}" for name, found in places.items() for place in found if not _has_tests(place)]
    assert missing == []


def test_the_map_for_agents_names_every_folder_and_package() -> None:
    text = (REPOSITORY / "AGENTS.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`([\w/]+)`", " ".join(rows)))
    paths = (*SOURCE.glob("[a-z]*"), *CORE.glob("[a-z]*"))
    packages = {path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert packages - named == set(), "packages without a line"
    gone = {name for name in named - packages if not (REPOSITORY / name).is_dir()}
    assert gone == set(), "lines of what is gone"


def _has_tests(place: str) -> bool:
    tests = REPOSITORY / "tests"
    return any((tests / place).rglob("test_*.py")) or (tests / f"test_{place}.py").exists()


def test_every_benchmark_has_its_place_in_the_published_figures() -> None:
    from benchmarks.__main__ import NAMES
    from benchmarks.report import README as FIGURES
    from benchmarks.report import place

    text = FIGURES.read_text()
    assert [name for name in NAMES if not all(mark in text for mark in place(name))] == []
