"""dbt's own tests of an adapter: every class of ``dbt.tests.adapter`` that is made to be inherited."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import dbt.tests.adapter as suite
import pytest

from tests.adjustments import ADJUSTED
from tests.exceptions import LEFT_OUT, reason


def _bases() -> Iterator[tuple[str, type]]:
    """Yield the classes of the suite that have tests, by module and name, but not those that it runs itself."""
    root = Path(next(iter(suite.__path__)))
    for path in sorted(root.rglob("*.py")):
        module = ".".join((suite.__name__, *path.relative_to(root).with_suffix("").parts))
        for name, member in sorted(inspect.getmembers(importlib.import_module(module), inspect.isclass)):
            if member.__module__ == module and not name.startswith("Test") and _has_tests(member):
                yield f"{module.removeprefix(suite.__name__ + '.')}.{name}", member


def _has_tests(member: type) -> bool:
    return any(name.startswith("test") and inspect.isfunction(found) for name, found in inspect.getmembers(member))


BASES = dict(_bases())

for _place, _base in BASES.items():
    _name = "Test_" + _place.replace(".", "_")
    _why = reason(_place)
    globals()[_name] = type(_name, (_base,), {"__module__": __name__, **ADJUSTED.get(_place, {})})
    if _why is not None:
        globals()[_name] = pytest.mark.skip(reason=_why)(globals()[_name])


def test_what_is_said_of_classes_is_said_of_ones_that_are_there() -> None:
    assert set(ADJUSTED) <= set(BASES)
    assert all(any(f"{place}.".startswith(f"{name}.") for place in BASES) for name in LEFT_OUT)
