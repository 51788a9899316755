"""The notebook of the examples: it runs without a window, and a real browser shows what it made.

With ``QUACKLAKE_TEST_PICTURES=docs/guides/images`` the pictures of the guide are made.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from services.browser import Browser
from tests.docs.blocks import REPOSITORY

nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")

NOTEBOOK = REPOSITORY / "examples" / "notebook.ipynb"
PICTURES = os.environ.get("QUACKLAKE_TEST_PICTURES")
_ELSEWHERE = ("require_js_url", "jquery_url", "jupyter_widgets_base_url", "mathjax_url", "mermaid_js_url")
"""Addresses of scripts that a page would load."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook after its run, in a folder of its own."""
    book = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3", resources=resources).execute()
    return book


@pytest.fixture(scope="module")
def page(ran: Any, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """The browser with the page that nbconvert makes of the notebook, which loads nothing."""
    exporter = pytest.importorskip("nbconvert", reason="needs nbconvert").HTMLExporter()
    for name in _ELSEWHERE:
        setattr(exporter, name, "")
    text, _ = exporter.from_notebook_node(ran)
    path = tmp_path_factory.mktemp("page") / "notebook.html"
    path.write_text(text, encoding="utf-8")
    browser.size(900, 600)
    browser.open(path.as_uri())
    return browser


def outputs(book: Any) -> list[str]:
    """Return what each code cell shows, as HTML or else as text."""
    found = []
    for cell in book.cells:
        if cell.cell_type == "code":
            given = [each.get("data", {}) for each in cell.outputs]
            data = [each for each in given if each != {"text/html": "", "text/plain": ""}]  # a bar that has gone
            assert len(data) <= 1, cell.source
            assert all(each.get("text/plain") for each in data), cell.source
            found.append("".join(each.get("text/html", each.get("text/plain", "")) for each in data))
    return found


def test_the_notebook_keeps_no_outputs() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert [cell.outputs for cell in book.cells if cell.cell_type == "code"] == [[]] * 10


def test_each_cell_shows_what_it_made(ran: Any) -> None:
    _, query, costly, lake, table, merged, plan, snapshots, verified, closed = outputs(ran)
    assert "<td>cocoa</td><td>1000</td>" in query
    assert costly.count("<tr>") == 1 + 6
    assert "<td>main.orders</td><td>id, product, price, day</td>" in lake
    assert "main.orders: 3,000 rows, 1 file, snapshot 2" in table
    assert "<td>DECIMAL(9,2)</td>" in table
    assert "<td>updated</td><td>1</td>" in merged
    assert "<th>path</th>" in plan
    assert "<th>snapshot_id</th>" in snapshots
    assert "<td>findings</td><td>0</td>" in verified
    assert closed == ""


@pytest.mark.daily(0.5)
def test_the_page_of_the_notebook_is_readable(page: Browser, tmp_path: Path) -> None:
    assert page.problems() == []
    assert {address.split(":")[0] for address in page.requests()} <= {"file", "data"}
    script = "[...document.querySelectorAll('.jp-OutputArea table')].map(each => each.getBoundingClientRect().width)"
    widths = page.run(script)
    assert len(widths) == 8
    assert 0 < min(widths) <= max(widths) < 800
    folder = tmp_path if PICTURES is None else Path(PICTURES)
    for name, word, height in (("sql", "load_ext", 700), ("table", "orders = lake.table", 1100)):
        page.size(900, height)
        page.run(
            f"[...document.querySelectorAll('pre')].find(each => each.textContent.includes('{word}')).scrollIntoView()"
        )
        taken = page.screenshot()
        assert 10_000 < len(taken) < 300_000
        (folder / f"notebook-{name}.png").write_bytes(taken)
