"""Jars of the servers for tests: Ivy, which comes with Spark, downloads them from Maven into the user's cache.

``python -m services install jars`` gets all of them, once; without it whoever needs one says that it is missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from xml.sax.saxutils import quoteattr

from services.process import Server, Unavailable
from services.spark import home

__all__ = ["SETS", "Jar", "JavaServer", "classpath", "install", "jars"]

_SECONDS = 900.0
_NAMESPACE = "http://ant.apache.org/ivy/maven"


@dataclass(frozen=True)
class Jar:
    """An artifact of Maven: ``alone``, or with all that it needs; ``kinds`` are its classifiers, "" for none.

    ``sha256`` is that of the only file of the artifact; without it Ivy compares the checksums of Maven alone.
    """

    organisation: str
    name: str
    version: str
    kinds: tuple[str, ...] = ("",)
    alone: bool = False
    sha256: str = ""

    def element(self) -> str:
        """Return the dependency as Ivy writes it."""
        conf = "default->master" if self.alone else "default->runtime,master"
        words = {"org": self.organisation, "name": self.name, "rev": self.version, "conf": conf}
        words["transitive"] = str(not self.alone).lower()
        artifacts = "".join(
            f'<artifact name={quoteattr(self.name)} type="jar" ext="jar"'
            + (f" m:classifier={quoteattr(kind)}/>" if kind else "/>")
            for kind in self.kinds
        )
        attributes = " ".join(f"{key}={quoteattr(value)}" for key, value in words.items())
        return f"<dependency {attributes}>{artifacts if self.kinds != ('',) else ''}</dependency>"


_ICEBERG, _JETTY, _KAFKA, _SPARK = "1.11.0", "12.1.5", "3.9.1", "org.apache.spark"
SETS: dict[str, tuple[Jar, ...]] = {
    "kafka": (Jar("org.apache.kafka", "kafka_2.13", _KAFKA),),
    # Spark's connector; the versions are those of its line that every mirror has
    "spark-kafka": (
        Jar(_SPARK, "spark-sql-kafka-0-10_2.13", "4.1.3", alone=True),
        Jar(_SPARK, "spark-token-provider-kafka-0-10_2.13", "4.0.0", alone=True),
        Jar("org.apache.kafka", "kafka-clients", _KAFKA, alone=True),
        Jar("org.apache.commons", "commons-pool2", "2.12.0", alone=True),
    ),
    "spark-iceberg": (Jar("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0", alone=True),),
    "iceberg-rest": (
        Jar("org.apache.iceberg", "iceberg-open-api", _ICEBERG, ("test-fixtures",), alone=True),
        Jar("org.apache.iceberg", "iceberg-api", _ICEBERG, ("", "tests"), alone=True),
        Jar("org.apache.iceberg", "iceberg-core", _ICEBERG, ("", "tests")),
        Jar("org.eclipse.jetty.ee10", "jetty-ee10-servlet", _JETTY),
        Jar("org.eclipse.jetty.compression", "jetty-compression-server", _JETTY),
        Jar("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    ),
    "flight-jdbc": (
        Jar(
            "org.apache.arrow",
            "flight-sql-jdbc-driver",
            "18.3.0",
            alone=True,
            sha256="3f418b46c880e263558c5de669bdbede2c5d4375527ced116fb29f795b03704c",
        ),
    ),
}
"""The sets of jars, by name."""


def jars(name: str) -> Path:
    """Return the folder with the jars of a set. Raise :class:`Unavailable` if they were not downloaded."""
    found = _folder(name)
    if not found.is_dir():
        raise Unavailable(f"the jars of {name} come from Maven: `make test-jars` gets them")
    return found


def install(name: str) -> Path:
    """Get the jars of a set unless they are there, and return their folder. Raise :class:`Unavailable`."""
    target = _folder(name)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the second process finds them
        if not target.is_dir():
            _resolve(name, target)
    return target


def classpath(*folders: Path) -> str:
    """Return folders of jars as Java takes them."""
    return os.pathsep.join(f"{folder}/*" for folder in folders)


def java() -> str:
    """Return the program. Raise :class:`Unavailable`."""
    own = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{own}/bin" if own else None)
    if found is None:
        raise Unavailable("no Java: it needs the openjdk-17-jre-headless package")
    return found


class JavaServer(Server):
    """A server in a JVM that starts quickly and is small."""

    options: ClassVar[tuple[str, ...]] = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

    def java(self, jars: str, main: str, *arguments: str | Path) -> Sequence[str | Path]:
        """Return the command that runs a class, or a file of source."""
        return [java(), *self.options, "-cp", jars, main, *arguments]


def _folder(name: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    known = hashlib.sha256("".join(jar.element() for jar in SETS[name]).encode()).hexdigest()[:8]
    return (Path(cache) if cache else Path.home() / ".cache") / "quacklake" / "jars" / f"{name}-{known}"


def _resolve(name: str, target: Path) -> None:
    ivy = next(iter(sorted((home() / "jars").glob("ivy-*.jar"))), None)
    if ivy is None:
        raise Unavailable("this Spark comes without Ivy")
    work = target.with_name(f"{target.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    wanted = work / "ivy.xml"
    elements = "".join(jar.element() for jar in SETS[name])
    wanted.write_text(
        f'<ivy-module version="2.0" xmlns:m="{_NAMESPACE}"><info organisation="quacklake" module={quoteattr(name)}/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{elements}</dependencies></ivy-module>'
    )
    pattern = f"{work}/[artifact]-[revision](-[classifier]).[ext]"
    command = [java(), "-jar", str(ivy), "-ivy", str(wanted), "-cache", str(target.parent / "ivy")]
    command += ["-types", "jar", "bundle", "-retrieve", pattern]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the jars of {name} could not be got from Maven in {_SECONDS:.0f} seconds") from None
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if "not found" in line or "FAILED" in line]
        why = lines[0] if lines else "it cannot be reached"
        raise Unavailable(f"the jars of {name} could not be got from Maven: {why}")
    wanted.unlink()
    for jar in SETS[name]:
        _check(jar, work)
    work.replace(target)


def _check(jar: Jar, folder: Path) -> None:
    """Raise :class:`Unavailable` if the file of a jar is not the one that was expected."""
    path = folder / f"{jar.name}-{jar.version}.jar"
    if jar.sha256 and hashlib.sha256(path.read_bytes()).hexdigest() != jar.sha256:
        raise Unavailable(f"{path.name} from Maven is not the expected file")
