"""Work on the catalogs of a shared lake in a process that may be ended at any point; see ``test_deaths``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import quacklake
from quacklake.core import faults
from quacklake.errors import QuacklakeError

__all__ = ["WORK", "contend", "prepare", "rehearse", "work"]

Do = Callable[[quacklake.Tenants, str], object]

#: Each is given the URL of a plain lake: that which is adopted, or the place to export to.
WORK: dict[str, Do] = {
    "create": lambda tenants, plain: tenants.create("new", if_not_exists=True),
    "create_many": lambda tenants, plain: tenants.create_many(_MANY, if_not_exists=True),
    "rename": lambda tenants, plain: tenants.rename("victim", "new"),
    "drop": lambda tenants, plain: tenants.drop("victim"),
    "purge": lambda tenants, plain: tenants.purge(batch_rows=3),
    "fork": lambda tenants, plain: tenants.fork("acme", "new"),
    "adopt": lambda tenants, plain: tenants.adopt(plain, "new"),
    "export": lambda tenants, plain: tenants.export("acme", plain),
    "export_copy": lambda tenants, plain: tenants.export("acme", plain, copy_data=True),
}
_MANY = ["new", *(f"new{i}" for i in range(3))]


def prepare(tenants: quacklake.Tenants, name: str) -> None:
    """A catalog with files, deletes and inlined rows."""
    with tenants.open(name, create=True, data_inlining_row_limit=3, duckdb_threads=1) as lake:
        t = lake.create_table("t", {"a": list(range(20))})
        t.append([{"a": 100}])
        t.delete("a IN (3, 100)")


def work(what: str, url: str, plain: str, at: int | None = None, action: faults.Action = "kill") -> list[str]:
    """Do it, and end at the ``at``-th point; returns the points that were reached."""
    with quacklake.tenants(url, duckdb_threads=1) as tenants, faults.record() as points:
        if at is None:
            WORK[what](tenants, plain)
        else:
            with faults.arm(faults.Fault(at=at, action=action)):
                WORK[what](tenants, plain)
    return points


def contend(url: str, data: str, how: str) -> int | str:
    """Make the catalog ``acme``, and the shared lake if need be; returns its id, or the code of the error."""
    try:
        if how == "connect":
            with quacklake.connect(url, data, catalog="acme", create=True, duckdb_threads=1) as lake:
                row: Any = lake._context.catalog.tenant_row
                return int(row.id)
        with quacklake.tenants(url, data) as tenants:
            return tenants.create("acme", if_not_exists=how == "either").id
    except QuacklakeError as error:
        return error.code


def rehearse() -> None:
    """Let Python find out once what it only finds out once."""
    with TemporaryDirectory() as home, quacklake.tenants(f"sqlite:///{home}/l.db", Path(home) / "data") as tenants:
        prepare(tenants, "acme")
        tenants.fork("acme", "new")
        tenants.export("acme", f"sqlite:///{home}/p.db")
