"""``pond plot``, ``export`` and ``serve``: pictures, Parquet by time, and sites."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from pathlib import Path

import duckdb
import pytest

from quacklake.errors import ConfigError, InputError
from quacklake.pond import Pond
from quacklake.pond.downsampling import Line
from quacklake.pond.plots.axes import time_ticks
from quacklake.pond.plots.braille import draw
from quacklake.pond.plots.pictures import Panel, in_few_letters, png, svg
from quacklake.pond.site.definition import Site
from quacklake.pond.site.pages import markdown
from quacklake.pond.site.serving import server
from tests.cli.conftest import Run
from tests.pond.conftest import csv

HOLED = Line([0, 1_000_000, 1_500_000, 2_000_000, 3_000_000], [1.0, 2.0, None, 4.0, 3.0])
SITE = """
kind: Site
name: dock
spec:
  title: The <dock>
  description: Readings of our dock
  site_url: https://example.org/dock/
  default_range: 1d
  pages:
    - name: index
      file: index.md
      charts: [{name: temp, series: /sensors/*.series, columns: [temp]}]
    - {name: news, title: News, date: 2024-01-05, content: "We moved the dock."}
"""


@pytest.fixture(scope="module", autouse=True)
def _readings(folder: Path) -> None:
    """A pond with a month and a bit of one series, a few readings of another, and the definition of a site."""
    here = folder.parent
    (here / "a.csv").write_text(csv(2000) + "2024-02-03T00:00:00Z,7\n")
    (here / "b.csv").write_text(csv(3))
    (here / "index.md").write_text("# Welcome\n\n{{ temp }}\n\n<script>alert(1)</script>\n\nAfter the chart.\n")
    (here / "site.yaml").write_text(SITE)
    from quacklake.cli.pond import main

    words = ["--pond", str(folder)]
    assert main(["mkdir", "/sensors", *words]) == 0
    for name in ("a", "b"):
        assert main(["copy", str(here / f"{name}.csv"), f"/sensors/{name}.series", *words]) == 0
    assert main(["apply", "-f", str(here / "site.yaml"), *words]) == 0


# -- pictures ----------------------------------------------------------------------------------------------------------


def test_a_picture_in_the_terminal_has_axes_and_gaps() -> None:
    rows = draw("temp", HOLED, 0, 3_000_000, 40, 6)
    assert rows[0] == "temp" and all(len(row) <= 60 for row in rows)
    assert rows[-1].strip() == "1970-01-01 00:00:00 UTC – 1970-01-01 00:00:03 UTC"
    drawn = [row.split("│")[-1].split("┤")[-1] for row in rows[1:7]]
    columns = {n for row in drawn for n, letter in enumerate(row) if letter != " "}
    assert {0, 11} <= columns and not columns & set(range(13, 23))
    assert draw("temp", Line([], []), 0, 1) == ["temp", "  no readings"]


def test_a_picture_as_svg_breaks_its_lines_at_gaps() -> None:
    found = ET.fromstring(svg([Panel("a < b", HOLED)], 0, 3_000_000, 500))
    space = "{http://www.w3.org/2000/svg}"
    assert len([path for path in found.iter(f"{space}path") if path.get("class") == "line"]) == 2
    assert "a < b" in [text.text for text in found.iter(f"{space}text")]


@pytest.mark.parametrize("text", ["µS/cm", "μS/cm", "g/cm³ – 2 × m²", "Ω-cm", "Größe ‰", "水温 é", "Temp. °C ±1·2"])
def test_a_picture_as_png_has_no_letter_that_its_font_lacks(text: str) -> None:
    fonts = pytest.importorskip("PIL.ImageFont", reason="PNG needs Pillow")
    font = fonts.load_default(20)

    def drawn(letter: str) -> tuple[bytes, tuple[int, int]]:
        mask = font.getmask(letter)
        return bytes(mask), mask.size

    assert [each for each in in_few_letters(text) if drawn(each) == drawn("\uffff")] == []


def test_a_picture_as_png() -> None:
    pytest.importorskip("PIL", reason="PNG needs Pillow")
    band = Line([0, 1_000_000], [1.0, 2.0], [0.0, 1.0], [2.0, 3.0])
    content = png([Panel("temp", HOLED), Panel("band", band)], 0, 3_000_000, 300)
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) < 40_000
    assert int.from_bytes(content[16:20]) == 600 and int.from_bytes(content[20:24]) == 880


def test_ticks_are_round_times() -> None:
    day = 86_400_000_000
    assert time_ticks(0, 3 * day, 4) == [
        (0, "1970-01-01"),
        (day, "1970-01-02"),
        (2 * day, "1970-01-03"),
        (3 * day, "1970-01-04"),
    ]
    assert [text for _, text in time_ticks(0, 400 * day, 4)] == ["1970-01", "1970-07", "1971-01"]
    assert [text for _, text in time_ticks(0, 4000 * day, 4)] == ["1970", "1975", "1980"]
    assert [text for _, text in time_ticks(day, day + 20_000_000, 3)] == ["00:00:00", "00:00:10", "00:00:20"]


def test_plot_draws_in_the_terminal_and_into_files(run: Run, tmp_path: Path) -> None:
    shown = run("plot", "/sensors/b.series", "--width", "60")
    assert shown.code == 0 and shown.out.startswith("/sensors/b.series temp\n") and "⠁" <= max(shown.out) <= "⣿"
    for name, begin in (("x.svg", "<svg"), ("x.html", "<!doctype html>")):
        assert run("plot", "/sensors/a.series", "--to", name, "--time-end", "2024-01-02").code == 0
        assert Path(name).read_text().startswith(begin)
    assert "pondTile(" in Path("x.html").read_text() and "src=" not in Path("x.html").read_text().split("<script>")[0]
    rows = json.loads(run("plot", "/sensors/b.series", "-o", "json").out)
    assert [row["value"] for row in rows] == [0.0, 1.0, 2.0]


@pytest.mark.daily(0.3)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/sensors/a.series", "--to", "x.pdf"], "none of .svg, .png, .html"),
        (["/sensors/a.series", "-c", "tmp"], "no column of numbers"),
        (["/sensors"], "has no rows"),
        (["/sensors/a.series", "--to", "no/such/x.svg"], "cannot be written"),
        (["/sensors/a.series", "--width", "0", "--to", "x.svg"], "pixels wide"),
    ],
)
def test_plot_refuses_what_it_cannot_draw(run: Run, words: list[str], message: str) -> None:
    answer = run("plot", *words)
    assert answer.code != 0 and message in answer.err


# -- Parquet by time ---------------------------------------------------------------------------------------------------


def test_export_writes_folders_by_time(run: Run, tmp_path: Path) -> None:
    words = ("export", "--pattern", "/sensors/*.series", "--dir", "out", "--temporal", "year,month")
    found = json.loads(run(*words, "-o", "json").out)
    assert [(row["path"], row["temporal"], row["rows"]) for row in found] == [
        ("/sensors/a.series", [["year", 2024], ["month", 1]], 2000),
        ("/sensors/a.series", [["year", 2024], ["month", 2]], 1),
        ("/sensors/b.series", [["year", 2024], ["month", 1]], 3),
    ] or [row["rows"] for row in found] == [2000, 1, 3]
    assert found[0]["captures"] == ["a"] and found[1]["start_time"].startswith("2024-02-03T00:00:00")
    query = "SELECT month, count(*), max(temp) FROM read_parquet('out/sensors/a/**/*.parquet') GROUP BY 1 ORDER BY 1"
    assert duckdb.sql(query).fetchall() == [(1, 2000, 1999.0), (2, 1, 7.0)]
    again = run(*words)
    assert again.code != 0 and "exists already" in again.err
    assert run(*words, "--force", "--end-time", "2024-01-01T00:00:59Z").out == "wrote 2 rows in 2 files below out\n"
    assert not list(Path("out").rglob("*.part")) and len(list(Path("out").rglob("*.parquet"))) == 2


def test_export_refuses_what_makes_no_sense(run: Run) -> None:
    for words, message in (
        (["--pattern", "/x", "--temporal", "yeer"], "not a part of time"),
        (["--pattern", "/none*"], "no table or series"),
        ([], "either a --pattern or a --site"),
        (["--site", "nope"], "there is no"),
        (["--site", "dock", "--temporal", "year"], "are for --pattern"),
    ):
        answer = run("export", "--dir", "out", *words)
        assert answer.code != 0 and message in answer.err, words
    assert not Path("out").exists()


# -- sites -------------------------------------------------------------------------------------------------------------


def test_a_site_is_pages_charts_and_a_feed(run: Run) -> None:
    assert json.loads(run("export", "--site", "dock", "--dir", "web", "-o", "json").out)["charts"] == 1
    page = Path("web/index.html").read_text()
    assert "<title>The &lt;dock&gt;</title>" in page and "<h1>Welcome</h1>" in page
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert page.index('id="temp"') < page.index("After the chart.")
    scripts = [part.split('"')[1] for part in page.split("<script defer ")[1:]]
    assert scripts[0] == "pond/chart.js" and 1 <= len(scripts[1:]) <= 2
    assert all(Path("web", name).is_file() for name in scripts)
    channel = ET.parse("web/feed.xml").getroot()[0]
    items = [(item.findtext("title"), item.findtext("link")) for item in channel.iter("item")]
    assert items == [
        ("/sensors/*.series", "https://example.org/dock/index.html#temp"),
        ("News", "https://example.org/dock/news.html"),
    ]
    ET.parse("web/charts/temp.svg")


def test_a_second_export_writes_only_what_has_changed(run: Run, folder: Path) -> None:
    run("export", "--site", "dock", "--dir", "web")
    before = {file: file.stat().st_mtime_ns for file in Path("web").rglob("*") if file.is_file()}
    Path("web/charts/gone").mkdir()
    Path("web/old.html").write_text("x")
    assert run("export", "--site", "dock", "--dir", "web").code == 0
    assert {file: file.stat().st_mtime_ns for file in Path("web").rglob("*") if file.is_file()} == before
    assert not Path("web/charts/gone").exists()
    assert "unchanged Site dock" in run("apply", "-f", str(folder.parent / "site.yaml")).out


def test_a_site_is_not_written_over_other_files(run: Run) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    answer = run("export", "--site", "dock", "--dir", "mine")
    assert answer.code != 0 and "has other files" in answer.err
    assert [file.name for file in Path("mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"title": "x"}, "no pages"),
        ({"title": "x", "pages": [{"name": "a"}]}, "needs a page called index"),
        ({"title": "x", "pages": [{"name": "../up"}]}, "cannot be the name"),
        ({"title": "x", "pages": [{"name": "index"}, {"name": "Index"}]}, "two pages"),
        ({"title": "x", "pages": [{"name": "index", "charts": [{}]}]}, "no series"),
        ({"title": "x", "pages": [{"name": "index", "date": "soon"}]}, "not a date"),
        ({"title": "x", "pages": [{"name": "index"}], "default_range": "long"}, "default_range"),
        ({"title": "x", "pages": [{"name": "index"}], "site_url": "javascript:1"}, "not the address"),
        ({"title": "x", "pages": [{"name": "index"}], "tittle": "y"}, "no option 'tittle'"),
    ],
)
def test_wrong_definitions_of_sites_are_refused(spec: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Site.of(spec)


def test_markdown_shows_html_as_text() -> None:
    assert markdown("a **b** <img onerror=x>\n\n[l](javascript:alert)") == (
        "<p>a <strong>b</strong> &lt;img onerror=x&gt;</p>\n<p>[l](javascript:alert)</p>\n"
    )


def test_a_server_sends_the_site_to_this_machine_only(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no index\.html"):
        server(tmp_path)
    (tmp_path / "index.html").write_text("hello")
    (tmp_path / "sub").mkdir()
    (tmp_path.parent / "secret.txt").write_text("secret")
    with server(tmp_path) as running:
        assert running.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            base = f"http://127.0.0.1:{running.server_port}"
            with urllib.request.urlopen(f"{base}/", timeout=10) as answer:
                assert answer.read() == b"hello"
            for path in ("/sub/", "/../secret.txt", "/%2e%2e/secret.txt"):
                with pytest.raises(urllib.error.HTTPError) as caught:
                    urllib.request.urlopen(f"{base}{path}", timeout=10)
                assert caught.value.code == 404
                caught.value.close()
        finally:
            running.shutdown()
            thread.join()


def test_serve_wants_a_site(run: Run) -> None:
    answer = run("serve", "nowhere")
    assert answer.code != 0 and "no index.html" in answer.err


def test_a_pond_without_a_site_says_so() -> None:
    from quacklake.errors import NotFoundError
    from quacklake.pond.site.export import find_site

    with Pond.memory() as pond, pytest.raises(NotFoundError):
        find_site(pond.fs(), "dock")
