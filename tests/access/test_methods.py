"""Every public method of a lake, a table, a past snapshot and a transaction, called by users who may not see all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from quacklake import Lake, Table
from quacklake.core.access import LakeAccess
from quacklake.core.maintenance.lake_maintenance import LakeMaintenance
from quacklake.core.materialized.views import MaterializedViews
from quacklake.core.operations.options import LakeHistory, LakeOptions, StreamPositions
from quacklake.core.operations.reference import TableRef
from quacklake.errors import NotPermittedError, QuacklakeError
from quacklake.lake import LakeAt, LakeTransaction, View
from quacklake.lake.principal import (
    OF_LAKES,
    OF_SNAPSHOTS,
    OF_TABLES,
    OF_TRANSACTIONS,
    PrincipalLake,
    PrincipalLakeAt,
    PrincipalTable,
    PrincipalTransaction,
)
from quacklake.pipelines.definitions import Definitions
from quacklake.spark.engine import SparkEngine
from tests.access.secrets import MARKS, USERS, shown
from tests.seeds import some

ROWS = pa.table({"id": [1], "region": ["EU"], "ssn": ["x"], "salary": [1], "note": ["n"]})
#: What only administrators may use. A new method is in neither list, and fails the test until somebody decides.
REFUSED: dict[type, str] = {
    Lake: """
        access adopt as_principal attach backup bisect catalog_bytes cleanup_old_files create_macro create_materialized_view
        create_schema create_view data_path delete_orphaned_files diff drop_macro drop_schema drop_table drop_view
        expire_snapshots export_to import_from limits macros maintain maintenance materialized_views migrate refresh register rename_table
        rename_view revert rollback signed tag undrop unregister url verify view
    """,
    LakeAt: "attach export_to macros register unregister view",
    LakeTransaction: """
        attach create_macro create_schema create_view drop_macro drop_schema drop_table drop_view macros mark register
        rename_table rename_view rollback scratch snapshot undrop unregister view
    """,
    Table: """
        add_column add_files alter_column column_comments comment drop_column drop_default drop_not_null files
        files_saved_by_merging flush_inlined_data flush_within history info
        manifest merge_adjacent_files optimize plan primary_key rename_column reset_partitioned_by reset_sorted_by
        restore rewrite_data_files set_column_comment set_comment set_default set_not_null set_partitioned_by
        set_sorted_by set_tags tags
    """,
}
ALLOWED = {Lake: OF_LAKES, LakeAt: OF_SNAPSHOTS, LakeTransaction: OF_TRANSACTIONS, Table: OF_TABLES}
OWN: dict[type, type] = {
    Lake: PrincipalLake,
    LakeAt: PrincipalLakeAt,
    LakeTransaction: PrincipalTransaction,
    Table: PrincipalTable,
}


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize("cls", REFUSED, ids=lambda cls: cls.__name__)
def test_every_method_is_allowed_or_refused(cls: type) -> None:
    refused = set(REFUSED[cls].split())
    assert public(cls) - ALLOWED[cls] - refused == set(), "classify new methods here and in lake/principal.py"
    assert not ALLOWED[cls] & refused
    assert ALLOWED[cls] <= public(OWN[cls])
    for name in public(cls) & refused:
        found = vars(OWN[cls])[name]
        assert isinstance(found, property)
        with pytest.raises(NotPermittedError, match="only administrators"):
            assert found.fget is not None
            found.fget(None)


def test_attributes_of_a_lake_are_refused_too(secrets: Lake) -> None:
    lake = secrets.as_principal("ann")
    for name in ("options", "streams", "history", "maintenance"):
        with pytest.raises((NotPermittedError, AttributeError)):
            getattr(lake, name)


@dataclass
class Person:
    id: int | None = None
    region: str | None = None
    ssn: str | None = None
    salary: int | None = None
    note: str | None = None


@dataclass
class Misread:
    note: Literal["x"]
    region: Literal["y"] = "y"


Calls = dict[str, Callable[[Table], Any]]
READS: Calls = {
    "append": lambda t: t.append(ROWS),
    "changes": lambda t: (t.changes(0).to_arrow(), t.changes(0).count(), t.changes(0).where("id > 3").to_arrow()),
    "columns": lambda t: t.columns,
    "count": lambda t: [t.count(), t.count("id > 3"), t.count("CAST(note AS INTEGER) = 3")],
    "delete": lambda t: t.delete("error(note)"),
    "deletions": lambda t: t.deletions(0).to_arrow(),
    "head": lambda t: t.head(1_000),
    "insertions": lambda t: t.insertions(0).where("error(note)").to_arrow(),
    "is_current": lambda t: t.is_current(),
    "merge": lambda t: t.merge(ROWS, on="id"),
    "merge_builder": lambda t: t.merge_builder(ROWS, "id").when_matched_update_all().execute(),
    "name": lambda t: t.name,
    "overwrite": lambda t: t.overwrite(ROWS, "error(note)"),
    "partitioned_by": lambda t: t.partitioned_by,
    "rows": lambda t: [
        told(lambda: list(t.rows(Person))),
        told(lambda: list(t.rows(Person, "error(note)"))),
        told(lambda: list(t.scan().rows(Misread))),
    ],
    "scan": lambda t: [
        t.scan().to_pylist(),
        t.scan(row_ids=True).to_arrow(),
        t.scan(where=pc.field("id") > 3).to_pylist(),
        t.scan().limit(3).to_pylist(),
        repr(t.scan()),
        t.scan()._repr_html_(),
    ],
    "scan_polars": lambda t: [
        t.scan_polars().collect().to_dicts(),
        t.scan_polars().filter(pl.col("id") > 3).head(100).collect().to_dicts(),
        t.scan_polars(where="error(note)").collect().to_dicts(),
        t.scan_polars().explain(),
    ],
    "schema": lambda t: t.schema,
    "show": lambda t: t.show(100),
    "sorted_by": lambda t: t.sorted_by,
    "to_arrow": lambda t: [t.to_arrow(), t.to_arrow(where="id > 3"), t.to_arrow(where="error(note)")],
    "to_arrow_dataset": lambda t: [
        t.to_arrow_dataset().to_table(),
        t.to_arrow_dataset().to_table(filter=pc.field("id") > 3),
        *(fragment.to_table() for fragment in t.to_arrow_dataset().get_fragments(pc.field("id") > 3)),
        repr(t.to_arrow_dataset()),
        t.to_arrow_dataset().count_rows(),
    ],
    "to_batches": lambda t: list(t.to_batches()),
    "to_duckdb": lambda t: [t.to_duckdb().fetchall(), t.to_duckdb().filter("id > 3").fetchall()],
    "to_pandas": lambda t: [t.to_pandas().to_string(), t.to_pandas(dtype_backend="pyarrow").to_string()],
    "to_polars": lambda t: t.to_polars().to_dicts(),
    "to_pylist": lambda t: t.to_pylist(),
    "update": lambda t: t.update({"note": "x"}, "error(note)"),
}


def told(call: Callable[[], Any]) -> str:
    try:
        found = call()
    except (QuacklakeError, duckdb.Error, pl.exceptions.PolarsError) as error:
        return shown(error)
    return " ".join(str(part.to_pydict() if isinstance(part, pa.Table) else part) for part in _parts(found))


def _parts(found: Any) -> list[Any]:
    return list(found) if isinstance(found, list | tuple) else [found]


def test_the_calls_cover_every_method_that_is_allowed() -> None:
    assert set(READS) == OF_TABLES


@pytest.mark.parametrize("user", USERS)
def test_no_method_shows_what_is_hidden(user: str, own_secrets: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake = own_secrets.as_principal(user)
    for name in ("people", "vault", "deep.well", "totals"):
        for where in (lake, lake.at(4)):
            for method, call in some(READS.items(), 8, "methods", user, name):
                text = told(lambda call=call, where=where, name=name: call(where.table(name)))  # type: ignore[misc]
                text += capsys.readouterr().out
                assert not any(mark in text for mark in MARKS), f"{name}.{method}: {text}"
        text = told(lambda name=name: lake.run(lambda tx: tx.table(name).to_arrow()))  # type: ignore[misc]
        assert not any(mark in text for mark in MARKS), f"{name} in a transaction: {text}"
    told(lambda: lake["vault"])
    texts = [lake.tables(), lake.views(), lake.schemas(), list(lake), lake._repr_html_(), repr(lake), lake.snapshots()]
    assert not any(mark in str(text) for mark in MARKS for text in texts)
    assert own_secrets.table("vault").count() == 31
    assert own_secrets.table("people").count("region <> 'EU'") == 21


def test_snapshots_tell_nothing_of_what_they_changed(secrets: Lake) -> None:
    for text in ("FROM ducklake_snapshots('lake')", "FROM lake.snapshots()"):
        found = secrets.as_principal("ann").sql(text).to_arrow().to_pylist()
        assert len(found) == secrets.current_snapshot() + 1
        told = {name for row in found for name, value in row.items() if value not in (None, [])}
        assert told == {"snapshot_id", "snapshot_time"}, text


@pytest.mark.parametrize("where", ["plan", "manifest"])
def test_a_scan_hands_out_no_plan(where: str, secrets: Lake) -> None:
    scan = secrets.as_principal("rea").table("everybody" if where == "x" else "people").scan()
    with pytest.raises(NotPermittedError):
        getattr(scan, where)()


def test_what_deals_with_files_metadata_or_all_rows_takes_no_lake_of_a_principal(secrets: Lake) -> None:
    lake = secrets.as_principal("wil")
    for make in (LakeMaintenance, LakeOptions, LakeHistory, StreamPositions, MaterializedViews, LakeAccess):
        with pytest.raises(NotPermittedError, match="only administrators"):
            make(lake.handle)
    with pytest.raises(NotPermittedError, match="only administrators"):
        Definitions(lake)
    with pytest.raises(NotPermittedError, match="only administrators"):
        SparkEngine.of(lake.handle, None)
    with pytest.raises(NotPermittedError):
        View(lake.handle, TableRef("main", "everybody")).to_arrow()


def test_rows_do_not_come_from_files(secrets: Lake) -> None:
    table = secrets.as_principal("wil").table("people")
    for data in ("/etc/passwd", ["a.csv"], b"x"):
        with pytest.raises(NotPermittedError, match="files"):
            table.append(data)
