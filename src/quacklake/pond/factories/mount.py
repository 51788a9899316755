"""``mount``: another pond below a path, read-only. These are its options and nodes; ``pond.mounts`` opens it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quacklake.config.mappings import Options
from quacklake.errors import ConfigError
from quacklake.pond.factories.registry import Factory, register
from quacklake.pond.nodes import EntryType
from quacklake.pond.paths import parts


@register
class Mount(Factory):
    """A pond in a folder or database (``pond``), or its newest backup (``backup``), from ``path`` of it on.

    ``key`` is the key of an encrypted backup, as a reference to the environment or a file.
    """

    name = "mount"
    description = "Another pond, or a backup of one, read-only"
    kind = EntryType.DIRECTORY

    def check(self, config: Mapping[str, Any]) -> None:
        options = Options(self.name, config)
        pond, backup, key = (options.text(name, "") for name in ("pond", "backup", "key"))
        if ".." in parts(options.text("path", "/")):
            raise ConfigError(f"{self.name}: path does not go up", hint="write it from the root: /sensors")
        options.finish()
        if key and not key.startswith(("${env:", "${file:")):
            raise ConfigError(
                f"{self.name}: key is a secret, which a pond does not keep", hint="key: ${env:BACKUP_KEY}"
            )
        if bool(pond) == bool(backup):
            raise ConfigError(
                f"{self.name} takes pond or backup", hint="pond: a folder or URL; backup: s3://bucket/folder"
            )


class Inside(Factory):
    """A node of a mounted pond. None is ever stored."""

    is_internal = True
    description = "A node of a mounted pond"

    def check(self, config: Mapping[str, Any]) -> None:
        raise ConfigError(f"{self.name} is not a factory for nodes of your own", hint="mount makes them")


@register
class MountTable(Inside):
    """A table of a mounted pond."""

    name = "mount-table"
    kind = EntryType.TABLE


@register
class MountSeries(Inside):
    """A series of a mounted pond."""

    name = "mount-series"
    kind = EntryType.SERIES


@register
class MountFile(Inside):
    """A file of a mounted pond."""

    name = "mount-file"
    kind = EntryType.DATA
