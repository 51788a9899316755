"""Run the test files of a folder, each in its own process, and print the figure."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.sqllogic.exceptions import EXCEPTIONS
from tests.sqllogic.page import PAGE, Figures, write
from tests.sqllogic.processes import run
from tests.sqllogic.runner import Outcome


def _outcomes(root: Path, files: Sequence[Path], jobs: int) -> Iterator[Outcome]:
    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(lambda path: run(root, path), files)


def _chosen(folder: Path, parts: str, names: Path | None) -> list[Path]:
    listed = None if names is None else set(names.read_text(encoding="utf-8").split())
    return [
        path
        for path in sorted(folder.rglob("*.test"))
        if any(part in path.relative_to(folder).as_posix() for part in parts.split(","))
        and (listed is None or path.relative_to(folder).as_posix() in listed)
    ]


def _kept(path: Path | None) -> dict[str, Outcome]:
    if path is None or not path.exists():
        return {}
    return {name: Outcome(*fields) for name, fields in json.loads(path.read_text(encoding="utf-8")).items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=os.environ.get("QUACKLAKE_YARDSTICK", ""))
    parser.add_argument("-k", default="", help="only files whose path contains one of these, with commas between them")
    parser.add_argument("-v", action="store_true", help="tell of each file")
    parser.add_argument("-j", type=int, default=1, help="how many files at a time")
    parser.add_argument("--names", type=Path, help="a file with the paths of the test files to run")
    parser.add_argument("--keep", type=Path, help="a file that keeps what was found; what it has of other files counts")
    parser.add_argument("--page", action="store_true", help=f"write what was found to {PAGE.name}")
    return parser.parse_args()


def main() -> int:
    """Print the figure; the exit code is 1 when a file failed that is not expected to."""
    chosen = _arguments()
    folder = Path(chosen.folder).resolve()
    if not chosen.folder or not folder.is_dir():
        print("skipped: no folder of sqllogictest files (set QUACKLAKE_YARDSTICK to the extension's test/sql)")
        return 0
    files = _chosen(folder, chosen.k, chosen.names)
    found = _kept(chosen.keep)
    for path, outcome in zip(files, _outcomes(folder.parent.parent, files, chosen.j), strict=True):
        name = path.relative_to(folder).as_posix()
        found[name] = outcome
        if chosen.keep is not None:
            chosen.keep.write_text(json.dumps(found, indent=0), encoding="utf-8")
        surprise = (outcome.kind == "FAIL") != (name in EXCEPTIONS) and outcome.kind != "SKIP"
        if chosen.v or surprise:
            print(f"{outcome.kind} {name}: {outcome.why}", flush=True)
    figures = Figures(found)
    for why, count in figures.skipped.most_common():
        print(f"skipped {count}: {why}")
    print(figures.shown)
    if chosen.page:
        write(figures)
    return 1 if figures.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
