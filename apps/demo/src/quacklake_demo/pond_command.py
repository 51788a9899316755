"""``pond demo``: from simulated sensors to a web page, in a few seconds."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quacklake.cli.options import argument
from quacklake.cli.output import plural
from quacklake.cli.pond.context import PondContext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quacklake_demo.stage import Stage


def demo(
    context: PondContext,
    dir: Annotated[str | None, argument("DIR", "Keep the pond and the site in this folder.")] = None,
) -> None:
    """Simulators of HydroVu and LakeTech run on this machine; a week of their readings becomes series and a site.

    Every number that it prints is read from the pond. With a folder, a second run takes seconds and finds nothing new.
    """
    from quacklake.errors import InputError
    from quacklake_demo.stage import Stage, own_settings

    if not context.output.for_people:
        raise InputError("the demo supports only --output table")
    stage, begun = Stage(context.output.console), time.perf_counter()
    with own_settings(), _folder(dir) as folder:
        collect(stage, folder)
        if dir is None:
            stage.say("The pond and its site are gone now: `pond demo harbour` keeps them in the folder harbour.")
        else:
            stage.say(f"Open {folder / 'site' / 'index.html'} in a browser.")
            stage.say(f"See what the pond has: pond list --pond {folder / 'pond'}")
    stage.say(f"It took {time.perf_counter() - begun:.1f} seconds.")


@contextmanager
def _folder(kept: str | None) -> Iterator[Path]:
    if kept is not None:
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(prefix="pond-demo-") as folder:
        yield Path(folder)


def collect(stage: Stage, folder: Path) -> None:
    """Tell how a pond in a folder collects a week of readings and shows it. The folder may have one already."""
    from quacklake.pond import Pond
    from quacklake.pond.places import DATA
    from quacklake.pond.queries import rows
    from quacklake_demo.week import SITE, build_site, collect_week

    stage.step("Collect a week of readings into a pond, and show it")
    place = folder / "pond"
    with Pond.open(place) if (place / DATA).exists() else Pond.create(place) as pond:
        stage.say("HydroVu and LakeTech are simulated by servers on this machine; YAML says what to collect.")
        done = collect_week(pond, folder, stage.command)
        changed = sum(each.result != "unchanged" for each in done.applied)
        stage.say(f"{plural(len(done.applied), 'resource')}, {changed} of them new or changed.")
        for name, report in done.reports.items():
            series = len({each.path for each in report.imported})
            stage.say(f"  {name}: {report.rows:,} rows in {series} series" if series else f"  {name}: nothing is new")
        stage.command("pond cat /derived/daily")
        with rows(pond, "/derived/daily") as found:
            stage.table(found.read_all())
        kept = [each.rows for each in pond.fs().glob("**/*.series") if each.rows is not None]
        stage.say(f"The pond has {sum(kept):,} rows in {len(kept)} series, in {len(pond.commits())} transactions.")
        stage.command(f"pond export --site {SITE} --dir site")
        built = build_site(pond, folder / "site")
        stage.say(
            f"{plural(built.pages, 'page')} with {plural(built.charts, 'chart')} that zoom, in {built.tiles} tiles."
        )
