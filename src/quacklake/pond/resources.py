"""Resources in YAML: what a pond should have. ``apply`` makes it so, and changes nothing when it is so already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quacklake.config.mappings import Options
from quacklake.connectors.options import resolved
from quacklake.errors import ConfigError, InputError, nearest
from quacklake.pond import remotes
from quacklake.pond.factories import registry
from quacklake.pond.fs import FS
from quacklake.pond.host_files import sha256_of
from quacklake.pond.inputs import ImportOptions, parse_host, rows_of
from quacklake.pond.local_times import local_rule_of
from quacklake.pond.nodes import SOURCE_SHA256, EntryType
from quacklake.pond.paths import parts
from quacklake.pond.schedules import parse_schedule
from quacklake.pond.series import Origin, append_series, write_table
from quacklake.pond.site.definition import with_files
from quacklake.pond.site.export import SITES, store_site

API_VERSION = "pond/v1"
CREATED, CHANGED, UNCHANGED = "created", "changed", "unchanged"
_SECRETS = ("password", "token", "secret", "access_key")
_FILES = (".yaml", ".yml")
_PLACES = ("folder", "active_pattern", "archived_pattern")
"""Options of collectors that are paths of this machine: relative ones begin at the folder of the YAML file."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One document: its kind, its name, its options, and the folder that its relative paths begin at."""

    kind: str
    name: str
    spec: Mapping[str, Any]
    folder: Path


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome for one resource."""

    kind: str
    name: str
    result: str


def load(paths: Sequence[Path]) -> list[Resource]:
    """Return the resources of YAML files, and of the YAML files in folders. Raise ``ConfigError``."""
    found = [resource for path in paths for file in _files(path) for resource in _documents(file)]
    seen: set[tuple[str, str]] = set()
    for each in found:
        if (each.kind, each.name) in seen:
            raise ConfigError(f"there are two resources {each.kind} {each.name!r}")
        seen.add((each.kind, each.name))
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.suffix in _FILES)
    if not found:
        raise ConfigError(f"the folder {path} has no YAML files")
    return found


def _documents(path: Path) -> Iterator[Resource]:
    import yaml

    try:
        documents = list(yaml.safe_load_all(path.read_text("utf-8")))
    except OSError as error:
        raise ConfigError(f"the file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the file {path} is not valid YAML: {' '.join(str(error).split())}") from None
    for document in documents:
        if document is None:
            continue
        options = Options(f"a resource of {path.name}", document)
        version = options.text("apiVersion", API_VERSION)
        if version != API_VERSION:
            raise ConfigError(f"{path.name}: apiVersion {version!r} is not known", hint=f"apiVersion: {API_VERSION}")
        kind, name, spec = options.text("kind"), options.text("name"), options.mapping("spec")
        options.take("desc")
        options.take("metadata")
        options.finish()
        _maker_of(kind)
        yield Resource(kind, name, spec, path.parent)


def apply(fs: FS, resources: Sequence[Resource], options: ImportOptions | None = None) -> list[Applied]:
    """Make the pond have every resource, in the order of the files. Raise before or without any change."""
    given = options or ImportOptions()
    return [Applied(each.kind, each.name, _maker_of(each.kind)(fs, each, given)) for each in resources]


def _maker_of(kind: str) -> Callable[[FS, Resource, ImportOptions], str]:
    """Return what makes the pond have a resource of a kind. Raise ``ConfigError`` for a kind that there is not."""
    if kind in KINDS:
        return KINDS[kind]
    failed = registry.load_all()
    collectors = {each.resource: each.name for each in registry.factories() if each.resource is not None}
    if kind in collectors:
        return _collector(collectors[kind])
    known = sorted({*KINDS, *collectors})
    broken = next((error.message for error in failed.values()), None)
    hint = nearest(kind, known) or broken or f"one of {', '.join(known)}, or a kind of a package to install"
    raise ConfigError(f"there is no kind {kind!r}", hint=hint)


def check_secrets(given: Any, what: str) -> None:
    """Refuse secrets that are written out: a pond keeps references to the environment only."""
    if isinstance(given, Mapping):
        for key, value in given.items():
            is_secret = any(word in str(key).lower() for word in _SECRETS)
            if is_secret and isinstance(value, str) and not value.startswith(("${env:", "${file:")):
                hint = f"{key}: ${{env:{str(key).upper()}}}"
                raise ConfigError(f"{what}: {key} is a secret, which a pond does not keep", hint=hint)
            check_secrets(value, what)
    elif isinstance(given, list):
        for each in given:
            check_secrets(each, what)


# -- kinds -------------------------------------------------------------------------------------------------------------


def _directory(fs: FS, resource: Resource, _: ImportOptions) -> str:
    options = Options(f"Directory {resource.name}", resource.spec)
    path = options.text("path", f"/{resource.name}")
    options.finish()
    found = fs.find(path)
    if found is not None and found.is_directory:
        return UNCHANGED
    fs.make_directory(path, parents=True)
    return CREATED


def _link(fs: FS, resource: Resource, _: ImportOptions) -> str:
    options = Options(f"Link {resource.name}", resource.spec)
    path, target = options.text("path"), options.text("target")
    options.finish()
    found = fs.find(path, follow=False)
    if found is not None and found.node.file_type is EntryType.SYMLINK:
        if found.node.attribute("target") == target:
            return UNCHANGED
        fs.remove(path)
    _make_parents(fs, path)
    fs.make_link(path, target)
    return CREATED if found is None else CHANGED


def _factory(fs: FS, resource: Resource, _: ImportOptions) -> str:
    options = Options(f"Factory {resource.name}", resource.spec)
    path, factory, config = (
        options.text("path", f"/{resource.name}"),
        options.text("factory"),
        options.mapping("config"),
    )
    schedule = options.text("schedule", "") or None
    options.finish()
    return _node(fs, resource, path, factory, config, schedule)


def _collector(factory: str) -> Callable[[FS, Resource, ImportOptions], str]:
    """Return the kind of a collector: its options, and the schedule that it runs on."""

    def apply_collector(fs: FS, resource: Resource, _: ImportOptions) -> str:
        config = dict(resource.spec)
        schedule = config.pop("schedule", None)
        for key in _PLACES:
            place = config.get(key)
            if isinstance(place, str) and not place.startswith("${"):
                config[key] = str((resource.folder / place).absolute())
        path = f"{COLLECTORS}/{resource.name}"
        return _node(fs, resource, path, factory, config, None if schedule is None else str(schedule))

    return apply_collector


def _node(fs: FS, resource: Resource, path: str, factory: str, config: Mapping[str, Any], schedule: str | None) -> str:
    check_secrets(config, f"{resource.kind} {resource.name}")
    if schedule is not None:
        parse_schedule(schedule)
    found = fs.find(path, follow=False)
    _make_parents(fs, path)
    made = fs.make_node(path, factory, config, schedule=schedule, replace=True)
    if found is None:
        return CREATED
    return UNCHANGED if made.node == found.node else CHANGED


def _series(fs: FS, resource: Resource, given: ImportOptions) -> str:
    return _rows(fs, resource, given, EntryType.SERIES)


def _table(fs: FS, resource: Resource, given: ImportOptions) -> str:
    return _rows(fs, resource, given, EntryType.TABLE)


def _rows(fs: FS, resource: Resource, given: ImportOptions, kind: EntryType) -> str:
    """Make a table or series of files. Files that a series has taken already, by their bytes, are passed over."""
    options = Options(f"{resource.kind} {resource.name}", resource.spec)
    path, files = options.text("path", f"/{resource.name}"), options.texts("files")
    column, zone = options.text("timestamp_column", "") or None, options.text("timezone", "") or given.timezone
    local = local_rule_of(options)
    options.finish()
    found = fs.find(path)
    taken = set() if found is None else {row.attribute(SOURCE_SHA256) for row in found.versions}
    sources = [each for name in files for each in _find(resource, name)]
    new = [each for each in sources if sha256_of(each) not in taken]
    if found is not None and not new:
        return UNCHANGED
    _make_parents(fs, path)
    if kind is EntryType.TABLE:
        if len(sources) != 1:
            raise ConfigError(f"Table {resource.name} takes one file, and has {len(sources)}")
        if found is not None:
            fs.remove(path)
    for source in new:
        with rows_of(parse_host(str(source))) as rows:
            origin = Origin(source.name, sha256_of(source))
            if kind is EntryType.TABLE:
                write_table(fs, path, rows, origin)
            else:
                append_series(fs, path, rows, ImportOptions(column, zone, local=local), origin)
    return CREATED if found is None else CHANGED


def _find(resource: Resource, name: str) -> list[Path]:
    text = resolved(name, f"{resource.kind} {resource.name}")
    if any(sign in text for sign in "*?["):
        base = Path("/") if text.startswith("/") else resource.folder
        found = sorted(base.glob(text.lstrip("/")))
    else:
        found = [resource.folder / text]
    if not found or not all(each.is_file() for each in found):
        raise InputError(f"{resource.kind} {resource.name}: there is no file {text}")
    return found


def _make_parents(fs: FS, path: str) -> None:
    above = parts(path)[:-1]
    if above:
        fs.make_directory("/" + "/".join(above), parents=True)


def _remote(fs: FS, resource: Resource, _: ImportOptions) -> str:
    wanted = remotes.Remote.parse(resource.name, resource.spec)
    found = fs.find(f"{remotes.FOLDER}/{resource.name}")
    if found is not None and fs.read(found.path) == wanted.to_yaml():
        return UNCHANGED
    return CREATED if remotes.put(fs, wanted) else CHANGED


def _site(fs: FS, resource: Resource, _: ImportOptions) -> str:
    """Keep the definition of a site, with the texts of its pages. ``pond export --site`` writes its files."""

    def read(name: str) -> str:
        (path,) = _find(resource, name)
        try:
            return path.read_text("utf-8")
        except UnicodeDecodeError:
            raise ConfigError(f"Site {resource.name}: {path.name} is not UTF-8 text") from None

    spec = dict(resource.spec)
    path = str(spec.pop("path", f"{SITES}/{resource.name}.yaml"))
    stored = store_site(fs, path, with_files(spec, read))
    return CREATED if stored is None else CHANGED if stored else UNCHANGED


COLLECTORS = "/collectors"
"""The directory of the collectors that YAML describes."""
KINDS: dict[str, Callable[[FS, Resource, ImportOptions], str]] = {
    "Directory": _directory,
    "Factory": _factory,
    "Inbox": _collector("inbox"),
    "Link": _link,
    "Listener": _collector("http-listener"),
    "Logfiles": _collector("logfile-ingest"),
    "Nats": _collector("nats"),
    "Remote": _remote,
    "Series": _series,
    "Site": _site,
    "Table": _table,
}
"""The kinds of resources of Quacklake, and what makes the pond have one. Collectors of packages add theirs."""
