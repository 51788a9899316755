"""Columns with their field ids: found by name, and carried to and from Arrow, DuckDB and catalog rows.

Columns of older files and rows are matched by id at every depth; DuckDB matches fields of structs by name, which is
wrong after a rename. A file that tells names only is read with the history of the table, in which a name may have had
several ids: the snapshot of the file decides, or nothing is guessed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import pyarrow as pa

from quacklake.core.format.names import check_name, fold, literal, quote
from quacklake.core.format.types import (
    NESTED,
    arrow_type,
    can_store,
    can_widen,
    duckdb_type,
    from_arrow_type,
    parse_type,
)
from quacklake.errors import CatalogError, InputError, InvalidNameError, nearest

FIELD_ID = b"PARQUET:field_id"
"""The Arrow field metadata that becomes a Parquet field id."""

_GEOARROW = {b"ARROW:extension:name": b"geoarrow.wkb", b"ARROW:extension:metadata": b"{}"}
_TEXT_IN_ARROW = ("interval", "timetz", "uint128", "variant")
_NAMED_COLUMNS = 20
T = TypeVar("T")
_NO_DEFAULT = "NULL"  # how the catalog spells "no default"


@dataclass(frozen=True, slots=True)
class Column:
    """One column, or one node inside a nested column; ``id`` is its Parquet field id for ever.

    ``initial_default`` fills files written before the column existed, ``default`` new rows; both are stored text.
    ``default_kind`` is ``literal`` or ``expression``.

    >>> Column(1, "tags", "list", children=(Column(2, "element", "varchar"),)).duckdb_type()
    'VARCHAR[]'
    """

    id: int
    name: str
    type: str
    nullable: bool = True
    initial_default: str | None = None
    default: str | None = None
    default_kind: str = "literal"
    default_dialect: str | None = "duckdb"
    children: tuple[Column, ...] = ()

    @property
    def nested(self) -> bool:
        return self.type in NESTED

    def walk(self) -> Iterator[Column]:
        """Yield this column and everything below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterator[Column]:
        """Yield the scalar columns at or below this one."""
        if not self.children:
            return iter((self,))
        return (column for column in self.walk() if not column.nested)

    @property
    def travels_as_text(self) -> bool:
        """True when Arrow has no type for the values, or one that loses a part of them."""
        if not self.children:
            return self.type in _TEXT_IN_ARROW
        return any(leaf.type in _TEXT_IN_ARROW for leaf in self.leaves())

    def widens_to(self, other: Column) -> bool:
        """Return True when the format lets a column change its type to that of another."""
        return can_widen(self.type, other.type)

    def can_store(self, other: Column) -> bool:
        """Return True when values of another column may be written to this one, checked if it is narrower."""
        return can_store(other.type, self.type)

    def duckdb_type(self) -> str:
        """Return the DuckDB SQL type, nested ones spelled out."""
        match self.type:
            case "list":
                return f"{self.children[0].duckdb_type()}[]"
            case "map":
                return f"MAP({self.children[0].duckdb_type()}, {self.children[1].duckdb_type()})"
            case "struct":
                return "STRUCT(" + ", ".join(f"{quote(c.name)} {c.duckdb_type()}" for c in self.children) + ")"
            case _:
                return duckdb_type(self.type)

    def arrow_type(self, *, field_ids: bool = False) -> pa.DataType:
        """Return the Arrow type as DuckDB exports it by default."""
        match self.type:
            case "list":
                return pa.list_(self.children[0].arrow_field("l", field_ids=field_ids))
            case "map":
                key, value = self.children
                return pa.map_(
                    key.arrow_field(field_ids=field_ids).with_nullable(False), value.arrow_field(field_ids=field_ids)
                )
            case "struct":
                return pa.struct([child.arrow_field(field_ids=field_ids) for child in self.children])
            case _:
                return arrow_type(self.type)

    def arrow_field(self, name: str | None = None, *, field_ids: bool = False) -> pa.Field:
        """Return the Arrow field, with the column's id as its Parquet field id when ``field_ids`` is set."""
        metadata: dict[bytes, bytes] = dict(_GEOARROW) if self.type == "geometry" else {}
        if field_ids:
            metadata[FIELD_ID] = str(self.id).encode()
        return pa.field(
            self.name if name is None else name, self.arrow_type(field_ids=field_ids), self.nullable, metadata or None
        )


def of_last_schema(function: Callable[[pa.Schema], T]) -> Callable[[pa.Schema], T]:
    """Let a function remember its answer about the last Arrow schema: the next batch is usually alike.

    To compare two schemas takes less than to look at each type, or at the hash of one.
    """
    last: tuple[pa.Schema, T] | None = None

    @functools.wraps(function)
    def ask(schema: pa.Schema) -> T:
        nonlocal last
        known = last
        if known is None or not known[0].equals(schema, True):
            known = last = (schema, function(schema))
        return known[1]

    return ask


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table at one snapshot, in order.

    >>> TableSchema((Column(1, "id", "int64"), Column(2, "name", "varchar"))).find("NAME").id
    2
    """

    columns: tuple[Column, ...]

    @cached_property
    def _hash(self) -> int:
        return hash(self.columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableSchema):
            return NotImplemented
        return self.columns is other.columns or self.columns == other.columns

    def __hash__(self) -> int:
        return self._hash  # a schema is part of many keys, and met with every change of its table

    def __reduce__(self) -> tuple[type[TableSchema], tuple[tuple[Column, ...]]]:
        return TableSchema, (self.columns,)  # in another process, the same texts have other hashes

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the names of the top-level columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The top-level columns in order, by their names without case."""
        return {fold(column.name): column for column in self.columns}

    @cached_property
    def _by_id(self) -> dict[int, Column]:
        return {column.id: column for column in self.walk()}

    @cached_property
    def leaf_types(self) -> Mapping[int, str]:
        """Return the types of the scalar columns at any depth, by their ids."""
        return {leaf.id: leaf.type for leaf in self.leaves()}

    @cached_property
    def max_id(self) -> int:
        """Return the largest column id at any depth, 0 without columns."""
        return max(self._by_id, default=0)

    def get(self, name: str) -> Column | None:
        """Return the top-level column of that name, ignoring case, or ``None``."""
        return self.by_name.get(fold(name))

    def find(self, name: str) -> Column:
        """Return the top-level column of that name, ignoring case. Raise :class:`InputError` if there is none."""
        column = self.get(name)
        if column is None:
            near = nearest(name, self.names) or nearest(fold(name), self.by_name)
            few = 0 < len(self.names) <= _NAMED_COLUMNS
            hint = near or (f"there are {', '.join(self.names)}" if few else None)
            raise InputError(f'there is no column "{name}"', hint=hint)
        return column

    def by_id(self, id: int) -> Column:
        """Return the column or nested node with that id. Raise :class:`InputError` when there is none."""
        column = self._by_id.get(id)
        if column is None:
            raise InputError(f"there is no column with the id {id}")
        return column

    def walk(self) -> Iterator[Column]:
        """Yield every column and nested node, depth first."""
        for column in self.columns:
            yield from column.walk()

    def leaves(self) -> Iterator[Column]:
        """Yield every scalar column at any depth: those that have statistics."""
        for column in self.columns:
            yield from column.leaves()

    def to_arrow(self, *, field_ids: bool = False) -> pa.Schema:
        """Return the Arrow schema as DuckDB exports it, with nullability; ``field_ids`` adds Parquet field ids."""
        return pa.schema([column.arrow_field(field_ids=field_ids) for column in self.columns])


def from_arrow(schema: pa.Schema, *, first_id: int = 1) -> TableSchema:
    """Return a table schema for an Arrow schema, ids given depth first from ``first_id``; nested nodes are nullable.

    Raise ``InvalidNameError`` for empty or duplicate names and ``InputError`` for types that the format lacks.
    """
    ids = itertools.count(first_id)
    columns = [_from_field(field.name, field, field.nullable, ids) for field in schema]
    _check_names(columns, "column")
    return TableSchema(tuple(columns))


def _from_field(name: str, field: pa.Field, nullable: bool, ids: Iterator[int]) -> Column:
    try:
        kind, fields = _shape(field)
    except InputError as error:
        raise InputError(f'the column "{name}": {error.message}', hint=error.hint) from None
    id = next(ids)
    children = [_from_field(child_name, child, True, ids) for child_name, child in fields]
    if kind == "struct":
        if not children:
            raise InputError(f'the column "{name}" is a struct without fields')
        _check_names(children, f'field of "{name}"')
    return Column(id, name, kind, nullable, children=tuple(children))


def _shape(field: pa.Field) -> tuple[str, list[tuple[str, pa.Field]]]:
    """Return the type text of an Arrow field and its named child fields."""
    arrow = field.type
    if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType):
        return _shape(field.with_type(arrow.value_type))
    if pa.types.is_map(arrow):
        return "map", [("key", arrow.key_field), ("value", arrow.item_field)]
    if pa.types.is_struct(arrow):
        return "struct", [(child.name, child) for child in arrow]
    if isinstance(
        arrow, pa.ListType | pa.LargeListType | pa.FixedSizeListType | pa.ListViewType | pa.LargeListViewType
    ):
        return "list", [("element", arrow.value_field)]
    if (field.metadata or {}).get(b"ARROW:extension:name") == b"geoarrow.wkb":
        return "geometry", []
    return from_arrow_type(arrow), []


def _check_names(columns: Sequence[Column], what: str) -> None:
    seen: set[str] = set()
    for column in columns:
        check_name(column.name, what)
        key = fold(column.name)
        if key in seen:
            raise InvalidNameError(
                f'duplicate {what} "{column.name}"', hint="names are compared without regard to case"
            )
        seen.add(key)


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """One row of ``ducklake_column``, without the table and the snapshots."""

    column_id: int
    parent_column: int | None
    column_order: int
    column_name: str
    column_type: str
    initial_default: str | None
    default_value: str | None
    nulls_allowed: bool
    default_value_type: str | None
    default_value_dialect: str | None


def flatten(schema: TableSchema) -> tuple[ColumnRow, ...]:
    """Return the catalog rows of a schema, parents before children; the order of a column is its id."""
    rows: list[ColumnRow] = []

    def add(column: Column, parent: int | None) -> None:
        value, kind = column.default, column.default_kind
        if value is None:
            value, kind = _NO_DEFAULT, "" if column.nested else "literal"
        elif value == _NO_DEFAULT and kind == "literal":
            # The text NULL would be read back as no default; as an expression it is itself.
            value, kind = f"'{_NO_DEFAULT}'", "expression"
        rows.append(ColumnRow(
            column.id, parent, column.id, column.name, column.type, column.initial_default, value, column.nullable,
            kind, column.default_dialect,
        ))  # fmt: skip
        for child in column.children:
            add(child, column.id)

    for column in schema.columns:
        add(column, None)
    return tuple(rows)


def unflatten(rows: Iterable[ColumnRow]) -> TableSchema:
    """Return the schema of catalog rows in any order. Raise :class:`CatalogError` for rows that fit no tree."""
    by_parent: dict[int | None, list[ColumnRow]] = {}
    for row in rows:
        by_parent.setdefault(row.parent_column, []).append(row)

    def build(parent: int | None) -> tuple[Column, ...]:
        children = sorted(by_parent.pop(parent, ()), key=lambda row: (row.column_order, row.column_id))
        return tuple(_from_row(row, build(row.column_id) if row.column_id in by_parent else ()) for row in children)

    columns = build(None)
    if by_parent:
        raise CatalogError("the catalog holds columns whose parent column does not exist")
    return TableSchema(columns)


_ARITY = {"list": 1, "map": 2}


def _from_row(row: ColumnRow, children: tuple[Column, ...]) -> Column:
    type_text = str(parse_type(row.column_type))
    if len(children) != _ARITY.get(type_text, len(children)) or bool(children) != (type_text in NESTED):
        raise CatalogError(f'the {type_text} column "{row.column_name}" has {len(children)} child columns')
    default = None if row.default_value == _NO_DEFAULT else row.default_value
    if type_text in NESTED:
        default = default or None
    return Column(
        row.column_id,
        row.column_name,
        type_text,
        # stock DuckLake writes false for nested nodes that it adds or changes, and never means it
        bool(row.nulls_allowed) or row.parent_column is not None,
        row.initial_default,
        default,
        (row.default_value_type or "literal") if default is not None else "literal",
        row.default_value_dialect,
        children,
    )


#: The columns of a table as they were, each from a snapshot on, in order; local changes are dated in the future.
Past = tuple[tuple[int, TableSchema], ...]


def same_shape(one: Column, two: Column) -> bool:
    """Return True when both have the same fields by id and name at every depth; own names and types do not count."""
    if one.nested != two.nested or len(one.children) != len(two.children):
        return False
    pairs = zip(one.children, two.children, strict=True)
    return all((a.id, a.name) == (b.id, b.name) and same_shape(a, b) for a, b in pairs)


def same_shapes(old: TableSchema, new: TableSchema) -> bool:
    """Return True when every nested column that both schemas have has the same shape in both."""
    known = {column.id: column for column in old.columns}
    return all(same_shape(known[column.id], column) for column in new.columns if column.nested and column.id in known)


def stored_alike(old: TableSchema, new: TableSchema) -> bool:
    """Return True when rows of one schema can be stored as rows of the other: the same columns by id, name and type."""
    one, two = ([(node.id, node.name, node.type) for node in schema.walk()] for schema in (old, new))
    return one == two


def initial_value(column: Column) -> str:
    """Return the SQL of what a column has in rows that are older than itself."""
    if column.initial_default is None:
        return f"NULL::{column.duckdb_type()}"
    return f"CAST({literal(column.initial_default)} AS {column.duckdb_type()})"


def reshaped(value: str, stored: Column, wanted: Column) -> str:
    """Return SQL that turns ``value`` from the type of ``stored`` into that of ``wanted``, which has the same id."""
    if not same_shape(stored, wanted):
        value = rebuilt(value, stored, wanted)
    elif stored.duckdb_type() == wanted.duckdb_type():
        return value
    return f"CAST({value} AS {wanted.duckdb_type()})"


def rebuilt(value: str, stored: Column, wanted: Column, depth: int = 0) -> str:
    """Return SQL that gives ``value`` the fields of ``wanted``, and makes variants of their bytes, at any depth."""
    if stored.type == "blob" and wanted.type == "variant":
        return f"variant_bytes_to_variant({value})"
    if same_shape(stored, wanted):
        pairs = zip(stored.walk(), wanted.walk(), strict=True)
        if not any(old.type == "blob" and new.type == "variant" for old, new in pairs):
            return value
    item = f"ql_{depth}"
    match wanted.type:
        case "list":
            inner = rebuilt(item, stored.children[0], wanted.children[0], depth + 1)
            return f"list_transform({value}, lambda {item}: {inner})"
        case "map":
            parts = zip(("key", "value"), stored.children, wanted.children, strict=True)
            fields = [f"{name} := {rebuilt(f'{item}.{name}', old, new, depth + 1)}" for name, old, new in parts]
            entries = f"list_transform(map_entries({value}), lambda {item}: struct_pack({', '.join(fields)}))"
            return f"map_from_entries({entries})"
        case _:
            known = {child.id: child for child in stored.children}
            fields = []
            for new in wanted.children:
                old = known.get(new.id)
                if old is None:
                    inner = initial_value(new)
                else:
                    inner = rebuilt(f"struct_extract({value}, {literal(old.name)})", old, new, depth)
                fields.append(f"{quote(new.name)} := {inner}")
            return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(fields)}) END"


def with_ids(names: Mapping[str, Column], wanted: Column, past: Past, begin: int | None) -> Column | None:
    """Return a column of the table as it is in a file, given the columns of the file by name, whose ids mean nothing.

    ``begin`` is the snapshot whose columns the file has, None for any. Scalars that the table has too get its types.
    None when the file has not got the column; a ``LookupError`` when the history tells no or several stories.
    """
    before = [schema for since, schema in past if begin is not None and since < begin]
    # the transaction of the file may have written before and after changing the columns
    then = [*before[-1:], *(schema for since, schema in past if since == begin)]
    ever = [schema for _, schema in past]
    others = {column.name for schema in then for column in schema.columns if column.id != wanted.id}
    called = {version.name for version in _versions(ever, wanted.id)}
    if not (called & names.keys()) - others:
        return None  # what has its name there, if anything, is another column
    for schemas in (then, ever):
        found = {
            _identify_column(names.get(version.name), version, wanted) for version in _versions(schemas, wanted.id)
        }
        fitting = [column for column in found if column is not None]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            break
    raise LookupError(wanted.name)


def _versions(schemas: Iterable[TableSchema], id_: int) -> list[Column]:
    return [column for schema in schemas for column in schema.columns if column.id == id_]


def _identify_column(stored: Column | None, version: Column, wanted: Column | None) -> Column | None:
    """Return the column of a file with the ids of a past column, or None if their names differ."""
    if stored is None or stored.nested != version.nested:
        return None
    if not version.nested:
        typed = Column(0, "", stored.type) if wanted is None or wanted.nested else wanted
        return replace(typed, id=version.id, name=stored.name)
    if stored.type != version.type:
        return None
    known = {} if wanted is None else {child.id: child for child in wanted.children}
    names = {child.name: child for child in version.children}
    children = []
    for place, child in enumerate(stored.children):
        # what is inside lists and maps has its name from its place
        one = names.get(child.name) if version.type == "struct" else version.children[place]
        found = None if one is None else _identify_column(child, one, known.get(one.id))
        if found is None:
            return None
        children.append(found)
    if len(children) != len(version.children):
        return None
    return Column(version.id, stored.name, stored.type, children=tuple(children))
