"""Runs the test files of a folder one after the other, each in a process of its own, and prints the figure."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

TIMEOUT = 60


def run(root: Path, path: Path) -> tuple[str, str]:
    """PASS, FAIL or SKIP, and why."""
    command = [sys.executable, "-m", "tests.sqllogic.runner", str(root), str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return "FAIL", f"took more than {TIMEOUT} s"
    for word in ("PASS", "FAIL", "SKIP"):
        at = done.stdout.rfind(f"{word} ")
        if at >= 0 and (at == 0 or done.stdout[at - 1] == "\n"):
            return word, done.stdout[at + 5 :].strip()
    return "FAIL", f"the process ended with {done.returncode}: {done.stderr.strip()[-600:]}"


def main() -> int:
    """Print the figure; the exit code is 1 when a file failed that is not expected to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=os.environ.get("QUACKLAKE_YARDSTICK", ""))
    parser.add_argument("-k", default="", help="only files whose path contains this")
    parser.add_argument("-v", action="store_true", help="tell of each file")
    chosen = parser.parse_args()
    folder = Path(chosen.folder)
    if not chosen.folder or not folder.is_dir():
        print("skipped: no folder of sqllogictest files (set QUACKLAKE_YARDSTICK to the extension's test/sql)")
        return 0
    root = folder.parent.parent
    files = [path for path in sorted(folder.rglob("*.test")) if chosen.k in str(path.relative_to(folder))]
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for path in files:
        outcome, why = run(root, path)
        outcomes[outcome] += 1
        if outcome == "SKIP":
            reasons[why] += 1
        if chosen.v or outcome == "FAIL":
            print(f"{outcome} {path.relative_to(folder)}: {why if outcome != 'PASS' else ''}", flush=True)
    attempted = outcomes["PASS"] + outcomes["FAIL"]
    for why, count in reasons.most_common():
        print(f"skipped {count}: {why}")
    share = 100 * outcomes["PASS"] / attempted if attempted else 0.0
    print(f"passed {outcomes['PASS']} of {attempted} attempted ({share:.1f} %), skipped {outcomes['SKIP']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
