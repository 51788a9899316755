"""Run the pipeline of a test in a process of its own, which a fault may kill."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from quacklake.pipelines import Pipeline
from tests.pipelines.tables import connect

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with connect(folder) as lake:
        Pipeline(lake, json.loads((folder / "definition.json").read_text())).run(until_caught_up=True)
