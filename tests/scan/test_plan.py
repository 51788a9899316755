"""The scan plan as data: what it counts, and its form on the wire."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quacklake
from quacklake.core.format.schema import TableSchema, from_arrow
from quacklake.core.scan import ScanPlan
from quacklake.core.scan.plan import FILES, POSITIONS, column_key
from quacklake.errors import CorruptFileError

TYPES = [
    pa.int8(),
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.decimal128(20, 4),
    pa.list_(pa.int64()),
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
    pa.map_(pa.string(), pa.float64()),
]
names = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(
    lambda s: s.strip() != ""
)
ids = st.integers(0, 2**63 - 1)


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    chosen = draw(st.lists(names, min_size=1, max_size=5, unique_by=lambda name: name.casefold()))
    fields = [pa.field(name, draw(st.sampled_from(TYPES)), nullable=draw(st.booleans())) for name in chosen]
    return from_arrow(pa.schema(fields))


@st.composite
def plans(draw: st.DrawFn) -> ScanPlan:
    schema = draw(schemas())
    row = st.fixed_dictionaries(
        {field.name: st.none() | (st.text(max_size=10) if pa.types.is_string(field.type) else ids) for field in FILES}
    )
    files = pa.Table.from_pylist(draw(st.lists(row, max_size=4)), schema=FILES)
    position = st.fixed_dictionaries({"file_id": ids, "row_id": ids})
    deletes = pa.Table.from_pylist(draw(st.lists(position, max_size=4)), schema=POSITIONS)
    inlined = None
    if draw(st.booleans()):
        count = draw(st.integers(0, 3))
        columns: dict[str, Any] = {
            name: pa.array(range(count), pa.int64()) for name in ("row_id", "begin_snapshot", "schema_version")
        }
        columns |= {column_key(column): pa.nulls(count, column.arrow_type()) for column in schema.columns}
        inlined = pa.table(columns)
    return ScanPlan(
        table_id=draw(ids),
        schema_name=draw(names),
        table_name=draw(names),
        snapshot_id=draw(ids),
        root=draw(st.text(max_size=10)),
        schema=schema,
        files=files,
        deletes=deletes,
        inlined=inlined,
        pruned=draw(st.booleans()),
    )


@given(plans())
def test_a_plan_comes_back_from_the_wire_as_it_was(plan: ScanPlan) -> None:
    found = ScanPlan.from_ipc(plan.to_ipc())
    assert found.schema == plan.schema
    for name in ("table_id", "schema_name", "table_name", "snapshot_id", "root", "pruned"):
        assert getattr(found, name) == getattr(plan, name)
    assert found.files.equals(plan.files, check_metadata=True)
    assert found.deletes.equals(plan.deletes)
    assert (found.inlined is None) == (plan.inlined is None)
    if plan.inlined is not None:
        assert found.inlined is not None
        assert found.inlined.equals(plan.inlined)
    assert found.to_ipc() == plan.to_ipc()


@settings(max_examples=200)
@given(plan=plans(), data=st.data())
def test_bytes_that_are_no_plan_are_a_corrupt_file(plan: ScanPlan, data: st.DataObject) -> None:
    good = plan.to_ipc()
    kind = data.draw(st.sampled_from(["cut", "flip", "junk"]))
    if kind == "cut":
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    elif kind == "flip":
        at = data.draw(st.integers(0, len(good) - 1))
        bad = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    else:
        bad = data.draw(st.binary(max_size=200))
    try:
        ScanPlan.from_ipc(bad)
    except CorruptFileError:
        return
    assert kind == "flip"  # a changed value may make another plan


def test_a_plan_of_another_kind_of_arrow_file_is_a_corrupt_file() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"x": [1]})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(CorruptFileError):
        ScanPlan.from_ipc(bytes(sink.getvalue()))


def test_a_real_plan_runs_after_a_round_trip(tmp_path: Path) -> None:
    """With files, delete files, inlined rows and inlined deletes, in every kind of type."""
    rows = [
        {
            "id": n,
            "s": f"it's {n}",
            "d": dt.date(2024, 1, 1) + dt.timedelta(days=n),
            "t": dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC),
            "m": Decimal(n) / 4,
            "l": [n, None],
            "p": {"a": n, "b": ["x"]},
        }
        for n in range(40)
    ]
    with quacklake.connect(f"sqlite:///{tmp_path / 'l.db'}", data_path=tmp_path / "data") as lake:
        t = lake.create_table("t", pa.Table.from_pylist(rows))
        t.delete("id >= 20 AND id < 35")
        t.append([{**rows[0], "id": 100}])
        t.delete("id = 3")
        plan = t.plan()
        assert plan.deletes.num_rows == 1
        assert plan.inlined is not None
        found = ScanPlan.from_ipc(plan.to_ipc())
        engine = lake._context.engine
        assert engine.scan(found).reader.read_all().equals(engine.scan(plan).reader.read_all())
        assert found.count() == plan.count() == t.count() or plan.count() is None
        assert t.count() == 40 - 15 - 1 + 1
