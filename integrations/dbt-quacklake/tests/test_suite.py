"""dbt's own tests of an adapter: every class of ``dbt.tests.adapter`` that is made to be inherited."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import dbt.tests.adapter as suite

from tests.exceptions import LEFT_OUT


def _bases() -> Iterator[tuple[str, type]]:
    """Yield the classes of the suite that have tests, by module and name."""
    root = Path(next(iter(suite.__path__)))
    for path in sorted(root.rglob("test_*.py")):
        module = ".".join((suite.__name__, *path.relative_to(root).with_suffix("").parts))
        for name, member in sorted(inspect.getmembers(importlib.import_module(module), inspect.isclass)):
            if member.__module__ == module and name.startswith("Base") and _has_tests(member):
                yield f"{module.removeprefix(suite.__name__ + '.')}.{name}", member


def _has_tests(member: type) -> bool:
    return any(name.startswith("test") and inspect.isfunction(found) for name, found in inspect.getmembers(member))


for _place, _base in _bases():
    if _place not in LEFT_OUT:
        _name = "Test_" + _place.replace(".", "_")
        globals()[_name] = type(_name, (_base,), {"__module__": __name__})
