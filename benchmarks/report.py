"""Results for people (tables), for programs (JSON) and for the record (``README.md``)."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.aims import AIMS
from benchmarks.common import Detail, Measure, Result
from benchmarks.published import aims_table, lines, place, size, worse

__all__ = ["README", "as_json", "machine", "show", "update_readme"]

README = Path(__file__).with_name("README.md")
PICTURES = Path(__file__).parents[1] / "docs/guides/images"
_HEAD = ("measured", "ours", "peer", "ratio", "target")
_PACKAGES = ("duckdb", "duckdb-extension-ducklake", "pyarrow", "sqlalchemy", "deltalake", "pyiceberg", "pyspark")
_WIDTH = 130


# -- figures as text ---------------------------------------------------------------------------------------------------


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    digits = 0 if abs(value) >= 1000 or value == int(value) else 1 if abs(value) >= 100 else 2
    return f"{value:,.{digits}f} {unit}".strip()


def _peer(measure: Measure) -> str:
    return "–" if measure.peer is None else f"{_figure(measure.peer, measure.unit)} ({measure.peer_name})"


def _ratio(measure: Measure) -> str:
    return "–" if measure.ratio is None else f"{measure.ratio:.2f}× {measure.ratio_words}".strip()


def _target(measure: Measure) -> str:
    target = measure.target
    if target is None:
        return "–"
    text = f"{target.sign} {_figure(target.value, measure.unit if target.of == 'ours' else '')}"
    return f"{text}{'×' if target.of == 'ratio' else ''} {'✓' if measure.met else '✗'}"


def _cells(measure: Measure) -> tuple[str, ...]:
    return (measure.what, _figure(measure.ours, measure.unit), _peer(measure), _ratio(measure), _target(measure))


def _cell(value: str | int | float) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


# -- the screen --------------------------------------------------------------------------------------------------------


def console() -> Console:
    """Standard output, wide enough for the tables when it is not a terminal."""
    found = Console()
    return found if found.is_terminal else Console(width=_WIDTH)


def show(result: Result, screen: Console) -> None:
    """Print one result."""
    if result.skipped is not None:
        screen.print(f"[bold]{result.name}[/bold]: skipped, {result.skipped}")
        return
    title = f"{result.name}: {result.title} ({result.size} size, {result.seconds:.0f} s)"
    table = Table(*_HEAD, title=title, title_justify="left", title_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    text = README.read_text()
    published = lines(text, result.name) if size(text, result.name) == result.size else []
    for measure in result.measures:
        style = {True: "green", False: "red", None: ""}[measure.met]
        *cells, ratio, target = _cells(measure)
        lost = worse(measure, published)
        marked = ratio if lost is None else f"{ratio} [red]▼ {lost:.0%}[/red]"
        table.add_row(*cells, marked, f"[{style}]{target}[/{style}]" if style else target)
    screen.print(table)
    if any(worse(measure, published) is not None for measure in result.measures):
        screen.print("  ▼ by how much a ratio is worse than the published one", style="dim")
    for detail in result.details:
        screen.print(_detail_table(detail))
    for note in result.notes:
        screen.print(f"  {note}", style="dim", highlight=False)
    screen.print()


def _detail_table(detail: Detail) -> Table:
    table = Table(*detail.columns, title=detail.title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in detail.rows:
        table.add_row(*map(_cell, row))
    return table


# -- programs ----------------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Return what the figures depend on: cores, memory, system and versions; nothing that names the machine."""
    versions: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": versions,
    }


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Everything as plain data."""
    return {"machine": machine(), "results": [_plain(result) for result in results]}


def _plain(result: Result) -> dict[str, Any]:
    plain = asdict(result)
    del plain["pictures"]
    for entry, measure in zip(plain["measures"], result.measures, strict=True):
        entry["met"] = measure.met
    return plain


# -- the record --------------------------------------------------------------------------------------------------------


def update_readme(result: Result, path: Path = README, pictures: Path = PICTURES) -> None:
    """Replace the section of a benchmark that ran in ``README.md``, its pictures, and the table of aims."""
    if result.skipped is not None:
        return
    text = _replaced(path.read_text(), result.name, _markdown(result))
    path.write_text(_replaced(text, "aims", aims_table(text, AIMS)))
    for name, picture in result.pictures.items():
        (pictures / f"{name}.svg").write_text(picture)


def _replaced(text: str, name: str, section: str) -> str:
    start, end = place(name)
    before, found, rest = text.partition(f"{start}\n")
    if not found:
        raise ValueError(f"there is no place for the results of {name}")
    return f"{before}{start}\n{section}\n{end}{rest.partition(end)[2]}"


def _markdown(result: Result) -> str:
    parts = [f"{result.title[0].upper()}{result.title[1:]}.", _markdown_table(_HEAD, map(_cells, result.measures))]
    for detail in result.details:
        rows = (tuple(map(_cell, row)) for row in detail.rows)
        table = _markdown_table(detail.columns, rows)
        parts.append(f"<details><summary>{detail.title}</summary>\n\n{table}\n\n</details>")
    parts += ["\n".join(f"- {note}" for note in result.notes)] if result.notes else []
    parts.append(f"*{_facts()}; {result.size} size, {result.seconds:.0f} s.*")
    return "\n\n".join(parts)


def _markdown_table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _facts() -> str:
    facts = machine()
    packages = ", ".join(f"{name} {number}" for name, number in facts["packages"].items())
    where = f"{facts['cores']} cores, {facts['memory_gb']} GB, {facts['system']}"
    return f"{where}, Python {facts['python']}, {packages}"
