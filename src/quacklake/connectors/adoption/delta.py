"""The current version of a Delta table, from its log: columns, files and deletion vectors.

The log is read by the lake's own store, so that no other library is needed, and the same keys and limits hold as for
the files themselves.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from quacklake.connectors.adoption.places import Folder, plain, read, reading
from quacklake.errors import CorruptFileError, NotFoundError, UnsupportedFeatureError
from quacklake.extend.adopting import ForeignField, ForeignFile, ForeignTable, decode_vector
from quacklake.extend.stores import Store

_LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-f-]{36}))?\.(parquet|json)")
_ACTIONS = ("add", "metaData", "protocol", "sidecar")
_READ_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_TYPES: Mapping[str, str] = {
    "string": "varchar",
    "long": "int64",
    "integer": "int32",
    "short": "int16",
    "byte": "int8",
    "float": "float32",
    "double": "float64",
    "boolean": "boolean",
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_ID = "delta.columnMapping.id"
_NAME = "delta.columnMapping.physicalName"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

Action = Mapping[str, Any]


def foreign_table(store: Store, place: str) -> ForeignTable:
    """Return the newest version of the Delta table in a folder.

    Raise ``NotFoundError`` when there is none, ``CorruptFileError`` for a log with gaps, and
    ``UnsupportedFeatureError`` for features and types that a lake lacks.
    """
    folder = Folder(store, place)
    with reading(f"the log of the Delta table {folder.url}"):
        return _table(folder, _TableState(folder))


def _table(folder: Folder, log: _TableState) -> ForeignTable:
    metadata, mode = log.metadata, log.mapping_mode
    given = json.loads(metadata["schemaString"])["fields"]
    fields = tuple(_field(each, mode) for each in given)
    # the log has the values of partitions under the names in files, even where columns are found by id
    stored = {str(each["name"]): _stored_name(each, mode) for each in given}
    folders = {name: stored[name] for name in metadata.get("partitionColumns") or ()}
    files = tuple(_file(folder, add, folders) for _, add in sorted(log.files.items()))
    return ForeignTable(
        source=f"delta:{folder.url}",
        location=folder.url,
        id=str(metadata["id"]),
        version=log.version,
        fields=fields,
        files=files,
        folders=folders,
        by_id=mode == "id",
    )


# -- the log -----------------------------------------------------------------------------------------------------------


@dataclass
class _TableState:
    """The state of a table after the last commit of its log."""

    folder: Folder
    version: int = -1
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    files: dict[tuple[str, str], Action] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = self.folder.files(_LOG)
        commits = {int(match[1]): names[name] for name in names if (match := _COMMIT.fullmatch(name))}
        start, parts = _last_checkpoint(names)
        if not commits and start < 0:
            raise NotFoundError(f"there is no Delta table at {self.folder.url}", hint="check the path")
        for url in parts:
            self._apply(self._checkpoint(url))
        self.version = max([start, *commits])
        for version in range(start + 1, self.version + 1):
            if version not in commits:
                raise CorruptFileError(f"the log of the Delta table {self.folder.url} lacks version {version}")
            self._apply(_lines(self.folder.read(commits[version])))
        self._check()

    def _apply(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if (add := action.get("add")) is not None:
                self.files[_key(add)] = add
            elif (remove := action.get("remove")) is not None:
                self.files.pop(_key(remove), None)
            elif action.get("metaData") is not None:
                self.metadata = action["metaData"]
            elif action.get("protocol") is not None:
                self.protocol = action["protocol"]

    def _checkpoint(self, url: str) -> Iterator[Action]:
        """Yield the actions of a checkpoint, and those of the files that it names."""
        data = self.folder.read(url)
        for action in _lines(data) if url.endswith(".json") else _rows(data, url):
            if (sidecar := action.get("sidecar")) is not None:
                name = unquote(str(sidecar["path"]))
                part = name if "/" in name else f"{self.folder.url}/{_LOG}/_sidecars/{name}"
                yield from _rows(self.folder.read(part), part)
            else:
                yield action

    def _check(self) -> None:
        if not self.metadata.get("schemaString") or not self.protocol:
            raise CorruptFileError(f"the log of the Delta table {self.folder.url} has no metadata or no protocol")
        reader = int(self.protocol.get("minReaderVersion") or 1)
        unknown = set(self.protocol.get("readerFeatures") or ()) - _READ_FEATURES
        if reader > 3 or unknown:
            what = ", ".join(sorted(unknown)) or f"reader version {reader}"
            raise UnsupportedFeatureError(
                f"the Delta table {self.folder.url} needs {what}, which a lake cannot read",
                hint="append its rows with an engine that can",
            )

    @property
    def mapping_mode(self) -> str:
        """The way to find columns in files: ``none`` or ``name`` (by name), or ``id``."""
        return str(dict(self.metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none"))


def _last_checkpoint(names: Mapping[str, str]) -> tuple[int, list[str]]:
    """Return the version of the newest checkpoint that is whole, and its files; -1 without one."""
    found: dict[tuple[int, str, int], list[str]] = {}
    for name, url in sorted(names.items()):
        if match := _CHECKPOINT.fullmatch(name):
            found.setdefault((int(match[1]), match[4] or "", int(match[3] or 1)), []).append(url)
    whole = [key for key, urls in found.items() if len(urls) == key[2] or key[1]]
    if not whole:
        return -1, []
    newest = max(whole)
    # of several checkpoints of one version any will do; a JSON and a Parquet file of one id are the same
    return newest[0], found[newest][: newest[2]]


def _key(action: Action) -> tuple[str, str]:
    vector = action.get("deletionVector")
    if not vector:
        return str(action["path"]), ""
    return str(action["path"]), f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _lines(data: bytes) -> Iterator[Action]:
    try:
        for line in data.decode().splitlines():
            if line.strip():
                yield json.loads(line)
    except ValueError as error:
        raise CorruptFileError(f"a commit of a Delta table cannot be read: {error}") from None


def _rows(data: bytes, url: str) -> Iterator[Action]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        names = [name for name in _ACTIONS if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=names):
            for row in batch.to_pylist():
                yield {name: _to_action(value) for name, value in row.items() if value is not None}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(f"the checkpoint {url} of a Delta table cannot be read: {error}") from None


def _to_action(action: Mapping[str, Any]) -> Action:
    """Return an action with its maps, which Arrow gives as lists of pairs, as dictionaries."""
    maps = ("partitionValues", "configuration")
    return {name: dict(value) if name in maps and value is not None else value for name, value in action.items()}


# -- columns -----------------------------------------------------------------------------------------------------------


def _field(given: Action, mode: str) -> ForeignField:
    metadata = given.get("metadata") or {}
    name = str(given["name"])
    found = _type(name, given["type"], mode)
    return ForeignField(
        name,
        found.type,
        bool(given.get("nullable", True)),
        int(metadata[_ID]) if mode == "id" and _ID in metadata else None,
        () if mode == "id" else (_stored_name(given, mode),),
        found.children,
    )


def _stored_name(given: Action, mode: str) -> str:
    """Return the name that files have a column under."""
    name = str(given["name"])
    return name if mode == "none" else str((given.get("metadata") or {}).get(_NAME, name))


def _type(name: str, given: Any, mode: str) -> ForeignField:
    """Return a nameless node of a type. Raise ``UnsupportedFeatureError`` for one that a lake lacks."""
    if isinstance(given, str):
        decimal = _DECIMAL.fullmatch(given)
        type_ = f"decimal({decimal[1]},{decimal[2]})" if decimal else _TYPES.get(given)
        if type_ is not None:
            return ForeignField("", type_)
    elif given.get("type") == "struct":
        return ForeignField("", "struct", children=tuple(_field(each, mode) for each in given["fields"]))
    elif given.get("type") == "array":
        return ForeignField("", "list", children=(_name_field("element", _type(name, given["elementType"], mode)),))
    elif given.get("type") == "map":
        key, value = _type(name, given["keyType"], mode), _type(name, given["valueType"], mode)
        return ForeignField("", "map", children=(_name_field("key", key), _name_field("value", value)))
    raise UnsupportedFeatureError(f'a lake has no type for the column "{name}", which is {json.dumps(given)} in Delta')


def _name_field(name: str, node: ForeignField) -> ForeignField:
    return ForeignField(name, node.type, children=node.children)


# -- files -------------------------------------------------------------------------------------------------------------


def _file(folder: Folder, add: Action, folders: Mapping[str, str]) -> ForeignFile:
    values = add.get("partitionValues") or {}
    # an empty text is NULL
    known = {name: values.get(stored) or None for name, stored in folders.items()}
    vector = add.get("deletionVector")
    deleted = None if not vector else partial(_read_deleted, folder, dict(vector))
    return ForeignFile(_url(folder, str(add["path"])), known, deleted)


def _url(folder: Folder, path: str) -> str:
    """Return the place of a path of the log, which is encoded as in a URL."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path) or path.startswith("/"):
        return plain(path, encoded=True)
    return f"{folder.url}/{unquote(path)}"


def _read_deleted(folder: Folder, vector: Action, rows: int) -> pa.Array:
    """Return the positions of a deletion vector of a file with that many rows."""
    with reading(f"a deletion vector of the Delta table {folder.url}"):
        return _vector(folder, vector, rows)


def _vector(folder: Folder, vector: Action, rows: int) -> pa.Array:
    kind, where, size = vector["storageType"], str(vector["pathOrInlineDv"]), int(vector["sizeInBytes"])
    if kind == "i":
        data = _z85(where)[:size]
        blob = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    elif kind in ("u", "p"):
        url = plain(where, encoded=True) if kind == "p" else f"{folder.url}/{_vector_path(where)}"
        blob = _part(folder.store, url, int(vector.get("offset") or 0), size + 8)
    else:
        raise UnsupportedFeatureError(f"a deletion vector of the Delta table {folder.url} is stored as {kind!r}")
    positions = decode_vector(blob, rows=rows)
    if len(positions) != int(vector["cardinality"]):
        raise CorruptFileError(f"a deletion vector of {folder.url} does not have as many rows as the log says")
    return positions


def _part(store: Store, url: str, offset: int, size: int) -> bytes:
    data = read(store, url)
    if len(data) < offset + size:
        raise CorruptFileError(f"the deletion vectors in {url} end too early")
    return data[offset : offset + size]


def _vector_path(text: str) -> str:
    prefix, name = text[:-20], uuid.UUID(bytes=_z85(text[-20:]))
    return f"{prefix}/deletion_vector_{name}.bin".lstrip("/")


def _z85(text: str) -> bytes:
    """Return the bytes of a text in the form that Delta calls Base85."""
    data = bytearray()
    try:
        for start in range(0, len(text), 5):
            number = 0
            for character in text[start : start + 5]:
                number = number * 85 + _Z85.index(character)
            data += number.to_bytes(4)
    except (ValueError, OverflowError):
        raise CorruptFileError("a deletion vector in the log of a Delta table is not Base85") from None
    return bytes(data)
