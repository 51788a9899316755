"""Runs the test files of a folder one after the other, each in a process of its own, and prints the figure."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from tests.sqllogic.exceptions import EXCEPTIONS
from tests.sqllogic.runner import lacking, run_file

TIMEOUT = 60


def run(root: Path, path: Path) -> tuple[str, str]:
    """PASS, FAIL or SKIP, and why. Each file has a process of its own, which is thrown away."""
    why = lacking(path)
    if why is not None:
        return "SKIP", why
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, root, path))
    process.start()
    sender.close()
    try:
        if receiver.poll(TIMEOUT):
            return tuple(receiver.recv())
        return "FAIL", f"took more than {TIMEOUT} s"
    except EOFError:
        process.join()
        return "FAIL", f"the process ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()


def _child(sender: Connection, root: Path, path: Path) -> None:
    sender.send(run_file(root, path))


def main() -> int:
    """Print the figure; the exit code is 1 when a file failed that is not expected to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=os.environ.get("QUACKLAKE_YARDSTICK", ""))
    parser.add_argument("-k", default="", help="only files whose path contains one of these, with commas between them")
    parser.add_argument("-v", action="store_true", help="tell of each file")
    chosen = parser.parse_args()
    folder = Path(chosen.folder).resolve()
    if not chosen.folder or not folder.is_dir():
        print("skipped: no folder of sqllogictest files (set QUACKLAKE_YARDSTICK to the extension's test/sql)")
        return 0
    root = folder.resolve().parent.parent
    files = [
        path
        for path in sorted(folder.rglob("*.test"))
        if any(part in str(path.relative_to(folder)) for part in chosen.k.split(","))
    ]
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for path in files:
        outcome, why = run(root, path)
        outcomes[outcome] += 1
        if outcome == "SKIP":
            reasons[why] += 1
        name = path.relative_to(folder).as_posix()
        known = EXCEPTIONS.get(name) if outcome == "FAIL" else None
        outcomes["known"] += known is not None
        if chosen.v or (outcome == "FAIL" and known is None):
            print(f"{outcome} {name}: {known or (why if outcome != 'PASS' else '')}", flush=True)
    attempted = outcomes["PASS"] + outcomes["FAIL"]
    for why, count in reasons.most_common():
        print(f"skipped {count}: {why}")
    share = 100 * outcomes["PASS"] / attempted if attempted else 0.0
    print(
        f"passed {outcomes['PASS']} of {attempted} attempted ({share:.1f} %), {outcomes['known']} failures are known and"
        f" have a reason, skipped {outcomes['SKIP']}"
    )
    return 1 if outcomes["FAIL"] > outcomes["known"] else 0


if __name__ == "__main__":
    sys.exit(main())
