"""Remotes: places that a pond is pushed to and pulled from. Each is a YAML file in ``/sys/remotes`` of the pond.

A remote that is pushed to by itself gets every change. A push that fails never fails the change: it is told, noted in
the log of commands, and the next change or ``pond push`` tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quacklake import telemetry
from quacklake.config import resolve
from quacklake.config.mappings import Options
from quacklake.connectors.options import resolved
from quacklake.errors import ConfigError, InputError, NotFoundError, QuacklakeError, nearest
from quacklake.extend.reporting import Progress, silent
from quacklake.pond.backup import BackupDone, BackupPlace, PondBackup, backup
from quacklake.pond.backup import pull as pull_from
from quacklake.pond.control import PUSH_COMPLETED, PUSH_FAILED
from quacklake.pond.fs import FS
from quacklake.pond.nodes import EntryType, Node
from quacklake.pond.paths import parts
from quacklake.pond.pond import Pond
from quacklake.pond.tree import Tree

FOLDER = "/sys/remotes"
_log = logging.getLogger("quacklake.pond")
_SECRETS = {"access_key_id": "s3_access_key", "secret_access_key": "s3_secret_key", "key": "backup_key"}
_TEXTS = {"region": "s3_region", "endpoint": "s3_endpoint"}
_MAX_VALUE = 64 << 10


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote: where it is, the settings of its store as they are written, and whether changes are pushed there."""

    name: str
    url: str
    settings: Mapping[str, str]
    allow_http: bool = False
    auto: bool = False

    @classmethod
    def parse(cls, name: str, given: Any) -> Remote:
        """Return the remote of a mapping. Raise ``ConfigError``, also for a secret that is written out."""
        options = Options(f"Remote {name}", given)
        url = options.text("url")
        if "://" in url and not url.startswith(("s3://", "file://", "${")):
            raise ConfigError(
                f"Remote {name}: {url} is not a place for backups", hint="a folder, or s3://bucket/folder"
            )
        found = {key: options.text(key, "") for key in (*_SECRETS, *_TEXTS)}
        for key in _SECRETS:
            if found[key] and not found[key].startswith(("${env:", "${file:")):
                raise ConfigError(
                    f"Remote {name}: {key} is a secret, which a pond does not keep",
                    hint=f"{key}: ${{env:{key.upper()}}}",
                )
        remote = cls(
            name,
            url,
            {key: value for key, value in found.items() if value},
            options.boolean("allow_http"),
            options.boolean("auto_push"),
        )
        options.finish()
        return remote

    def to_yaml(self) -> bytes:
        """Return the text of the file, with references to secrets."""
        import yaml

        facts = {"url": self.url, **self.settings, "allow_http": self.allow_http, "auto_push": self.auto}
        return str(yaml.safe_dump(facts, sort_keys=False)).encode()

    def place(self, config_file: str | None = None) -> BackupPlace:
        """Return the place, with its secrets looked up. Raise ``ConfigError``."""
        what = f"Remote {self.name}"
        names = {**_SECRETS, **_TEXTS}
        found: dict[str, Any] = {names[key]: resolved(value, f"{what}, {key}") for key, value in self.settings.items()}
        if self.allow_http:
            found["s3_secure"] = False
        return BackupPlace(resolved(self.url, what), resolve(found, config_file=config_file))


def put(fs: FS, remote: Remote) -> bool:
    """Keep a remote in the pond, and return whether it is new."""
    path = f"{FOLDER}/{remote.name}"
    fs.make_directory(FOLDER, parents=True)
    is_new = fs.find(path) is None
    fs.write_file(path, remote.to_yaml(), replace=True)
    return is_new


def remotes(fs: FS) -> list[Remote]:
    """Return the remotes of a pond by name."""
    import yaml

    found = []
    for each in fs.glob(f"{FOLDER}/*"):
        if each.node.size is None or each.node.size > _MAX_VALUE:
            raise InputError(f"{each.path} is not a remote")
        try:
            given = yaml.safe_load(fs.read(each.path))
        except (yaml.YAMLError, UnicodeDecodeError):
            raise ConfigError(f"{each.path} is not valid YAML", hint="apply the Remote again") from None
        found.append(Remote.parse(each.node.name, given))
    return found


def find(fs: FS, name: str | None) -> Remote:
    """Return a remote by name, or the only one. Raise ``NotFoundError``."""
    found = {each.name: each for each in remotes(fs)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None:
        hint = f"one of {', '.join(found)}" if found else "apply a resource of the kind Remote"
        raise NotFoundError("name a remote" if found else "the pond has no remote", hint=hint)
    if name not in found:
        raise NotFoundError(f"there is no remote {name!r}", hint=nearest(name, found) or "`pond list /sys/remotes/*`")
    return found[name]


def push(pond: Pond, remote: Remote, progress: Progress = silent, config_file: str | None = None) -> BackupDone:
    """Back up the pond to a remote, and note it in the log of commands."""
    last = pond.last_commit()
    try:
        done = backup(pond, remote.place(config_file), progress)
    except QuacklakeError as error:
        telemetry.count("pond.push.failed")
        facts = {"remote": remote.name, "error": error.message}
        pond.control.note_push(PUSH_FAILED, (last.txn_seq, last.txn_id), facts)
        raise
    facts = {"remote": remote.name, "backup": done.backup.id}
    pond.control.note_push(PUSH_COMPLETED, (done.backup.txn_seq, done.backup.txn_id), facts)
    return done


def pull(pond: Pond, remote: Remote, progress: Progress = silent, config_file: str | None = None) -> PondBackup | None:
    """Bring the pond to the state of a remote; None when it has that already."""
    return pull_from(pond, remote.place(config_file), progress)


def _may_have_remotes(tree: Tree) -> bool:
    node: Node | None = tree.root
    for name in parts(FOLDER):
        node = None if node is None else tree.child(node.node_id, name)
        if node is not None and node.file_type is not EntryType.DIRECTORY:
            return True  # a link, or computed
    return node is not None


def push_changes(pond: Pond, tree: Tree, config_file: str | None = None) -> list[str]:
    """Push to every remote that takes changes by itself, and return a sentence for each that failed. Never raises.

    ``tree`` is what a transaction has just made: without a remote in it, the pond is not read again.
    """
    if not _may_have_remotes(tree):
        return []
    try:
        wanted = [each for each in remotes(pond.fs()) if each.auto]
    except QuacklakeError as error:
        _log.warning("the remotes cannot be read: %s", error.message, extra=telemetry.error_facts(error))
        return [f"the remotes cannot be read: {error.message}"]
    failed = []
    for remote in wanted:
        try:
            push(pond, remote, config_file=config_file)
        except QuacklakeError as error:
            facts = telemetry.error_facts(error, remote=remote.name)
            _log.warning("could not push to %s: %s", remote.name, error.message, extra=facts)
            failed.append(
                f"could not push to {remote.name}: {error.message}; the next change or `pond push` tries again"
            )
    return failed
