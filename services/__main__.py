"""``python -m services start|stop|status [name]``: the servers in the background.

``install`` builds that of S3, ``install jars`` gets what those in Java are made of. ``environment`` prints the
variables that lead to the running ones, as a shell reads them.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path

from services import SERVERS, USUAL, S3Server, Unavailable, jars, versity
from services.background import ensure, keep, running, stop


def main() -> int:
    """Run one command; 0 when it did what was asked."""
    parser = argparse.ArgumentParser(prog="python -m services", description=__doc__)
    parser.add_argument(
        "command", choices=["start", "stop", "status", "environment", "install", "keep"], help="keep: internal"
    )
    parser.add_argument("name", nargs="?", choices=[*SERVERS, "jars"], help="default: all; start: the small ones")
    parser.add_argument("--directory", type=Path, default=_default_directory(), help="where the state is kept")
    parser.add_argument("--bucket", help="environment: a bucket that the S3 server shall have")
    parser.add_argument("--fast", action="store_true", help="do not wait for the disk: quicker, not durable")
    parser.add_argument("--owner", type=int, help="end with this process")
    options = parser.parse_args()
    if options.name == "jars" and options.command != "install":
        parser.error("jars are installed, nothing else")
    if options.command == "install":
        return _install_jars() if options.name == "jars" else _install()
    if options.command == "environment":
        return _environment(options.directory, options.bucket)
    every = USUAL if options.command == "start" else SERVERS
    names = [options.name] if options.name else [*every]
    if options.command == "keep":
        keep(names[0], options.directory, owner=options.owner, durable=not options.fast)
        return 0
    return max(_one(options.command, name, options) for name in names)


def _install() -> int:
    """Build the S3 server if it is not there. Without it the tests use another one, so 0 in any case."""
    if versity.program() is None:
        print(f"building the S3 server versitygw {versity.VERSION} (about two minutes, once)", flush=True)
        try:
            versity.install()
        except Unavailable as error:
            print(f"the tests of S3 use moto: {error}", file=sys.stderr)
    return 0


def _install_jars() -> int:
    """Get the jars that are not there yet; 1 when some cannot be had."""
    missing = 0
    for name in jars.SETS:
        try:
            jars.install(name)
        except Unavailable as error:
            missing = 1
            print(error, file=sys.stderr)
    return missing


def _environment(directory: Path, bucket: str | None) -> int:
    """Print the variables of S3 and NATS; 1 when neither runs."""
    variables: dict[str, str] = {}
    store, nats = running("s3", directory), running("nats", directory)
    if store is not None and store.port:
        server = SERVERS["s3"].attached(store.port)
        assert isinstance(server, S3Server)
        if bucket is not None:
            server.create_bucket(bucket)
        variables |= server.environment()
    if nats is not None and nats.port:
        variables["NATS_URL"] = SERVERS["nats"].attached(nats.port).url
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0 if variables else 1


def _one(command: str, name: str, options: argparse.Namespace) -> int:
    if command == "start":
        try:
            server = ensure(name, options.directory, owner=options.owner, durable=not options.fast)
        except Unavailable as error:
            stop(name, options.directory)  # forget it: it may have been installed by the next time
            print(f"{name}: unavailable: {error}", file=sys.stderr)
            return 1
        print(f"{name}: {server.url}")
        return 0
    if command == "stop":
        print(f"{name}: {'stopped' if stop(name, options.directory) else 'not running'}")
        return 0
    state = running(name, options.directory)
    if state is None or not state.port:
        print(f"{name}: not running")
    else:
        print(f"{name}: {SERVERS[name].attached(state.port).url} (pid {state.keeper})")
    return 0


def _default_directory() -> Path:
    return Path(tempfile.gettempdir()) / f"quacklake-services-{os.getuid()}"


if __name__ == "__main__":
    sys.exit(main())
