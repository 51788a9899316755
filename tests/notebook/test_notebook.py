"""The magic of notebooks, in a shell of IPython and in a notebook that runs without a window."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import quacklake
from quacklake import notebook, telemetry
from quacklake.core import progress
from quacklake.core.maintenance.reports import CompactionReport
from quacklake.errors import InputError, QuacklakeError
from quacklake.notebook import ProgressBar, bar_html, bound, report_html
from tests.docs.blocks import REPOSITORY, blocks

nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
InteractiveShell: Any = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as made:
        made.create_table("t", [{"id": 1, "name": "a"}, {"id": 2, "name": "it's"}])
        yield made


@pytest.fixture(scope="module")
def only_shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    home = pytest.MonkeyPatch()
    home.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
    hook = sys.excepthook
    made = InteractiveShell(user_ns={})
    made.history_manager.enabled = False
    made.extension_manager.load_extension("quacklake")
    yield made
    made.history_manager.end_session()
    sys.excepthook = hook
    home.undo()


@pytest.fixture
def shell(only_shell: InteractiveShell, lake: quacklake.Lake) -> Iterator[InteractiveShell]:
    only_shell.user_ns["lake"] = lake
    known = set(only_shell.user_ns)
    yield only_shell
    for name in {*only_shell.user_ns} - known | {"lake"}:
        del only_shell.user_ns[name]


def test_a_line_returns_a_result_to_go_on_with(shell: InteractiveShell) -> None:
    result = shell.run_line_magic("sql", "SELECT id, name FROM t ORDER BY id")
    assert isinstance(result, quacklake.Result)
    assert result.to_polars()["id"].to_list() == [1, 2]
    assert result.df()["name"].tolist() == ["a", "it's"]
    assert result.fetchall() == [(1, "a"), (2, "it's")]


def test_a_cell_runs_statements_in_turn_and_names_the_last_result(shell: InteractiveShell) -> None:
    shell.user_ns["low"] = 2
    text = "CREATE TABLE u AS SELECT * FROM t WHERE id >= {low};\nINSERT INTO u VALUES ({low}, 'x;y');\nFROM u ORDER BY name"
    assert shell.run_cell_magic("sql", "top <<", text) is None
    for _ in range(2):
        assert shell.run_line_magic("sql", "SELECT count(*) FROM top").fetchall() == [(2,)]
    assert shell.user_ns["top"].fetchall() == [(2, "it's"), (2, "x;y")]
    with pytest.raises(InputError, match="no statement"):
        shell.run_cell_magic("sql", "", "-- nothing\n")


@pytest.mark.parametrize(
    "value", ["x'; DROP TABLE t; --", "it's", "{value}", "$value", "", "SELECT 1", None, 7, 1.5, True]
)
def test_variables_are_values_and_never_text(value: Any, shell: InteractiveShell, lake: quacklake.Lake) -> None:
    shell.user_ns["value"] = value
    assert shell.run_line_magic("sql", "SELECT {value} AS v, '{value}' AS s").fetchall() == [(value, "{value}")]
    assert shell.run_cell_magic("sql", "", 'SELECT {value} AS "{value}" /* {value} */').columns == ["{value}"]
    assert lake.table("t").count() == 2


def test_a_cell_as_it_is_typed_is_not_expanded(shell: InteractiveShell) -> None:
    shell.user_ns["name"] = "a' OR 'x' = 'x"
    done = shell.run_cell("found = %sql SELECT count(*) FROM t WHERE name = {name}")
    assert done.success
    assert shell.user_ns["found"].fetchall() == [(0,)]


def test_values_of_other_kinds_go_along(shell: InteractiveShell) -> None:
    shell.user_ns |= {"ids": [1, 5], "frame": pl.DataFrame({"id": [2], "more": ["m"]})}
    assert shell.run_line_magic("sql", "SELECT id FROM t WHERE list_contains({ids}, id)").fetchall() == [(1,)]
    query = "SELECT name, more FROM t JOIN frame USING (id)"
    assert shell.run_line_magic("sql", query).fetchall() == [("it's", "m")]
    with pytest.raises(InputError, match='"frame" is a frame') as caught:
        shell.run_line_magic("sql", "FROM {frame}")
    assert caught.value.hint == "name it as a table: FROM frame"
    with pytest.raises(InputError, match='no variable "idss"') as caught:
        shell.run_line_magic("sql", "SELECT {idss}")
    assert "ids" in str(caught.value.hint)
    assert shell.run_line_magic("sql", "SELECT {'a': 1}.a").fetchall() == [(1,)]


def test_the_lake_is_the_one_that_is_named(shell: InteractiveShell, lake: quacklake.Lake, tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/other.db", data_path=tmp_path / "other") as other:
        shell.user_ns |= {"other": other, "past": lake.at(version=0)}
        assert shell.run_line_magic("sql", "--lake other SELECT 1").fetchall() == [(1,)]
        with pytest.raises(QuacklakeError, match="t"):
            shell.run_line_magic("sql", "--lake other SELECT * FROM t")
        with pytest.raises(InputError, match='"nope" is not an open lake'):
            shell.run_line_magic("sql", "--lake nope SELECT 1")
        first = shell.user_ns.pop("lake")
        try:
            with pytest.raises(InputError, match="several variables are lakes"):
                shell.run_line_magic("sql", "SELECT 1")
            del shell.user_ns["past"]
            assert shell.run_line_magic("sql", "SELECT 2").fetchall() == [(2,)]
            del shell.user_ns["other"]
            with pytest.raises(InputError, match="no variable is an open lake"):
                shell.run_line_magic("sql", "SELECT 1")
        finally:
            shell.user_ns["lake"] = first


def test_a_user_sees_no_more_in_a_notebook(shell: InteractiveShell, lake: quacklake.Lake) -> None:
    lake.create_table("secret", [{"id": 12345}])
    lake.sql("CREATE USER ann; GRANT SELECT ON t TO ann")
    shell.user_ns["lake"] = ann = lake.as_principal("ann")
    assert shell.run_line_magic("sql", "SELECT count(*) FROM t").fetchall() == [(2,)]
    with pytest.raises(QuacklakeError) as caught:
        shell.run_line_magic("sql", "FROM secret")
    assert "12345" not in str(caught.value)
    assert "secret" not in ann._repr_html_()
    assert "file" not in ann.table("t")._repr_html_()
    assert "name" in ann.table("t")._repr_html_()


def test_objects_show_themselves_without_a_scan(shell: InteractiveShell, lake: quacklake.Lake, tmp_path: Path) -> None:
    table = lake.create_table("big", pa.table({"id": range(100), "<b>": ["x"] * 100}))
    for path in (tmp_path / "data").rglob("*.parquet"):
        path.unlink()  # nothing is left to scan
    format_ = shell.display_formatter.format
    assert "main.big: 100 rows, 1 file, snapshot" in format_(table)[0]["text/html"]
    assert "&lt;b&gt;" in format_(table)[0]["text/html"]
    assert "<td>main.big</td>" in format_(lake)[0]["text/html"]
    assert "1 files" in format_(table.plan())[0]["text/html"]
    assert "commit_message" in format_(lake.snapshots())[0]["text/html"]
    merged = quacklake.MergeResult(updated=1, inserted=2, deleted=0)
    assert "<td>updated</td><td>1</td>" in format_(merged)[0]["text/html"] == report_html(merged)
    with pytest.raises(QuacklakeError):
        table.to_arrow()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT {x}+{x}", ("SELECT $x+$x", {"x": 1})),
        ("SELECT '{x}', \"{x}\", $${x}$$, {'x': 1} -- {x}", ("SELECT '{x}', \"{x}\", $${x}$$, {'x': 1} -- {x}", {})),
        ("SELECT { x }", ("SELECT { x }", {})),
        ("{x}", ("$x", {"x": 1})),
        ("", ("", {})),
    ],
)
def test_only_braces_of_the_statement_itself_are_variables(text: str, wanted: Any) -> None:
    assert bound(text, {"x": 1}) == wanted


def test_a_long_statement_gives_a_sign_of_life_and_takes_it_back(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    seen = threading.Event()

    class Shown:
        def publish(self, data: dict[str, str]) -> None:
            told.append(data["text/plain"])
            seen.set()

        def clear_output(self, wait: bool) -> None:
            told.append(f"cleared {wait}")

    class Slow:
        display_pub = Shown()

    monkeypatch.setattr(notebook, "_DELAY", 0.0)
    with notebook._sign_of_life(Slow()):
        assert seen.wait(30)
    assert (told[0], told[-1]) == ("running for 0 s", "cleared False")


def test_a_bar_shows_long_work_and_goes_with_its_cell() -> None:
    now, told = 0.0, []

    def publish(data: dict[str, str], *, transient: dict[str, str], update: bool) -> None:
        told.append((data["text/plain"], transient["display_id"], update))
        assert data["text/html"] == "" or "<b>" not in data["text/html"]

    bar = ProgressBar(publish, lambda: now)
    bar.begin()
    bar("files", 1, 10)
    bar.end()
    assert told == []  # it was short
    bar.begin()
    for now in (0.5, 1.0, 1.1, 1.3):
        bar("<b>files</b>", round(now * 10), 20)
    now = 2.0
    bar("rows", 5000, None)
    bar.end()
    bar.end()
    assert [(text, update) for text, _, update in told] == [
        ("<b>files</b>: 10 of 20", False),
        ("<b>files</b>: 13 of 20", True),
        ("rows: 5,000", True),
        ("", True),
    ]
    assert len({id_ for _, id_, _ in told}) == 1


@pytest.mark.parametrize(
    ("done", "total", "wanted"),
    [(0, 0, "<progress "), (3, 4, 'value="3" max="4"'), (5, 4, 'value="4" max="4"'), (7, None, "<progress aria")],
)
def test_a_bar_is_never_fuller_than_full(done: int, total: int | None, wanted: str) -> None:
    html = bar_html('a"<b>', done, total)
    assert wanted in html
    assert 'aria-label="a&quot;&lt;b&gt;"' in html


def test_work_tells_a_listener_unless_its_caller_listens(
    lake: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_listeners", [])
    heard: list[str] = []
    told: list[str] = []
    progress.listen(lambda what, done, total: heard.append(what))
    lake.verify(progress=lambda what, done, total: told.append(what))
    assert told and not heard
    lake.verify()
    assert heard == told


def test_reports_and_lakes_ask_the_catalog_a_few_questions(lake: quacklake.Lake, tmp_path: Path) -> None:
    def shown(thing: Any) -> int:
        before = telemetry.snapshot().counters.get("catalog.statements", 0)
        assert thing._repr_html_()
        return telemetry.snapshot().counters["catalog.statements"] - before

    few = [shown(lake), shown(lake.table("t")), shown(lake.table("t").plan())]
    for number in range(20):
        lake.create_table(f"more{number}", [{"id": 1}])
        lake.table("t").append(pa.table({"id": range(100), "name": ["x"] * 100}))
    many = [shown(lake), shown(lake.table("t")), shown(lake.table("t").plan())]
    assert [after <= before for before, after in zip(few, many, strict=True)] == [True] * 3
    assert max(few) <= 12


def test_a_report_lists_the_first_things_of_its_lists(lake: quacklake.Lake) -> None:
    report = lake.verify()
    assert "<td>findings</td><td>0</td>" in report_html(report)
    pruned = CompactionReport("<t>", *[0] * (len(dataclasses.fields(CompactionReport)) - 1))
    assert "&lt;t&gt;" in report_html(pruned)


def test_the_cells_of_the_guide_run_in_a_notebook(tmp_path: Path) -> None:
    page = REPOSITORY / "docs/guides/notebooks.md"
    cells = [block.text for block in blocks(page) if block.language == "python"]
    cells += ["%%sql rows <<\nSELECT id FROM events WHERE id >= {least}", "lake['events']"]
    cells += ["import quacklake.notebook\nquacklake.notebook._DELAY = 0", "lake.verify()", "lake.close()"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3", resources=resources).execute()
    shown = [str(cell.outputs) for cell in book.cells]
    assert "<td>1000</td>" in shown[1]
    assert "[997, 998, 999]" in shown[2]
    assert shown[3] == "[]"
    assert "main.events: 1,000 rows, 1 file" in shown[4]
    bar, report = book.cells[6].outputs
    assert (bar.output_type, bar.data) == ("display_data", {"text/html": "", "text/plain": ""})
    assert "<td>checks</td>" in report.data["text/html"]
