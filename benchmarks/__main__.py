"""``python -m benchmarks [names…] [--quick | --full] [--output json] [--update]``."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from types import ModuleType

from benchmarks.common import Bench, Result, Size, Skip
from benchmarks.report import as_json, console, show, update_readme
from services import Unavailable

NAMES = (
    "commits",
    "inlining",
    "planning",
    "iceberg_rest",
    "tpch",
    "sql",
    "flight",
    "service",
    "deletes",
    "feed",
    "materialized",
    "pond_looks",
    "web",
    "partitions",
    "writers",
    "transactions",
    "tenants",
    "add_files",
    "compaction",
    "expiry",
    "growth",
    "spark",
    "pipelines",
    "sinks",
    "collecting",
    "memory",
    "pond_import",
    "cli",
)


def main() -> int:
    """Run the chosen benchmarks; return 0 whatever they measured."""
    options = _parser().parse_args()
    if options.list:
        for name in NAMES:
            print(f"{name:10} {_module(name).TITLE}")
        return 0
    results = []
    screen = console()
    with Bench(_size(options)) as bench:
        for name in options.names or NAMES:
            result = _run(bench, name)
            results.append(result)
            if options.output == "table":
                show(result, screen)
            if options.update:
                update_readme(result)
    if options.output == "json":
        print(json.dumps(as_json(results), indent=2, ensure_ascii=False))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Quacklake against its peers.")
    parser.add_argument("names", nargs="*", metavar="name", type=_name, help=f"some of: {', '.join(NAMES)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--full", action="store_true", help="the sizes of the published figures; takes about half an hour"
    )
    size.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs, measures nothing")
    parser.add_argument("--output", choices=["table", "json"], default="table", help="how to print the results")
    parser.add_argument("--update", action="store_true", help="also write the results into benchmarks/README.md")
    parser.add_argument("--list", action="store_true", help="tell what each benchmark measures, and do nothing")
    return parser


def _name(text: str) -> str:
    if text not in NAMES:
        raise argparse.ArgumentTypeError(f"there is no benchmark {text!r}, but: {', '.join(NAMES)}")
    return text


def _size(options: argparse.Namespace) -> Size:
    return "full" if options.full else "quick" if options.quick else "everyday"


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name}")


def _run(bench: Bench, name: str) -> Result:
    module = _module(name)
    result = Result(name, module.TITLE, bench.size)
    bench.begin(name)
    start = time.perf_counter()
    try:
        module.run(bench, result)
    except (Skip, Unavailable) as error:
        result.skipped = str(error)
    result.seconds = time.perf_counter() - start
    return result


if __name__ == "__main__":
    sys.exit(main())
