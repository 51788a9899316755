"""Make the golden lakes with the real old extensions. Run by hand: ``python tests/golden/make.py [VERSION ...]``.

Each DuckDB version gets a virtual environment of its own, in which ``script.py`` makes one lake per kind of catalog.
Needs a package index; the lakes of the given versions (default: all) are replaced.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FORMATS = {"1.3.2": "0.2", "1.4.4": "0.3", "1.5.0": "0.4", "1.5.5": "1.0"}
CATALOGS = ("sqlite", "duckdb")


def make(version: str, workplace: Path) -> None:
    """Replace the lakes of one DuckDB version."""
    environment = workplace / version
    python = environment / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    packages = [
        f"duckdb=={version}",
        "duckdb-extensions",
        f"duckdb-extension-ducklake=={version}",
        f"duckdb-extension-sqlite-scanner=={version}",
    ]
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    for catalog in CATALOGS:
        folder = HERE / f"v{FORMATS[version]}-{catalog}"
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        # In the lake's folder, so that the catalog holds a data path relative to itself. The extensions go into a
        # home of their own: they are files of one version.
        home = environment / "home"
        home.mkdir(exist_ok=True)
        subprocess.run(
            [str(python), str(HERE / "script.py"), catalog, FORMATS[version]],
            cwd=folder,
            env=os.environ | {"HOME": str(home)},
            check=True,
        )
        pack(folder)


def pack(folder: Path) -> None:
    """Compress the catalog: mostly empty pages."""
    (catalog,) = folder.glob("catalog.*")
    with Path(f"{catalog}.gz").open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as sink:
        sink.write(catalog.read_bytes())
    catalog.unlink()


def main() -> None:
    versions = sys.argv[1:] or list(FORMATS)
    with tempfile.TemporaryDirectory() as workplace:
        for version in versions:
            print(f"DuckDB {version}: format {FORMATS[version]}", flush=True)
            make(version, Path(workplace))


if __name__ == "__main__":
    main()
