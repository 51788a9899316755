"""Parts that other packages add to Quacklake by entry points.

A package that is installed beside Quacklake names its parts in its ``pyproject.toml``, in one of these groups:

``quacklake.commands``
    Commands of ``quacklake``: each an ``Entry`` of ``quacklake.cli.commands``.
``quacklake.pond_commands``
    Commands of ``pond``, in the same form.
``quacklake.pond_factories``
    Modules that register a factory or collector of ponds when they are imported: that of the entry's name.
``quacklake.services``
    Parts of the service: each a ``ServicePlugin`` of ``quacklake.service.plugins``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, overload

from quacklake.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["find_plugins", "load_plugin"]

T = TypeVar("T")


@cache
def find_plugins(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, by name.

    Of two with one name, the first that Python finds counts.
    """
    from importlib.metadata import entry_points  # takes 20 ms to load

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, entry)
    return tuple(found[name] for name in sorted(found))


@overload
def load_plugin(entry: EntryPoint) -> Any: ...


@overload
def load_plugin(entry: EntryPoint, expected: type[T]) -> T: ...


def load_plugin(entry: EntryPoint, expected: type = object) -> Any:
    """Return the object of an entry point, which must be of the expected class.

    Raise ``ConfigError`` that names its package when it cannot be loaded, or is something else.
    """
    try:
        found = entry.load()
        if not isinstance(found, expected):
            raise TypeError(f"it must be a {expected.__name__}, not {found!r:.80}")
        return found
    except Exception as error:
        package = "another package" if entry.dist is None else f"the package {entry.dist.name}"
        raise ConfigError(
            f"cannot load {entry.name!r} of {package}: {error}",
            hint="install a version of it that fits this Quacklake, or uninstall it",
        ) from error
