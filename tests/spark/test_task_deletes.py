"""DELETE in tasks that read whole files: every kind of file, failures, and another commit in between."""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quacklake
from quacklake.core.engines.duckdb import FileWriter
from quacklake.core.scan import to_predicate
from quacklake.errors import InputError, StorageError
from quacklake.spark.changes import staged_changes
from quacklake.spark.changes.task_deletes import DeleteTask, shared_out
from quacklake.spark.read.slices import SLICE_BYTES
from quacklake.spark.runtime.failures import each_part
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite
from tests.duckdbs import needs_extensions

from .agreement import all_agree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_spark("4.0")


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are searched in tasks too."""
    monkeypatch.setenv("QUACKLAKE_SPARK_DELETE_ROWS", "0")


def numbers(count: int, start: int = 0) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "w": [f"w{id_}" for id_ in ids]})


def files(site: LakeSite) -> set[str]:
    return {name for _, _, names in os.walk(site.data_path) for name in names}


def left(site: LakeSite) -> list[int]:
    """The ids that stock DuckDB sees."""
    return [row[0] for row in site.stock().execute("SELECT id FROM t ORDER BY id").fetchall()]


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("limit", [0, 10])
def test_files_of_every_kind_lose_the_rows_that_match(
    limit: int, vectors: bool, make_site: MakeSite, session: SparkSession
) -> None:
    site = make_site("sqlite", limit)
    lake = site.lake()
    lake.create_table("t", numbers(100))
    if vectors:
        lake.options.set("write_deletion_vectors", True, table="t")
    for start in (100, 200, 300):
        lake.table("t").append(numbers(100, start))
    lake.table("t").append(numbers(8, 400))  # inlined if the limit allows it
    lake.table("t").delete("id BETWEEN 100 AND 150")  # a file with a delete file
    lake.table("t").delete("id IN (200, 210)")  # and one with deletes in the catalog
    lake.table("t").delete("id = 149 OR id = 151")
    wanted = [*range(100), *range(152, 200), *range(201, 210), *range(211, 408)]
    for where, gone in (
        ("id % 3 = 0", lambda id_: id_ % 3 == 0),
        ("id >= 300 AND id < 400", lambda id_: 300 <= id_ < 400),  # all that is left of a file
        ("id = 103 OR id = 401", lambda id_: id_ in (103, 401)),  # one of them is deleted already
        ("id = 110", lambda id_: False),  # so is this
        ("id < 0", lambda id_: False),
        ("w IS NULL", lambda id_: False),
    ):
        done = quacklake.spark(site.lake(), session).delete("t", where)
        assert done.rows_deleted == sum(map(gone, wanted))
        wanted = [id_ for id_ in wanted if not gone(id_)]
        assert left(site) == wanted
    all_agree(site, session, range(1, site.lake()._context.latest().id + 1))
    assert site.lake().verify(deep=True).findings == ()


@pytest.mark.parametrize(("most", "tasks"), [(49, 1), (50, 0)])
def test_a_setting_tells_how_many_rows_spark_itself_searches(
    most: int, tasks: int, make_site: MakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, calls, real = make_site("sqlite", 0), [], staged_changes.each_part
    site.lake().create_table("t", numbers(50))

    def counted(*given: Any) -> Any:
        calls.append(given)
        return real(*given)

    monkeypatch.setattr(staged_changes, "each_part", counted)
    with site.another_lake(spark_delete_rows=most) as lake:
        assert quacklake.spark(lake, session).delete("t", "id % 2 = 0").rows_deleted == 25
    assert (len(calls), left(site)) == (tasks, list(range(1, 50, 2)))


def test_a_filter_may_be_one_of_arrow(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0)
    site.lake().create_table("t", numbers(50))
    done = quacklake.spark(site.lake(), session).delete("t", pc.field("id") < 20)
    assert (done.rows_deleted, done.delete_files_added) == (20, 1)
    assert left(site) == list(range(20, 50))


def test_files_of_an_encrypted_lake_get_delete_files_with_keys(make_site: MakeSite, session: SparkSession) -> None:
    needs_extensions()
    site = make_site("sqlite", 0, encrypted=True)
    lake = site.lake()
    lake.create_table("t", numbers(60))
    lake.table("t").delete("id < 5")
    lake.table("t").append(numbers(40, 60))
    done = quacklake.spark(lake, session).delete("t", "id % 4 = 0")
    assert (done.rows_deleted, done.delete_files_added) == (23, 2)
    deletes = lake.table("t").plan().files.column("delete_encryption_key").to_pylist()
    assert len({*deletes, None}) == 3
    assert left(site) == [id_ for id_ in range(5, 100) if id_ % 4]


def test_a_filter_that_fails_for_deleted_rows_does_not_fail(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    texts = pa.table({"id": pa.array(range(40), pa.int64()), "w": ["x" if i == 7 else str(i) for i in range(40)]})
    lake.create_table("t", texts)
    spark, known = quacklake.spark(site.lake(), session), files(site)
    with pytest.raises(InputError, match="x"):
        spark.delete("t", "CAST(w AS INTEGER) > 30")
    assert files(site) == known
    lake.table("t").delete("id = 7")
    assert spark.delete("t", "CAST(w AS INTEGER) > 30").rows_deleted == 9
    assert left(site) == [i for i in range(31) if i != 7]


def test_another_commit_in_between_is_taken_into_account(
    make_site: MakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    lake.create_table("t", numbers(100))
    works: list[Callable[[], object]] = [
        lambda: lake.table("t").delete("id < 5"),  # the same file
        lambda: lake.table("t").append(numbers(1, 500)),  # a row that matches
        lambda: lake.table("t").append(numbers(1, 1001)),  # and one that does not
    ]
    find = staged_changes.Changes.delete_in_tasks

    def overtaken(self: staged_changes.Changes, *given: Any) -> Any:
        done = find(self, *given)
        if works:
            works.pop(0)()
        return done

    monkeypatch.setattr(staged_changes.Changes, "delete_in_tasks", overtaken)
    done = quacklake.spark(lake, session).delete("t", "id % 2 = 0")
    assert done.rows_deleted == 48
    assert left(site) == [*range(5, 100, 2), 1001]
    assert site.lake().verify(deep=True).ok
    assert site.lake().delete_orphaned_files(cleanup_all=True, dry_run=True).paths == ()


def test_executors_without_the_package_leave_the_work_to_spark(
    make_site: MakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert each_part(session, [Absent()]) is None
    site = make_site("sqlite", 0)
    site.lake().create_table("t", numbers(50))
    monkeypatch.setattr(staged_changes, "each_part", lambda *_: None)
    assert quacklake.spark(site.lake(), session).delete("t", "id % 2 = 0").rows_deleted == 25
    assert left(site) == list(range(1, 50, 2))


class Absent:
    """Work of a module that nobody has."""

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return importlib.import_module, ("quacklake_absent",)

    def __call__(self) -> int:
        return 1


def test_a_lost_file_is_an_error_of_storage_and_changes_nothing(make_site: MakeSite, session: SparkSession) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    lake.create_table("t", numbers(50))
    lake.table("t").append(numbers(50, 50))
    (*_, path) = lake.table("t").plan().files.column("path").to_pylist()
    Path(site.data_path, path).unlink()
    version, known = lake._context.latest().id, files(site)
    with pytest.raises(StorageError):
        quacklake.spark(lake, session).delete("t", "id % 2 = 0")
    assert lake._context.latest().id == version
    lake.delete_orphaned_files(cleanup_all=True)  # of another task
    assert files(site) == known


# -- tasks by themselves -----------------------------------------------------------------------------------------------


def task_of(lake: quacklake.Lake, where: str, limit: int = 0) -> DeleteTask:
    view = lake.handle.view()
    table = view.find_table("main", "t")
    plan, context = view.plan(table, to_predicate(where, table.schema)), lake._context
    return DeleteTask(context.store, table, plan, where, {}, view.base.id, context.writes_vectors(table), limit, False)


def test_a_task_that_runs_twice_writes_other_files(make_site: MakeSite) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    lake.create_table("t", numbers(50))
    lake.table("t").append(numbers(50, 50))
    task = pickle.loads(pickle.dumps(task_of(lake, "id % 2 = 0")))
    first, second = task(), task()
    assert [(each.file_id, each.count) for each in first] == [(each.file_id, each.count) for each in second]
    assert not {each.file.path for each in first} & {each.file.path for each in second}
    assert len(first) == 2


def test_a_task_that_fails_removes_what_it_wrote(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    lake.create_table("t", numbers(50))
    lake.table("t").append(numbers(50, 50))
    known, write, turns = files(site), FileWriter.write_dated, iter([True, False])

    def failing(self: FileWriter, *given: Any, **options: Any) -> Any:
        done = write(self, *given, **options)
        if next(turns):
            return done
        raise StorageError("the disk is full")

    monkeypatch.setattr(FileWriter, "write_dated", failing)
    with pytest.raises(StorageError, match="full"):
        task_of(lake, "id % 2 = 0")()
    assert files(site) == known


def test_a_task_returns_few_deletes_and_names_whole_files(make_site: MakeSite) -> None:
    site = make_site("sqlite", 0)
    lake = site.lake()
    lake.create_table("t", numbers(50))
    lake.table("t").append(numbers(3, 50))
    known = files(site)
    found = task_of(lake, "id >= 48", limit=2)()
    assert isinstance(found, list)
    assert [each.count for each in found] == [2, 3]
    assert [each.positions is None for each in found] == [False, True]
    assert found[0].positions is not None
    assert found[0].positions.to_pylist() == [48, 49]
    assert files(site) == known
    none = replace(task_of(lake, "id < 0"), plan=lake.handle.view().plan(task_of(lake, "true").table))()
    assert none == []


@given(st.lists(st.integers(0, 1 << 40), max_size=60), st.integers(1, 8))
def test_files_are_shared_out_evenly(sizes: list[int], tasks: int) -> None:
    files = list(enumerate(sizes))
    parts = shared_out(files, tasks)
    assert sorted(id_ for part in parts for id_ in part) == list(range(len(sizes)))
    assert all(parts)
    assert len(parts) >= min(tasks, len(sizes))
    totals = [sum(sizes[id_] for id_ in part) for part in parts]
    if sizes and max(sizes) <= SLICE_BYTES:
        assert max(totals) <= 2 * SLICE_BYTES
    # no part is emptier than the others by more than one file
    assert not sizes or max(totals) - min(totals) <= max(sizes)
