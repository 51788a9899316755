"""The current snapshot of an Iceberg table, from its metadata file: columns, files and deletes of every kind.

``pyiceberg`` reads the metadata, through the lake's own store: the same keys and limits hold as for the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from quacklake.connectors.adoption.iceberg_deletes import DataFile, EqualityDeletes, PositionDeletes
from quacklake.connectors.adoption.places import Folder, plain, reading
from quacklake.errors import CorruptFileError, NotFoundError, UnsupportedFeatureError
from quacklake.extend.adopting import ForeignField, ForeignFile, ForeignTable
from quacklake.extend.stores import Store

_TYPES: Mapping[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "int32",
    LongType: "int64",
    FloatType: "float32",
    DoubleType: "float64",
    DateType: "date",
    TimeType: "time",
    TimestampType: "timestamp",
    TimestamptzType: "timestamptz",
    TimestampNanoType: "timestamp_ns",
    StringType: "varchar",
    UUIDType: "uuid",
    FixedType: "blob",
    BinaryType: "blob",
}
_METADATA = re.compile(r"v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_NO_SNAPSHOT = 0


def foreign_table(store: Store, place: str) -> ForeignTable:
    """Return the current snapshot of the Iceberg table that a metadata file, or the folder of a table, describes.

    Raise ``NotFoundError`` when there is none, ``CorruptFileError`` for metadata that cannot be read, and
    ``UnsupportedFeatureError`` for features and types that a lake lacks.
    """
    io = StoreIO(store)
    url = _metadata_file(Folder(store, place))
    with reading(f"the Iceberg table {url}"):
        try:
            metadata = FromInputFile.table_metadata(io.new_input(url))
        except ValidationError as error:
            raise CorruptFileError(f"{url} is not the metadata of an Iceberg table: {error}") from error
        fields = _fields(metadata)
        files = tuple(_SnapshotFiles(store, io, metadata).read())
    snapshot = metadata.current_snapshot()
    return ForeignTable(
        source=f"iceberg:{plain(place)}",
        location=plain(metadata.location),
        id=str(metadata.table_uuid),
        version=_NO_SNAPSHOT if snapshot is None else snapshot.snapshot_id,
        fields=fields,
        files=files,
        by_id=True,
    )


def _metadata_file(folder: Folder) -> str:
    """Return the metadata file that a place is, or the newest one in the folder that it is."""
    if folder.url.endswith((".json", ".json.gz")):
        return folder.url
    names = folder.files("metadata")
    found = sorted((int(match[1]), name) for name in names if (match := _METADATA.fullmatch(name)))
    if not found:
        raise NotFoundError(f"there is no Iceberg table at {folder.url}", hint="check the path")
    if "version-hint.text" in names:
        hint = folder.read(names["version-hint.text"]).decode().strip()
        hinted = [name for number, name in found if str(number) == hint]
        if len(hinted) == 1:
            return names[hinted[0]]
    newest = [name for number, name in found if number == found[-1][0]]
    if len(newest) > 1:
        raise UnsupportedFeatureError(
            f"several metadata files of {folder.url} are the newest: {', '.join(newest)}",
            hint="name the one that the catalog of the table has",
        )
    return names[newest[0]]


# -- reading through the store -----------------------------------------------------------------------------------------


class StoreIO(FileIO):
    """The store of a lake as ``pyiceberg`` knows stores; it only reads."""

    def __init__(self, store: Store) -> None:
        super().__init__({})
        self._store = store

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        return _Input(self._store, location)

    def new_output(self, location: str) -> OutputFile:
        """Raise: a foreign table is not written."""
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Raise: a foreign table is not written."""
        raise NotImplementedError


class _Input(InputFile):
    def __init__(self, store: Store, location: str) -> None:
        super().__init__(location)
        self._store = store

    @cached_property
    def _place(self) -> str:
        return self._store.resolve(plain(self.location), False)

    def __len__(self) -> int:
        return self._store.size(self._place)

    def exists(self) -> bool:
        return self._store.exists(self._place)

    def open(self, seekable: bool = True) -> InputStream:
        stream: InputStream = self._store.open_input(self._place)
        return stream


# -- columns -----------------------------------------------------------------------------------------------------------


def _fields(metadata: TableMetadata) -> tuple[ForeignField, ...]:
    mapping = metadata.name_mapping()
    names = {} if mapping is None else dict(_mapped_names(mapping.root))
    return tuple(_field(each, names) for each in metadata.schema().fields)


def _mapped_names(fields: list[MappedField]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for each in fields:
        if each.field_id is not None:
            yield each.field_id, tuple(each.names)
        yield from _mapped_names(each.fields)


def _field(given: NestedField, names: Mapping[int, tuple[str, ...]]) -> ForeignField:
    if given.initial_default is not None:
        raise UnsupportedFeatureError(f'the column "{given.name}" has a default for rows that are older than it')
    type_, children = _type(given.name, given.field_type, names)
    known = names.get(given.field_id, ())
    return ForeignField(given.name, type_, not given.required, given.field_id, known, children)


def _type(name: str, given: IcebergType, names: Mapping[int, tuple[str, ...]]) -> tuple[str, tuple[ForeignField, ...]]:
    match given:
        case DecimalType():
            return f"decimal({given.precision},{given.scale})", ()
        case StructType():
            return "struct", tuple(_field(each, names) for each in given.fields)
        case ListType():
            return "list", (_node("element", given.element_id, given.element_type, names),)
        case MapType():
            key = _node("key", given.key_id, given.key_type, names)
            return "map", (key, _node("value", given.value_id, given.value_type, names))
    if type(given) not in _TYPES:
        raise UnsupportedFeatureError(f'a lake has no type for the column "{name}", which is {given} in Iceberg')
    return _TYPES[type(given)], ()


def _node(name: str, id_: int, given: IcebergType, names: Mapping[int, tuple[str, ...]]) -> ForeignField:
    type_, children = _type(name, given, names)
    return ForeignField(name, type_, id=id_, children=children)


# -- files -------------------------------------------------------------------------------------------------------------


class _SnapshotFiles:
    """The data files of the current snapshot, each with the deletes that apply to it."""

    def __init__(self, store: Store, io: StoreIO, metadata: TableMetadata) -> None:
        self._io = io
        self._metadata = metadata
        self._positions = PositionDeletes(store)
        self._equality = EqualityDeletes(store)
        self._specs: dict[int, PartitionSpec] = metadata.specs()

    def read(self) -> Iterator[ForeignFile]:
        """Yield the files. Raise ``UnsupportedFeatureError`` for those that are not Parquet."""
        snapshot = self._metadata.current_snapshot()
        files: list[tuple[DataFile, Mapping[str, str | None]]] = []
        manifests, total = [] if snapshot is None else snapshot.manifests(self._io), 0
        if snapshot is not None and snapshot.summary is not None and not manifests:
            total = int(snapshot.summary.get("total-data-files", 0))
        if total:
            raise CorruptFileError(f"the manifest list names no manifest, though the snapshot has {total} files")
        for manifest in manifests:
            spec = self._specs[manifest.partition_spec_id]
            entries = manifest.fetch_manifest_entry(self._io)
            counts = (manifest.added_files_count, manifest.existing_files_count)
            if None not in counts and len(entries) != sum(filter(None, counts)):
                raise CorruptFileError(f"{manifest.manifest_path} does not have as many files as the snapshot says")
            for entry in entries:
                found = DataFile(
                    plain(entry.data_file.file_path),
                    entry.sequence_number or 0,
                    None if spec.is_unpartitioned() else f"{spec.spec_id}:{entry.data_file.partition!r}",
                )
                if entry.data_file.content == DataFileContent.DATA:
                    files.append((found, self._values(entry, spec)))
                    _check_format(found, entry.data_file.file_format, FileFormat.PARQUET)
                else:
                    self._add_deletes(found, entry)
        for file, values in sorted(files, key=lambda pair: pair[0].url):
            concerned = self._positions.concern(file) or self._equality.concern(file)
            yield ForeignFile(file.url, values, partial(self._read_deleted, file) if concerned else None)

    def _add_deletes(self, found: DataFile, entry: ManifestEntry) -> None:
        given = entry.data_file
        if given.content == DataFileContent.POSITION_DELETES:
            _check_format(found, given.file_format, FileFormat.PARQUET, FileFormat.PUFFIN)
            self._positions.add(found)
        else:
            _check_format(found, given.file_format, FileFormat.PARQUET)
            self._equality.add(found, tuple(given.equality_ids or ()))

    def _values(self, entry: ManifestEntry, spec: PartitionSpec) -> Mapping[str, str | None]:
        """Return the values of the columns that a partition gives, which files made by other systems may lack."""
        schema, values = self._metadata.schema(), {}
        for place, each in enumerate(spec.fields):
            value = entry.data_file.partition[place]
            name = schema.find_column_name(each.source_id)
            if isinstance(each.transform, IdentityTransform) and value is not None and name is not None:
                values[name] = str(value)
        return values

    def _read_deleted(self, file: DataFile, rows: int) -> pa.Array:
        found = [pa.array([], pa.int64()), *self._positions.of(file, rows), *self._equality.of(file)]
        positions = pc.unique(pa.concat_arrays(found))
        return positions.take(pc.sort_indices(positions))


def _check_format(file: DataFile, given: Any, *known: FileFormat) -> None:
    if given not in known:
        raise UnsupportedFeatureError(f"{file.url} is not a Parquet file", hint="append the rows instead")
