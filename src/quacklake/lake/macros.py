"""What a user says of a macro, as the catalog keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quacklake.errors import InputError
from quacklake.format.names import check_name, fold
from quacklake.format.objects import MacroParameter, MacroVariant

__all__ = ["Parameters", "make_variant"]

Default = bool | int | float | str | None
Parameters = Sequence[str] | Mapping[str, Default]
"""The names of parameters, or names with their defaults."""


def make_variant(parameters: Parameters, sql: str) -> MacroVariant:
    """A form of a macro, whose SQL is still to be checked. Raises ``InputError``."""
    if isinstance(parameters, str):
        raise InputError("parameters must be a list of names")
    given = dict(parameters) if isinstance(parameters, Mapping) else dict.fromkeys(parameters)
    if len({fold(name) for name in given}) != len(parameters):
        raise InputError("two parameters have the same name")
    checked = tuple(_parameter(name, default) for name, default in given.items())
    with_default = [parameter.default is not None for parameter in checked]
    if with_default != sorted(with_default):
        raise InputError("parameters without a default come before those with one")
    return MacroVariant(checked, sql)


def _parameter(name: str, default: Default) -> MacroParameter:
    check_name(name, "parameter")
    if default is None:
        return MacroParameter(name)
    # in the order of Python's types: a bool is an int too
    types = ((bool, "boolean"), (int, "int32" if _small(default) else "int64"), (float, "float64"), (str, "varchar"))
    for python, type_ in types:
        if isinstance(default, python):
            text = str(default).lower() if python is bool else str(default)
            return MacroParameter(name, default=text, default_type=type_)
    raise InputError(f'the default of the parameter "{name}" must be a number, text or a truth value')


def _small(value: Default) -> bool:
    return isinstance(value, int) and -(1 << 31) <= value < 1 << 31
