"""Supported Spark versions, jars by their coordinates, settings, and names of files. This module does not import Spark.

All coordinates of the project are here.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote as percent_encode

from quacklake.errors import MissingExtraError, UnsupportedFeatureError, UnsupportedVersionError

if TYPE_CHECKING:
    from quacklake.extend.stores import Store

Version = tuple[int, int]

_OLDEST: Version = (3, 5)
_NEWEST: Version = (4, 3)
STEADY: Version = (4, 0)
"""The first version with all features. Earlier versions can only read, and append, overwrite and create tables."""
_USUAL: Version = (4, 1)

DYNAMIC = "dynamic"
OVERWRITE_MODES = ("static", DYNAMIC)
"""With ``static``, partitions without new rows are removed too."""

#: The jars of the formats that the benchmarks compare with.
DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
#: The jars that write Hudi tables, by the version of Spark. The tests run the first one.
HUDI: Mapping[Version, str] = {
    (3, 5): "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
    (4, 0): "org.apache.hudi:hudi-spark4.0-bundle_2.13:1.2.0",
    (4, 1): "org.apache.hudi:hudi-spark4.1-bundle_2.13:1.2.0",
}

_HADOOP: Mapping[Version, str] = {
    (3, 5): "3.3.4",
    (4, 0): "3.4.1",
    (4, 1): "3.4.2",
    (4, 2): "3.5.0",
    (4, 3): "3.5.0",
}
"""The Hadoop version inside each Spark, for when the installed package does not tell."""
_HADOOP_AWS = "org.apache.hadoop:hadoop-aws:{0}"
_SDK_PARTS = ("s3", "s3-transfer-manager", "apache-client", "netty-nio-client", "sts")
_SDK_VERSIONS: Mapping[str, str] = {"3.4": "2.29.52", "3.5": "2.35.4"}
"""The SDK version for each Hadoop minor version, that of its newest release."""
_SDK_PART = "software.amazon.awssdk:{0}:{1}"
#: All of Amazon's services, of which the few above are enough.
_SDK_BUNDLE = "software.amazon.awssdk:bundle"

#: Settings of sessions that Quacklake creates. Reads and writes are correct without them.
_SESSION: Mapping[str, str] = {
    "spark.sql.timeType.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def parse_version(text: str) -> Version:
    """Parse the version of Spark. Raise ``UnsupportedVersionError`` for one that is not supported."""
    found = re.match(r"(\d+)\.(\d+)", text)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if not (version == _OLDEST or STEADY <= version <= _NEWEST):
        raise UnsupportedVersionError(
            f"Spark {text} does not work with Quacklake: it must be 3.5, or 4.0 to {_NEWEST[0]}.{_NEWEST[1]}",
            hint="install one that does: pip install 'quacklake[spark]'",
        )
    return version


def installed_version() -> Version | None:
    place = _package()
    if place is None:
        return None
    text = (place / "version.py").read_text()
    found = re.search(r"__version__[^=]*=\s*[\"']([^\"']+)", text)
    return parse_version(found[1] if found else text)


def require_pyspark() -> None:
    """Raise ``MissingExtraError`` when ``pyspark`` is not installed."""
    if installed_version() is None:
        raise MissingExtraError(
            "Spark needs the package pyspark", hint="install it with: pip install 'quacklake[spark]'"
        )


def has_sources() -> bool:
    """Return True when this Spark has Python data sources."""
    import pyspark

    return parse_version(pyspark.__version__) >= STEADY


def require_sources() -> None:
    """Raise ``UnsupportedFeatureError`` for a Spark without Python data sources."""
    import pyspark

    if not has_sources():
        raise UnsupportedFeatureError(
            f'Spark {pyspark.__version__} has no sources in Python, which format("quacklake") and read_stream need',
            hint="use Spark 4.1, or read and write with quacklake.spark(lake), which needs none",
        )


def find_java() -> str | None:
    """Return the path of the Java that Spark would run, or None."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin")) if home else None)


def spark_settings(store: Store, version: Version | None = None, *, secrets: bool = False) -> dict[str, str]:
    """Return the settings for a lake's files in a version of Spark, keys only with ``secrets``."""
    found = dict(_SESSION)
    if store.scheme == "s3":
        found |= _jars(version or installed_version() or _USUAL) | _s3a(store, secrets=secrets)
    return found


def _jars(version: Version) -> dict[str, str]:
    place = _package() if version == installed_version() else None
    jars = sorted(place.glob("jars/hadoop-client-api-*.jar")) if place is not None else []
    hadoop = jars[-1].stem.removeprefix("hadoop-client-api-") if jars else _HADOOP[version]
    own = _HADOOP_AWS.format(hadoop)
    sdk = _SDK_VERSIONS.get(hadoop.rpartition(".")[0])
    if sdk is None:  # an older or unknown version, whose SDK comes as one bundle
        return {"spark.jars.packages": own}
    parts = (_SDK_PART.format(name, sdk) for name in _SDK_PARTS)
    return {"spark.jars.packages": ",".join([own, *parts]), "spark.jars.excludes": _SDK_BUNDLE}


def _s3a(store: Store, *, secrets: bool) -> dict[str, str]:
    options = store.s3
    found: dict[str, str] = {}
    if options is None:
        return found
    if options.endpoint:
        found["endpoint"] = options.endpoint
        found["path.style.access"] = str(options.path_style).lower()
        found["connection.ssl.enabled"] = str(options.secure).lower()
    if options.region:
        found["endpoint.region"] = options.region
    if secrets and options.access_key and options.secret_key:
        found["access.key"] = options.access_key
        found["secret.key"] = options.secret_key
        if options.session_token:
            found["session.token"] = options.session_token
    # the keys of a store are only for its bucket
    bucket = f"bucket.{store.root.partition('://')[2].partition('/')[0]}." if options.scoped else ""
    return {f"spark.hadoop.fs.s3a.{bucket}{name}": value for name, value in found.items()}


def _package() -> Path | None:
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


_GLOB = re.compile(r"([\[\]{}*?\\])")
_LEGAL = "/_-!.~'()*,;:$&+=@"  # characters that Java keeps in the path of a URI
_SCHEMES = {"s3": "s3a", "gcs": "gs"}


def escape_pattern(path: str) -> str:
    """Return a path in which no sign stands for others when Spark lists it."""
    return _GLOB.sub(r"\\\1", path)


def spark_path(url: str) -> str:
    """Return the path for Spark to read an absolute local path or a URL of the store. It is never a pattern."""
    return escape_pattern(spark_uri(url))


def spark_uri(url: str) -> str:
    """Return the URI for Spark to write to an absolute local path or a URL of the store."""
    if "://" not in url:
        return f"file://{url}"
    scheme, rest = url.split("://", 1)
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}"


def file_path(url: str) -> str:
    """Return ``_metadata.file_path`` of a file. Local files have a single slash after the scheme."""
    path = spark_uri(url).replace("file:///", "file:/", 1)
    return "".join(char if ord(char) > 127 else percent_encode(char, safe=_LEGAL) for char in path)
