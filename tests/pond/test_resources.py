"""Resources in YAML: created, changed, unchanged; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from quacklake.errors import ConfigError, InputError
from quacklake.pond import Pond
from quacklake.pond.resources import apply, load
from tests.pond.conftest import csv

DOCUMENTS = """
apiVersion: pond/v1
kind: Directory
name: sensors
---
apiVersion: pond/v1
kind: Series
name: dock
desc: The thermometer at the dock
spec:
  path: /sensors/dock.series
  files: [in/*.csv]
---
kind: Table
name: sites
spec: {path: /sensors/sites, files: sites.csv}
---
kind: Factory
name: daily
spec:
  path: /derived/daily
  factory: sql-derived-series
  config:
    patterns: {source: /sensors/*.series}
    query: SELECT date_trunc('day', timestamp) AS day, avg(temp) AS temp FROM source GROUP BY 1
---
kind: Link
name: latest
spec: {path: /latest, target: sensors/dock.series}
"""


def results(pond: Pond, path: str = "pond.yaml") -> list[str]:
    return pond.run(["apply"], lambda fs: [each.result for each in apply(fs, load([Path(path)]))])


def test_resources_are_created_then_unchanged_then_changed() -> None:
    """One folder of YAML drives the pond."""
    Path("in").mkdir()
    Path("in/1.csv").write_text(csv(3))
    Path("sites.csv").write_text("site,depth\ndock,3\n")
    Path("pond.yaml").write_text(DOCUMENTS)
    with Pond.memory() as pond:
        assert results(pond) == ["created"] * 5
        snapshot = pond.lake.current_snapshot()
        assert results(pond) == ["unchanged"] * 5
        assert pond.lake.current_snapshot() == snapshot
        Path("in/2.csv").write_text(csv(3, 3))
        Path("sites.csv").write_text("site,depth\ndock,4\n")
        Path("pond.yaml").write_text(DOCUMENTS.replace("avg(temp)", "max(temp)").replace("dock.series}", "sites}"))
        assert results(pond) == ["unchanged", "changed", "changed", "changed", "changed"]
        fs = pond.fs()
        assert (fs.get("/sensors/dock.series").node.version, fs.get("/latest").path) == (2, "/sensors/sites")
        assert fs.get("/sensors/dock.series").rows == 6


def test_a_folder_of_files_is_applied_in_the_order_of_names() -> None:
    Path("y").mkdir()
    Path("y/2.yaml").write_text("kind: Directory\nname: b\nspec: {path: /a/b}\n")
    Path("y/1.yml").write_text("kind: Directory\nname: a\n")
    Path("y/readme.txt").write_text("no YAML: {")
    assert [each.name for each in load([Path("y")])] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("kind: Seris\nname: x\n", "no kind 'Seris'", "Series"),
        ("kind: Series\nname: x\nspecs: {}\n", "no option 'specs'", "spec"),
        ("kind: Series\n", "has no name", ""),
        ("apiVersion: pond/v9\nkind: Series\nname: x\n", "apiVersion 'pond/v9'", "pond/v1"),
        ("- 1\n", "takes a mapping", ""),
        ("kind: [\n", "is not valid YAML", ""),
        ("kind: Directory\nname: x\n---\nkind: Directory\nname: x\n", "two resources", ""),
    ],
)
def test_a_document_that_is_wrong_is_refused_with_a_suggestion(text: str, words: str, hint: str) -> None:
    Path("x.yaml").write_text(text)
    with pytest.raises(ConfigError, match=words) as error:
        load([Path("x.yaml")])
    assert hint in str(error.value.hint or "")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("kind: Series\nname: x\nspec: {file: a.csv}\n", "no option 'file'"),
        ("kind: Series\nname: x\nspec: {files: [none.csv]}\n", "there is no file none.csv"),
        ("kind: Table\nname: x\nspec: {files: [a.csv, b.csv]}\n", "takes one file"),
        ("kind: Link\nname: x\nspec: {path: /l}\n", "has no target"),
        ("kind: Factory\nname: x\nspec: {factory: dynamic-dir, config: {entries: [], secret: abc}}\n", "is a secret"),
    ],
)
def test_a_wrong_resource_changes_nothing_not_even_those_before_it(spec: str, words: str) -> None:
    Path("a.csv").write_text(csv(1))
    Path("b.csv").write_text(csv(1))
    Path("x.yaml").write_text(f"kind: Directory\nname: before\n---\n{spec}")
    with Pond.memory() as pond:
        with pytest.raises((ConfigError, InputError), match=words):
            results(pond, "x.yaml")
        assert len(pond.fs().tree) == 1


def test_a_name_from_the_environment_is_looked_up_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("in.csv").write_text(csv(2))
    Path("x.yaml").write_text("kind: Series\nname: s\nspec: {files: '${env:WHERE}'}\n")
    with Pond.memory() as pond:
        with pytest.raises(ConfigError, match="WHERE"):
            results(pond, "x.yaml")
        monkeypatch.setenv("WHERE", "in.csv")
        assert results(pond, "x.yaml") == ["created"]
