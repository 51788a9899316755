"""The wheel and the source distribution: what they contain, and that the wheel works on its own."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "src" / "quacklake"
APPS = sorted(path.parent for path in (REPOSITORY / "apps").glob("*/pyproject.toml"))


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", directory], cwd=REPOSITORY, check=True)
    return directory


def test_the_wheel_contains_every_file_of_the_package(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    wanted = {
        f"quacklake/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "quacklake/py.typed" in wanted
    assert "quacklake/core/engines/duckdb/nothing.parquet" in wanted
    with zipfile.ZipFile(wheel) as archive:
        assert wanted - set(archive.namelist()) == set()


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_the_wheel_of_an_app_contains_every_file_of_its_package_and_no_other(app: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(command, cwd=app, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    files = {path for path in (app / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {path.relative_to(app / "src").as_posix() for path in files}
    assert f"quacklake_{app.name}/py.typed" in names


def test_the_package_imports_no_app(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = [f"quacklake_{app.name}" for app in APPS]
    with zipfile.ZipFile(wheel) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")}
    assert names and [name for name, text in texts.items() if any(app in text for app in names)] == []


def test_the_source_distribution_has_what_builds_and_tests_it(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ("Makefile", "pyproject.toml", "constraints.txt", "scripts/setup.sh", "src/quacklake/py.typed")
    wanted += tuple(f"{app.relative_to(REPOSITORY)}/pyproject.toml" for app in APPS)
    assert [name for name in (*wanted, "tests/conftest.py", "README.md", "LICENSE") if name not in names] == []


def test_the_metadata_leaves_no_system_out(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    bound = [each for each in needed if "platform" in str(each.marker or "") and "dev" not in str(each.marker)]
    assert {each.name for each in bound} <= {"uvloop"}  # a faster loop, where there is one
    systems = [line for line in metadata.get_all("Classifier", []) if line.startswith("Operating System")]
    assert systems in ([], ["Operating System :: OS Independent"])


def test_the_wheel_installs_and_works_without_a_network(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    place = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", place, wheel]
    subprocess.run(pip, check=True)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import quacklake; assert quacklake.__file__.startswith(sys.argv[1]);"
        "lake = quacklake.connect('sqlite:///lake.db', data_path='data/');"
        "table = lake.create_table('t', {'id': range(200_000)}); print(lake.sql('SELECT sum(id) FROM t').fetchall())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, place], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[(19999900000,)]"), done.stderr


def test_every_dependency_has_an_exact_version_for_development() -> None:
    projects = [tomllib.loads((each / "pyproject.toml").read_text())["project"] for each in (REPOSITORY, *APPS)]
    groups = [
        group for each in projects for group in (each["dependencies"], *each.get("optional-dependencies", {}).values())
    ]
    needed = {Requirement(text).name.lower().replace("-", "_") for group in groups for text in group}
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower().replace("-", "_") for line in lines if "==" in line}
    own = {each["name"].replace("-", "_") for each in projects}
    assert needed - pinned - own == set()


def test_libraries_are_loaded_when_something_needs_them() -> None:
    code = (
        "import sys, quacklake; told = {'duckdb', 'mmh3', 'pyarrow', 'pyroaring', 'sqlalchemy', 'sqlglot', 'tomlkit'};"
        "print(*sorted(told & set(sys.modules)));"
        "quacklake.connect('sqlite:///:memory:', data_path=sys.argv[1]).close();"
        "print(*sorted({'pyroaring', 'sqlglot', 'tomlkit'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code, "data"], capture_output=True, text=True, check=True)
    assert found.stdout == "\n\n"
