"""Expressions and views computed by DuckDB and by Spark: ``python -m tests.prove.expressions FOLDER COUNT SEED``.

What the one gives the other must give, or refuse. Spark lives in a process of its own.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import quacklake
from tests.spark.differential import compare, expressions, make_table, shared_aggregates
from tests.spark.expressions import aggregates, casts
from tests.spark.streaming import child_session
from tests.spark.view_differential import views_of_lake, views_of_spark

__all__ = ["ROUND", "Tally", "round_of_expressions"]

ROUND = 5_000
"""Expressions that one process compares."""
_VIEWS = 50
"""So many expressions for each view of either side."""


@dataclass
class Tally:
    """Counts of a proof, and the expressions and views whose results differed."""

    expressions: int = 0
    translated: int = 0
    views: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def round_of_expressions(folder: Path, count: int, seed: str) -> Tally:
    """Compare ``count`` expressions, all casts and aggregates, and some views."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.prove.expressions", str(folder), str(count), seed]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600 + count, check=False)
    assert ended.returncode == 0, f"expressions, seed {seed!r}: {ended.stderr[-3000:]}"
    return Tally(**json.loads(ended.stdout.splitlines()[-1]))


def _compare(folder: Path, count: int, seed: str) -> Tally:
    session = child_session(str(folder))
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    dice = random.Random(seed)
    # rows in the catalog, or in files
    limit = dice.choice((0, 10))
    url, data = f"sqlite:///{folder}/lake.db", str(folder / "data")
    tally = Tally()
    with quacklake.connect(url, data_path=data, data_inlining_row_limit=limit) as lake:
        make_table(lake)
        spark = quacklake.spark(lake, session)
        made = expressions(session, dice)
        for rows, texts in ((True, [*made.some(count), *casts()]), (False, aggregates(shared_aggregates(session)))):
            found = compare(lake, spark, texts, rows=rows)
            tally.expressions += found.tried
            tally.translated += len(found.translated)
            tally.differences += [f"seed {seed!r}: {text}: {told}" for text, told in found.different.items()]
        for work in (views_of_lake, views_of_spark):
            views = work(lake, spark, made, dice, count // _VIEWS)
            tally.views += views.given
            tally.differences += [f"seed {seed!r}, view: {text}: {told}" for text, told in views.different.items()]
    return tally


if __name__ == "__main__":
    print(json.dumps(asdict(_compare(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))))
