"""Map dataclasses to Arrow, so that rows go into a lake and come back as instances.

>>> @dataclasses.dataclass
... class Reading:
...     sensor: str
...     level: float | None = None
>>> rows = RowType(Reading)
>>> [batch.to_pydict() for batch in rows.to_batches([Reading("dock", 3.5), Reading("pier")])]
[{'sensor': ['dock', 'pier'], 'level': [3.5, None]}]
>>> list(rows.from_batches([pa.RecordBatch.from_pydict({"sensor": ["dock"], "level": [2]})]))
[Reading(sensor='dock', level=2.0)]
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import itertools
import types
import typing
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, Generic

import pyarrow as pa

from quacklake.core.format.intervals import from_durations, to_durations
from quacklake.core.format.names import fold
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.operations.python_values import python_values
from quacklake.core.operations.rows import Row
from quacklake.errors import ConstraintError, InputError, SchemaMismatchError
from quacklake.inputs.column_types import number_columns, to_column

__all__ = ["RowType"]

_BATCH_ROWS = 65_536
_MAX_DEPTH = 32
_EXAMPLES = 'write int, list[str], dict[str, float], another dataclass, or Annotated[Decimal, "DECIMAL(10, 2)"]'


class RowType(Generic[Row]):
    """The mapping between a dataclass and Arrow.

    A field has a type of Python (``int``, ``float``, ``str``, ``bytes``, ``bool``, ``Decimal``, ``UUID``, those of
    ``datetime``), is an enum or a ``Literal``, another dataclass, ``list[T]``, ``tuple[T, ...]``, ``set[T]`` or
    ``dict[K, V]``. ``T | None`` may be NULL, anything else not. ``Annotated[T, …]`` names the type of the column in SQL
    or Arrow: ``Annotated[Decimal, "DECIMAL(10, 2)"]``, ``Annotated[datetime, "TIMESTAMPTZ"]``. Raise ``InputError``
    with the name of a field that has another type.

    >>> @dataclasses.dataclass
    ... class Reading:
    ...     sensor: str
    ...     level: float | None = None
    >>> RowType(Reading).columns.names
    ('sensor', 'level')
    """

    def __init__(self, row: type[Row]) -> None:
        _check_dataclass(row)
        self.row = row
        self._struct = _Struct(row, row.__name__, 0)

    def __repr__(self) -> str:
        return f"<RowType {self.row.__name__}>"

    @property
    def columns(self) -> TableSchema:
        """The columns of a table of these rows; those that may not be NULL are NOT NULL."""
        return number_columns(
            [replace(child.column, name=name, nullable=child.nullable) for name, child in self._struct.children.items()]
        )

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return pa.schema(self._struct.fields)

    def to_batches(self, rows: Iterable[Row], batch_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield instances as Arrow batches.

        Raise ``SchemaMismatchError`` or ``ConstraintError`` with the name of a field whose value does not fit.
        """
        rest, schema = iter(rows), self.schema
        while batch := list(itertools.islice(rest, batch_rows)):
            arrays = self._struct.encode_fields(batch)
            batch.clear()  # so that these instances end before the next ones are made
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def from_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
        """Yield the rows of Arrow batches as instances, a batch at a time.

        Columns are matched by name; others are ignored. Raise ``SchemaMismatchError`` for a column that is missing,
        unless its field has a default, and for values that a field cannot hold.
        """
        for batch in batches:
            yield from self._struct.decode_fields(batch.schema.names, batch.columns, batch.num_rows)

    def match(self, names: Sequence[str]) -> list[str]:
        """Return the names of columns that have a field. Raise ``SchemaMismatchError`` for a missing column."""
        return [names[place] for place in self._struct.match(names).values()]


def map_rows(row: type[Row]) -> RowType[Row]:
    """Return the mapping of a dataclass, for results and lazy reads."""
    return RowType(row)


# -- types of fields ---------------------------------------------------------------------------------------------------


class _FieldType(ABC):
    """The type of a field or of values inside of one: converts lists of values to Arrow arrays and back."""

    column: Column
    nullable = False

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def arrow(self) -> pa.DataType:
        return self.column.arrow_type()

    def encode(self, values: list[Any]) -> pa.Array:
        """Return values as an Arrow array. Raise ``SchemaMismatchError`` or ``ConstraintError``."""
        found = set(map(type, values))
        has_nulls = types.NoneType in found
        found.discard(types.NoneType)
        if has_nulls and not self.nullable:
            raise self._null_error()
        for each in found:
            self._check_type(each)
        if not has_nulls:
            return self._encode(values)
        numbers = itertools.count()
        places = [None if value is None else next(numbers) for value in values]
        return self._encode([value for value in values if value is not None]).take(pa.array(places, pa.int64()))

    def decode(self, array: pa.Array) -> list[Any]:
        """Return an Arrow array as values. Raise ``SchemaMismatchError`` or ``ConstraintError``."""
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        if not array.null_count:
            return self._decode(array)
        if not self.nullable:
            raise self._null_error()
        values = iter(self._decode(array.drop_null()))
        return [next(values) if valid else None for valid in array.is_valid().to_pylist()]

    @abstractmethod
    def _check_type(self, found: type) -> None:
        """Raise ``SchemaMismatchError`` for values of a class that the field cannot hold."""

    @abstractmethod
    def _encode(self, values: list[Any]) -> pa.Array:
        """Return values without None as an array."""

    @abstractmethod
    def _decode(self, array: pa.Array) -> list[Any]:
        """Return an array without NULL as values."""

    def _null_error(self) -> ConstraintError:
        return ConstraintError(f'the field "{self.path}" cannot be None', hint='write "… | None" behind its type')

    def _type_error(self, found: type, wanted: str) -> SchemaMismatchError:
        return SchemaMismatchError(f'the field "{self.path}" holds {_name(found)}, not {wanted}')

    def _column_error(self, array: pa.Array, wanted: str) -> SchemaMismatchError:
        return SchemaMismatchError(f'the column of the field "{self.path}" is {array.type}, which is not {wanted}')


@dataclass(frozen=True)
class _Scalar:
    """A Python type without parts: the classes of its values, those to refuse, and the Arrow types that hold it."""

    accepts: tuple[type, ...]
    refuses: tuple[type, ...]
    holds: Callable[[pa.DataType], bool]


def _is_whole(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or (pa.types.is_decimal(arrow) and arrow.scale == 0))


def _is_number(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_floating(arrow) or pa.types.is_integer(arrow))


def _is_text(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow))


def _is_binary(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow) or pa.types.is_binary_view(arrow))


def _is_span(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_interval(arrow) or pa.types.is_duration(arrow))


_SCALARS: Mapping[type, _Scalar] = {
    bool: _Scalar((bool,), (), pa.types.is_boolean),
    int: _Scalar((int, Integral), (bool,), _is_whole),
    float: _Scalar((float, Real), (bool,), _is_number),
    str: _Scalar((str,), (), _is_text),
    bytes: _Scalar((bytes, bytearray), (), _is_binary),
    Decimal: _Scalar((Decimal,), (), pa.types.is_decimal),
    uuid.UUID: _Scalar((uuid.UUID,), (), _is_text),
    dt.date: _Scalar((dt.date,), (dt.datetime,), pa.types.is_date),
    dt.datetime: _Scalar((dt.datetime,), (), pa.types.is_timestamp),
    dt.time: _Scalar((dt.time,), (), pa.types.is_time),
    dt.timedelta: _Scalar((dt.timedelta,), (), _is_span),
}


class _ScalarType(_FieldType):
    """A value without parts."""

    def __init__(self, python: type, path: str, spelled: Any) -> None:
        super().__init__(path)
        self.python = python
        self._scalar = _SCALARS[python]
        self.column = to_column("value", python if spelled is None else spelled)
        if not self._scalar.holds(self.arrow):
            raise _field_error(path, f"{_name(python)} does not fit into a column of {self.column.type}")
        zone = spelled.tz if isinstance(spelled, pa.TimestampType) else None
        self._zone = zone or getattr(self.arrow, "tz", None)

    def _check_type(self, found: type) -> None:
        if not issubclass(found, self._scalar.accepts) or issubclass(found, self._scalar.refuses):
            raise self._type_error(found, _name(self.python))

    def _encode(self, values: list[Any]) -> pa.Array:
        if self.python in (dt.datetime, dt.time) and any(
            (v.tzinfo is None) is not (self._zone is None) for v in values
        ):
            raise self._zone_error("a time with a zone" if self._zone is None else "a time without a zone")
        try:
            if self.python is dt.timedelta:
                return from_durations(pa.array(values, pa.duration("us")))
            if self.python is uuid.UUID:
                return pa.array(list(map(str, values)), self.arrow)
            return pa.array(values, self.arrow)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError) as error:
            raise self._value_error(error) from None

    def _decode(self, array: pa.Array) -> list[Any]:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if self.python is uuid.UUID and pa.types.is_fixed_size_binary(array.type):
            return [uuid.UUID(bytes=value) for value in array.to_pylist()]
        if not self._scalar.holds(array.type):
            raise self._column_error(array, _name(self.python))
        try:
            return self._values(array)
        except (pa.ArrowInvalid, OverflowError, ValueError) as error:
            raise self._value_error(error) from None

    def _values(self, array: pa.Array) -> list[Any]:
        if self.python is dt.datetime:
            if (array.type.tz is None) is not (self._zone is None):
                raise self._zone_error(f"{array.type}")
            array = array.cast(pa.timestamp("us", self._zone))
        elif self.python is dt.timedelta and pa.types.is_interval(array.type):
            array = to_durations(array)
            if array is None:
                raise ValueError("an interval has months or is too long")
        elif self.python is float and pa.types.is_integer(array.type):
            array = array.cast(pa.float64())
        values = python_values(array)
        if self.python is int and pa.types.is_decimal(array.type):
            return list(map(int, values))
        if self.python is uuid.UUID:
            return list(map(uuid.UUID, values))
        for found in set(map(type, values)):  # python_values returns the text of a value that Python lacks
            self._check_type(found)
        return values

    def _value_error(self, error: Exception) -> SchemaMismatchError:
        first = str(error).partition("\n")[0]
        return SchemaMismatchError(f'a value of the field "{self.path}" is not {_name(self.python)}: {first}')

    def _zone_error(self, found: str) -> SchemaMismatchError:
        hint = 'write Annotated[datetime, "TIMESTAMPTZ"] for times with a zone, datetime for times without one'
        return SchemaMismatchError(f'the field "{self.path}" cannot hold {found}', hint=hint)


class _EnumType(_FieldType):
    """A member of an enum, stored as its value."""

    def __init__(self, members: type[enum.Enum], path: str, spelled: Any) -> None:
        super().__init__(path)
        self._enum = members
        self._inner = _ScalarType(_common_type([each.value for each in members], path), path, spelled)
        self.column = self._inner.column

    def _check_type(self, found: type) -> None:
        if found is not self._enum:
            raise self._type_error(found, _name(self._enum))

    def _encode(self, values: list[Any]) -> pa.Array:
        return self._inner.encode([value.value for value in values])

    def _decode(self, array: pa.Array) -> list[Any]:
        values = self._inner.decode(array)
        try:
            members = {value: self._enum(value) for value in set(values)}
        except ValueError as error:
            raise SchemaMismatchError(f'the field "{self.path}": {error}') from None
        return [members[value] for value in values]


class _LiteralType(_FieldType):
    """One of some values."""

    def __init__(self, choices: Sequence[Any], path: str, spelled: Any) -> None:
        super().__init__(path)
        self._choices = frozenset(choices)
        self._inner = _ScalarType(_common_type(choices, path), path, spelled)
        self.column = self._inner.column

    def _check_type(self, found: type) -> None:
        self._inner._check_type(found)

    def _encode(self, values: list[Any]) -> pa.Array:
        return self._inner.encode(self._check_choices(values))

    def _decode(self, array: pa.Array) -> list[Any]:
        return self._check_choices(self._inner.decode(array))

    def _check_choices(self, values: list[Any]) -> list[Any]:
        others = set(values) - self._choices
        if others:
            hint = f"it is one of {', '.join(sorted(map(repr, self._choices)))}"
            raise SchemaMismatchError(f'the field "{self.path}" cannot be {others.pop()!r}', hint=hint)
        return values


_CONTAINERS: tuple[type, ...] = (list, tuple, set, frozenset)


class _ListType(_FieldType):
    """A list, tuple or set of values."""

    def __init__(self, container: type, element: _FieldType, path: str) -> None:
        super().__init__(path)
        self._container, self._element = container, element
        self.column = Column(0, "", "list", children=(replace(element.column, name="element"),))

    def _check_type(self, found: type) -> None:
        if not issubclass(found, _CONTAINERS):
            raise self._type_error(found, _name(self._container))

    def _encode(self, values: list[Any]) -> pa.Array:
        elements = self._element.encode(list(itertools.chain.from_iterable(values)))
        return pa.ListArray.from_arrays(_offsets(values), elements, type=self.arrow)

    def _decode(self, array: pa.Array) -> list[Any]:
        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
            raise self._column_error(array, _name(self._container))
        elements = iter(self._element.decode(array.flatten()))
        lengths = array.value_lengths().to_pylist()
        return [self._container(itertools.islice(elements, length)) for length in lengths]


class _DictType(_FieldType):
    """A dictionary, stored as a map."""

    def __init__(self, key: _FieldType, value: _FieldType, path: str) -> None:
        super().__init__(path)
        self._key, self._value = key, value
        children = (replace(key.column, name="key"), replace(value.column, name="value"))
        self.column = Column(0, "", "map", children=children)

    def _check_type(self, found: type) -> None:
        if not issubclass(found, Mapping):
            raise self._type_error(found, "dict")

    def _encode(self, values: list[Any]) -> pa.Array:
        keys = self._key.encode(list(itertools.chain.from_iterable(values)))
        items = self._value.encode([item for value in values for item in value.values()])
        return pa.MapArray.from_arrays(_offsets(values), keys, items, self.arrow)

    def _decode(self, array: pa.Array) -> list[Any]:
        if not pa.types.is_map(array.type):
            raise self._column_error(array, "dict")
        offsets = array.offsets.to_pylist()
        first, length = offsets[0], offsets[-1] - offsets[0]
        keys = self._key.decode(array.keys.slice(first, length))
        items = self._value.decode(array.items.slice(first, length))
        entries = zip(keys, items, strict=True)
        return [dict(itertools.islice(entries, end - begin)) for begin, end in itertools.pairwise(offsets)]


class _Struct(_FieldType):
    """An instance of a dataclass; a row is one, too. Fields that its constructor does not take are left out."""

    def __init__(self, cls: type, path: str, depth: int) -> None:
        super().__init__(path)
        self._class = cls
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except (NameError, TypeError) as error:
            raise InputError(
                f"a field of {path} has a type that is not known: {error}",
                hint="define the classes of fields in the module of the dataclass, outside of functions",
            ) from None
        fields = [field for field in dataclasses.fields(cls) if field.init]
        if not fields:
            raise InputError(f"the dataclass {path} has no fields")
        self.children = {f.name: _to_type(hints[f.name], f"{path}.{f.name}", depth + 1) for f in fields}
        missing = dataclasses.MISSING
        self._required = {f.name for f in fields if f.default is missing and f.default_factory is missing}
        children = tuple(replace(child.column, name=name) for name, child in self.children.items())
        self.column = Column(0, "", "struct", children=children)

    @property
    def fields(self) -> list[pa.Field]:
        """The fields in Arrow."""
        return [pa.field(name, child.arrow, child.nullable) for name, child in self.children.items()]

    def _check_type(self, found: type) -> None:
        if found is not self._class:
            raise self._type_error(found, _name(self._class))

    def encode_fields(self, values: list[Any]) -> list[pa.Array]:
        """Return an array for each field of instances."""
        for found in set(map(type, values)):
            self._check_type(found)
        return [child.encode(list(map(attrgetter(name), values))) for name, child in self.children.items()]

    def decode_fields(self, names: Sequence[str], arrays: Sequence[pa.Array], count: int) -> list[Any]:
        """Return instances from the arrays of fields."""
        places = self.match(names)
        columns = [self.children[name].decode(arrays[place]) for name, place in places.items()]
        rows = zip(*columns, strict=True) if columns else itertools.repeat((), count)
        return [self._class(**dict(zip(places, row, strict=True))) for row in rows]

    def match(self, names: Sequence[str]) -> dict[str, int]:
        """Return the place of the column of each field; fields with a default may have none."""
        places = {fold(name): place for place, name in enumerate(names)}
        found = {name: places[fold(name)] for name in self.children if fold(name) in places}
        for name in self.children:
            if name in self._required and name not in found:
                raise SchemaMismatchError(
                    f'there is no column for the field "{self.path}.{name}"',
                    hint=f"the columns are {', '.join(names)}; a field with a default may have none",
                )
        return found

    def _encode(self, values: list[Any]) -> pa.Array:
        return pa.StructArray.from_arrays(self.encode_fields(values), fields=list(self.arrow))

    def _decode(self, array: pa.Array) -> list[Any]:
        if not pa.types.is_struct(array.type):
            raise self._column_error(array, _name(self._class))
        return self.decode_fields([field.name for field in array.type], array.flatten(), len(array))


# -- type hints --------------------------------------------------------------------------------------------------------


def _to_type(hint: Any, path: str, depth: int) -> _FieldType:
    """Return the type of a field for its type hint. Raise ``InputError`` that names the field."""
    if depth > _MAX_DEPTH:
        raise _field_error(path, "its type is nested too deeply, or holds itself")
    nullable, spelled = False, None
    while True:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            spelled = next((each for each in arguments[1:] if isinstance(each, str | pa.DataType)), spelled)
            hint = arguments[0]
        elif origin in (typing.Union, types.UnionType):
            others = [each for each in arguments if each is not types.NoneType]
            if len(others) != 1:
                raise _field_error(path, f"{hint} is not one type")
            nullable, hint = nullable or len(others) < len(arguments), others[0]
        elif origin is typing.Literal and None in arguments:
            nullable, hint = True, typing.Literal[tuple(each for each in arguments if each is not None)]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif origin is None and hasattr(hint, "__value__"):  # an alias of the statement `type`
            hint = hint.__value__
        else:
            break
    try:
        found = _parse(hint, path, spelled, depth)
    except InputError as error:
        if f'"{path}' in error.message:
            raise
        raise _field_error(path, error.message, error.hint) from None
    found.nullable = nullable
    return found


def _parse(hint: Any, path: str, spelled: Any, depth: int) -> _FieldType:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SCALARS:
        return _ScalarType(hint, path, spelled)
    if origin is typing.Literal:
        return _LiteralType(arguments, path, spelled)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _EnumType(hint, path, spelled)
    if spelled is not None:
        raise _field_error(path, "only a type without parts has a type in SQL", "write list[Annotated[int, …]]")
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _Struct(hint, path, depth)
    if origin is dict and len(arguments) == 2:
        key, value = (_to_type(part, f"{path}[]", depth + 1) for part in arguments)
        if key.nullable:
            raise _field_error(path, "a key cannot be None")
        return _DictType(key, value, path)
    elements = [each for each in arguments if each is not ...]
    if origin in _CONTAINERS and len(elements) == 1 and (origin is not tuple or len(arguments) == 2):
        return _ListType(origin, _to_type(elements[0], f"{path}[]", depth + 1), path)
    raise _field_error(path, f"{_name(hint)} is not a type of a field", _EXAMPLES)


def _check_dataclass(row: Any) -> None:
    if not isinstance(row, type) or not dataclasses.is_dataclass(row):
        raise InputError(f"{row!r} is not a dataclass", hint="decorate the class with @dataclasses.dataclass")


def _field_error(path: str, message: str, hint: str | None = None) -> InputError:
    return InputError(f'the field "{path}": {message}', hint=hint)


def _common_type(values: Sequence[Any], path: str) -> type:
    """Return the type of the values of an enum or literal."""
    found = {type(value) for value in values}
    if len(found) != 1 or not found <= set(_SCALARS):
        names = ", ".join(sorted(map(_name, found))) or "none"
        raise _field_error(path, f"its values are of one simple type, not of {names}")
    return found.pop()


def _offsets(values: Iterable[Any]) -> pa.Array:
    return pa.array([0, *itertools.accumulate(map(len, values))], pa.int32())


def _name(found: Any) -> str:
    return found.__name__ if isinstance(found, type) and not typing.get_args(found) else str(found)
