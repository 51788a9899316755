"""The scripts in ``examples/``, and those of the apps, run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import REPOSITORY
from tests.duckdbs import needs_extensions
from tests.layout import plain_only

_FOLDERS = [REPOSITORY / "examples", *(REPOSITORY / "apps").glob("*/examples")]
EXAMPLES = sorted(path for folder in _FOLDERS for path in folder.iterdir() if path.is_file())
#: Those of Spark run in the session that its tests share, and the notebook in tests/notebook.
PLAIN = [path for path in EXAMPLES if path.suffix == ".py" and not path.stem.startswith("spark")]
PRINTED = {
    "duckdb_interop": ("made by DuckDB, read by Quacklake: 1,000 rows", "(501, 1000)", "at snapshot 1: (1000,)"),
    "ducklake_example": ("at snapshot 2 there were 200", "200 rows, 21 columns"),
    "quickstart": ("merged: 1 updated, 1 inserted", "refused (input.schema_mismatch)", "snapshot 5: 3 books"),
    "sensors": ("30,242 readings in 7 files, 2 in the catalog", "corrected 1,440 readings", "before: sensor 3"),
}


@pytest.mark.daily(0.5)
@pytest.mark.parametrize("example", PLAIN, ids=lambda path: path.stem)
def test_an_example_runs_and_leaves_nothing_behind(example: Path, tmp_path: Path) -> None:
    if example.stem == "duckdb_interop":
        plain_only("stock DuckDB cannot open a catalog of a shared lake")
        needs_extensions()
    command = [sys.executable, "-W", "error", str(example)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert all(text in result.stdout for text in PRINTED[example.stem])
    assert list(tmp_path.iterdir()) == []


def test_every_example_is_in_the_readme() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert EXAMPLES
    names = [str(path.relative_to(REPOSITORY)) for path in EXAMPLES]
    assert [name for name in names if f"]({name})" not in readme] == []
