"""``python -m tests.newest``: what a stranger gets from ``pip install``, tried with the smoke tests.

A wheel is built and installed without any pin, into an environment of its own for each set of extras, the one with all
of them with the apps. Servers come from ``services``. Last, the newest DuckDB replaces the one that the extras ask for.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from services import MySQLServer, NatsServer, PostgresServer, S3Server, Server, Unavailable

REPOSITORY = Path(__file__).resolve().parent.parent
SMOKE = REPOSITORY / "tests" / "smoke"
HUDI_TABLES = REPOSITORY / "tests" / "connectors" / "hudi_tables.zip"
SHOWN = (
    *("duckdb", "pyarrow", "sqlalchemy", "duckdb-engine", "sqlglot", "pandas", "polars", "pyspark", "numpy"),
    *("deltalake", "pyiceberg", "pyiceberg-core", "hudi", "nkeys"),
)


class Environment:
    """A new virtual environment with the wheel in it."""

    def __init__(self, directory: Path, python: str) -> None:
        self.directory = directory
        _run(python, "-m", "venv", "--clear", directory)
        self.pip("--upgrade", "pip")

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.directory / "bin" / "python"

    def pip(self, *words: str) -> None:
        """Install packages, ignoring the pins of the project."""
        environment = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
        _run(
            self.python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *words,
            environment=environment,
        )

    def versions(self) -> str:
        """The versions of the packages that matter most."""
        done = subprocess.run([self.python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True)
        pins = (line.partition("==") for line in done.stdout.splitlines())
        return ", ".join(f"{name} {version}" for name, _, version in pins if name.lower().replace("_", "-") in SHOWN)

    def smoke(self, variables: Mapping[str, str]) -> bool:
        """Run the smoke tests in an empty directory; True if they pass."""
        with tempfile.TemporaryDirectory() as elsewhere:
            home = {key: value for key, value in os.environ.items() if not key.startswith(("QUACKLAKE_", "PYTHON"))}
            done = subprocess.run(
                [self.python, "-m", "pytest", "--noconftest", "-q", "-c", SMOKE / "pytest.ini", SMOKE],
                cwd=elsewhere,
                env={**home, **variables},
                check=False,
            )
        return done.returncode == 0


def _run(*command: str | Path, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
    subprocess.run(command, check=True, env=environment, cwd=folder)


def _wheel(directory: Path, project: Path = REPOSITORY) -> Path:
    before = set(directory.glob("*.whl"))
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, folder=project)
    (wheel,) = set(directory.glob("*.whl")) - before
    return wheel


def _new_nkey() -> tuple[str, str]:
    """Return the seed and the public key of a new user of NATS."""
    import nkeys

    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    return seed.decode(), nkeys.from_seed(seed).public_key.decode()


@contextmanager
def _servers() -> Iterator[dict[str, str]]:
    """Start the servers that can be had, and yield the variables that name them."""
    variables: dict[str, str] = {}
    with ExitStack() as running:

        def start(server: Server) -> bool:
            try:
                running.enter_context(server)
            except Unavailable as error:
                print(f"left out: {error}")
                return False
            return True

        postgres, mysql, s3 = PostgresServer(), MySQLServer(), S3Server()
        seed, public = _new_nkey()
        nats = NatsServer(settings={"authorization": {"users": [{"nkey": public}]}})
        if start(postgres):
            variables["SMOKE_POSTGRES_URL"] = postgres.create_database("smoke")
        if start(mysql):
            variables["SMOKE_MYSQL_URL"] = mysql.create_database("smoke")
        if start(s3):
            variables |= s3.environment() | {"SMOKE_S3_URL": s3.create_bucket("smoke")}
        if start(nats):
            variables |= {"SMOKE_NATS_URL": nats.url, "SMOKE_NATS_SEED": seed}
        with zipfile.ZipFile(HUDI_TABLES) as packed:
            folder = running.enter_context(tempfile.TemporaryDirectory())
            packed.extractall(folder)
            variables["SMOKE_HUDI_TABLE"] = f"{folder}/copy_on_write"
        yield variables


def main() -> int:
    """Try each environment; the exit code is 1 when one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=REPOSITORY / ".venv", help="where the environments are made")
    parser.add_argument("--python", default=sys.executable, help="the Python they are made with")
    parser.add_argument("--bare", action="store_true", help="only the environment without extras")
    chosen = parser.parse_args()
    passed: dict[str, bool] = {}

    def look(name: str, environment: Environment, variables: Mapping[str, str]) -> None:
        print(f"\n{name}: {environment.versions()}", flush=True)
        passed[name] = environment.smoke(variables)

    with tempfile.TemporaryDirectory() as dist:
        wheel = _wheel(Path(dist))
        bare = Environment(chosen.directory / "newest-bare", chosen.python)
        bare.pip(str(wheel), "pytest")
        look("without extras", bare, {})
        if not chosen.bare:
            whole = Environment(chosen.directory / "newest-all", chosen.python)
            apps = [_wheel(Path(dist), path.parent) for path in (REPOSITORY / "apps").glob("*/pyproject.toml")]
            whole.pip(f"{wheel}[all]", *map(str, apps), "pytest")
            with _servers() as variables:
                spark = {"SMOKE_SPARK": "1"} if shutil.which("java") else {}
                look("with [all]", whole, {**variables, **spark})
                whole.pip("--upgrade", "duckdb")
                look("with [all] and the newest DuckDB", whole, {**variables, **spark})
    print()
    for name, good in passed.items():
        print(f"{name}: {'passed' if good else 'FAILED'}")
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
