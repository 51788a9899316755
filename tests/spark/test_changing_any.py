"""Random statements on Spark, between those of other clients, compared with a model."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import quacklake
from quacklake import expr
from quacklake.spark.changes import staged_changes
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite
from tests.seeds import LONG, SEED

from .agreement import Rows, all_agree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_spark("4.0")

Values = tuple[int, str | None]


@dataclass
class Model:
    """The expected rows of a table, now and at every snapshot: the key, the number and the text of each row id."""

    site: LakeSite
    session: SparkSession
    chance: random.Random
    patch: pytest.MonkeyPatch
    rows: dict[int, Values] = field(default_factory=dict)
    next_row: int = 0
    history: dict[int, dict[int, tuple[int, int, str | None]]] = field(default_factory=dict)
    keys: dict[int, int] = field(default_factory=dict)

    def spark(self) -> quacklake.SparkLake:
        context = self.site.lake()._context
        context.config = replace(context.config, spark_delete_rows=self.chance.choice([1000, 0, 0]))
        self.patch.setattr(staged_changes, "_MAX_ROWS", self.chance.choice([1000, 1000, 0]))
        self.patch.setattr(staged_changes, "_MAX_PLACES", self.chance.choice([1000, 3]))
        self.patch.setattr(staged_changes, "_FILES_HERE", self.chance.choice([32, 1]))
        return quacklake.spark(self.site.lake(), self.session)

    def some_key(self) -> int:
        return self.chance.randrange(0, 60)

    def insert(self, rows: dict[int, Values]) -> None:
        self.rows |= rows

    # -- statements ----------------------------------------------------------------------------------------------------

    def append(self) -> None:
        first = max(self.rows, default=0) + 1
        new = {first + i: (self.chance.randrange(5), f"a{first + i}") for i in range(self.chance.choice([2, 20]))}
        lake = self.site.lake()
        columns = {"id": list(new), "n": [row[0] for row in new.values()], "w": [row[1] for row in new.values()]}
        lake.table("t").append(pa.table(columns, schema=lake.table("t").schema))
        self.insert(new)

    def local_delete(self) -> None:
        low = self.some_key()
        self.site.lake().table("t").delete(f"id BETWEEN {low} AND {low + 4}")
        self.rows = {id_: row for id_, row in self.rows.items() if not low <= id_ <= low + 4}

    def delete(self) -> None:
        low, rest = self.some_key(), self.chance.randrange(3)
        found = self.spark().delete("t", f"id >= {low} AND id < {low + 30} AND n % 3 = {rest}")
        gone = [id_ for id_, row in self.rows.items() if low <= id_ < low + 30 and row[0] % 3 == rest]
        assert found.rows_deleted == len(gone)
        for id_ in gone:
            del self.rows[id_]

    def update(self) -> None:
        low, span = self.some_key(), self.chance.choice([3, 60])
        found = self.spark().update("t", {"n": expr("n + id"), "w": None}, f"id >= {low} AND id < {low + span}")
        changed = [id_ for id_ in self.rows if low <= id_ < low + span]
        assert found.rows_updated == len(changed)
        self.rows |= {id_: (self.rows[id_][0] + id_, None) for id_ in changed}

    def merge(self) -> None:
        low = self.some_key()
        source = {id_: (id_ % 7, f"m{id_}") for id_ in range(low, low + self.chance.choice([5, 40]))}
        frame = self.session.createDataFrame(
            [(id_, *row) for id_, row in source.items()], "id BIGINT, n BIGINT, w STRING"
        )
        merge = self.spark().merge("t", frame, on="id").when_matched_delete("source.n = 3").when_matched_update_all()
        merge = merge.when_not_matched_insert_all("source.n <> 4")
        alone = self.chance.random() < 0.4
        if alone:
            merge = merge.when_not_matched_by_source_delete("target.n = 2")
        done = merge.execute()
        matched = [id_ for id_ in source if id_ in self.rows]
        lonely = [id_ for id_, row in self.rows.items() if id_ not in source and row[0] == 2 and alone]
        fresh = {id_: row for id_, row in source.items() if id_ not in self.rows and row[0] != 4}
        deleted = [id_ for id_ in matched if source[id_][0] == 3]
        assert (done.rows_inserted, done.rows_updated) == (len(fresh), len(matched) - len(deleted))
        assert done.rows_deleted == len(deleted) + len(lonely)
        self.rows = {id_: source[id_] if id_ in matched else row for id_, row in self.rows.items()}
        self.rows = {id_: row for id_, row in self.rows.items() if id_ not in {*deleted, *lonely}} | fresh

    def compact(self) -> None:
        spark = self.spark()
        self.chance.choice([spark.merge_adjacent_files, spark.flush_inlined_data, spark.optimize])("t")

    # -- the truth -----------------------------------------------------------------------------------------------------

    def check(self, before: Rows) -> Rows:
        found = all_agree(self.site, self.session)
        held = {int(str(row[1])): (int(str(row[2])), row[3]) for row in found}
        assert held == self.rows
        known, now = ({row[1]: row[0] for row in rows} for rows in (before, found))
        assert {id_: now[id_] for id_ in known if id_ in now} == {id_: known[id_] for id_ in known if id_ in now}
        return found


@pytest.mark.parametrize("number", range(20 if LONG else 1))
def test_any_statements_leave_what_the_model_holds(
    number: int, make_site: MakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"{SEED} spark {number}")
    site = make_site("sqlite", chance.choice([0, 10]))
    lake = site.lake()
    partition = chance.choice([(), ("n",), ("bucket(3, id)",)]) if LONG else ()
    lake.create_table("t", {"id": pa.int64(), "n": pa.int64(), "w": pa.string()}, partition_by=partition)
    lake.options.set("update_mode", chance.choice(["auto", "copy_on_write", "merge_on_read"]), table="t")
    model = Model(site, session, chance, monkeypatch)
    steps: list[Callable[[], None]] = [model.delete, model.update, model.merge, model.compact, model.local_delete]
    found: Rows = ()
    for step in [model.append, model.append, *chance.choices(steps, weights=[2, 2, 3, 1, 1], k=8 if LONG else 4)]:
        step()
        found = model.check(found) if LONG or step is not model.append else found
    versions = range(1, site.lake()._context.latest().id + 1)
    all_agree(site, session, versions)
    assert site.lake().verify(deep=True).ok
