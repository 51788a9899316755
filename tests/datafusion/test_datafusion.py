"""Lakes in DataFusion, with the real DataFusion, in a process of its own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "integrations" / "datafusion-quacklake"
INSTALLED = REPOSITORY / ".venv" / "datafusion"
SOURCES = sorted((PACKAGE / "src" / "datafusion_quacklake").glob("*.py"))
_MAX_LINES = 600


def _imports(path: Path) -> set[str]:
    """Return the modules of the lake that a module imports, with the names that it takes of them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "quacklake":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.partition(".")[0] == "quacklake"}
    return found


def test_the_package_stands_on_the_extension_api_alone() -> None:
    imported = set[str]().union(*map(_imports, SOURCES))
    assert {"quacklake", "quacklake.extend.reads", "quacklake.extend.writes"} <= imported
    allowed = r"quacklake|quacklake\.errors\.\w+|quacklake\.extend\.(files|reads|schemas|writes)"
    assert [name for name in sorted(imported) if not re.fullmatch(allowed, name)] == []
    inside = re.compile(r"\.(handle|_context|_plan|_tx|_table)\b")
    assert [path.name for path in SOURCES if inside.search(path.read_text().replace("self._plan", ""))] == []
    assert sum(len(path.read_text().splitlines()) for path in SOURCES) <= _MAX_LINES


@pytest.mark.skipif(
    not (INSTALLED / "datafusion").is_dir(), reason="DataFusion is not installed: make .venv/datafusion"
)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("module", sorted(path.name for path in (PACKAGE / "tests").glob("test_*.py")))
def test_the_tests_of_the_package_pass(module: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY), str(PACKAGE / "src"), str(INSTALLED)])
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(PACKAGE), "--basetemp", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(PACKAGE / "tests" / module)],
        cwd=PACKAGE,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
