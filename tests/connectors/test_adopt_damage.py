"""Logs and metadata that are not what they should be are errors of ours, and change nothing."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.connectors import registry
from quacklake.connectors.adoption import ForeignTable
from quacklake.errors import QuacklakeError
from quacklake.lake.adopting import ForeignField, ForeignFile
from tests import seeds
from tests.connectors.adoption import HandMade, field

ROUNDS = 600 if seeds.LONG else 40
_WRONG: list[Any] = [None, 0, -1, "", "x", [], {}, [1], {"a": 1}, True, "../../x", "%2e%2e/x", 10**30]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    (tmp_path / "foreign").mkdir()
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", foreign_paths=[tmp_path / "foreign"]
    ) as lake:
        yield lake


def damaged(value: Any, chance: random.Random) -> Any:
    """The same with one part of it gone or another."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, child in items:
            places.append((node, key))
            walk(child)

    value = copy.deepcopy(value)
    walk(value)
    node, key = chance.choice(places)
    if chance.random() < 0.3:
        del node[key]
    else:
        node[key] = chance.choice(_WRONG)
    return value


def test_a_damaged_log_of_delta_is_an_error(lake: quacklake.Lake, tmp_path: Path) -> None:
    chance = seeds.chance("damaged delta")
    place = tmp_path / "foreign" / "t"
    inner = {"type": "struct", "fields": [field("x", "long"), field("l", {"type": "array", "elementType": "string"})]}
    fields = [field("id", "long"), field("s", inner), field("p", "integer")]
    table = HandMade(place, fields, partition_by=["p"], features=["deletionVectors"])
    rows = pa.table({"id": [1, 2], "s": [{"x": 1, "l": ["a"]}, None]})
    table.commit(
        table.file("p=1/a.parquet", rows, {"p": "1"}, table.vector([0])),
        table.file("p=1/b.parquet", rows, {"p": "1"}, table.vector([1], inline=True)),
    )
    log = place / "_delta_log"
    commits = {path: [json.loads(line) for line in path.read_text().splitlines()] for path in sorted(log.iterdir())}
    refused = 0
    for _ in range(ROUNDS):
        path = chance.choice(list(commits))
        actions = copy.deepcopy(commits[path])
        metadata = actions[-1].get("metaData")
        if metadata is not None and chance.random() < 0.5:
            metadata["schemaString"] = json.dumps(damaged(json.loads(metadata["schemaString"]), chance))
        else:
            actions = damaged(actions, chance)
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
        try:
            lake.adopt(f"delta:{place}", as_="t", dry_run=True)
        except QuacklakeError:
            refused += 1
        path.write_text("".join(json.dumps(action) + "\n" for action in commits[path]))
    assert refused > ROUNDS / 4
    assert lake.current_snapshot() == 0
    lake.adopt(f"delta:{place}", as_="t")
    assert lake.table("t").count("id >= 0") == 2


@pytest.mark.filterwarnings("ignore:Encountered invalid snapshot summary:UserWarning")
def test_damaged_metadata_of_iceberg_is_an_error(lake: quacklake.Lake, tmp_path: Path) -> None:
    sql = pytest.importorskip("pyiceberg.catalog.sql", reason="the package pyiceberg is not installed")
    chance = seeds.chance("damaged iceberg")
    catalog = sql.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/iceberg.db", warehouse=f"file://{tmp_path}/foreign")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pa.schema([("id", pa.int64()), ("name", pa.string())]))
    table.append(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    catalog.engine.dispose()
    metadata = Path(table.metadata_location.removeprefix("file://"))
    whole = json.loads(metadata.read_text())
    refused = 0
    for _ in range(ROUNDS):
        metadata.write_text(json.dumps(damaged(whole, chance)))
        try:
            lake.adopt(f"iceberg:{metadata}", as_="t", dry_run=True)
        except QuacklakeError:
            refused += 1
    metadata.write_text(json.dumps(whole))
    assert refused > ROUNDS / 20
    for path in metadata.parent.glob("*.avro"):
        data = path.read_bytes()
        for end in sorted([*chance.sample(range(len(data)), 10), data.rindex(data[-16:], 0, len(data) - 16) + 16]):
            path.write_bytes(data[:end])
            with pytest.raises(QuacklakeError):
                lake.adopt(f"iceberg:{metadata}", as_="t", dry_run=True)
        path.write_bytes(data)
    lake.adopt(f"iceberg:{metadata}", as_="t")
    assert lake.table("t").count("id >= 0") == 2


class Parrot:
    """A format of another package: a folder of Parquet files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entry = SimpleNamespace(load=lambda: self)
        monkeypatch.setattr(registry, "_foreign", lambda: {"parrot": entry})

    def foreign_table(self, context: Any, place: str) -> ForeignTable:
        files = tuple(ForeignFile(str(path)) for path in sorted(Path(place).glob("*.parquet")))
        fields = (ForeignField("id", "int64", names=("id",)),)
        return ForeignTable(f"parrot:{place}", place, "polly", len(files), fields, files)


def test_another_package_may_read_other_tables(
    lake: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Parrot(monkeypatch)
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "foreign" / "f.parquet")
    assert lake.adopt(f"parrot:{tmp_path}/foreign", as_="t").added_rows == 3


def test_a_slow_follower_does_not_go_back_behind_a_quick_one(
    lake: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, rows = f"parrot:{tmp_path}/foreign", pa.table({"id": [1, 2, 3]})

    class Slow(Parrot):
        reads = 0

        def foreign_table(self, context: Any, place: str) -> ForeignTable:
            found = super().foreign_table(context, place)
            self.reads += 1
            if self.reads == 2:  # another one follows a later version meanwhile
                pq.write_table(rows, tmp_path / "foreign" / "c.parquet")
                assert lake.adopt(source, as_="t", sync=True).version == 3
            return found

    slow = Slow(monkeypatch)
    pq.write_table(rows, tmp_path / "foreign" / "a.parquet")
    lake.adopt(source, as_="t")
    pq.write_table(rows, tmp_path / "foreign" / "b.parquet")
    assert lake.adopt(source, as_="t", sync=True).version == 3
    assert slow.reads == 4
    assert lake.table("t").count() == 9
