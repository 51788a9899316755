"""Ekko's transactions: from JSON to the table, each once."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import InputError
from quacklake_ekko.settings import WriterSettings
from quacklake_ekko.simulator import Simulation
from quacklake_ekko.table import TABLE
from quacklake_ekko.transactions import (
    ROWS,
    DuckLakeWriter,
    NewDuckLakeWriter,
    NodeConfig,
    create_table,
    merge_newest,
    transaction_row,
)

NODE = NodeConfig("Avalanche", "Mainnet", "EVM")
ONE: dict[str, Any] = {
    "hash": "0xaa",
    "from": "0x01",
    "to": None,
    "value": "0xde0b6b3a7640000",
    "gas": "21000",
    "gasPrice": "0x1",
    "nonce": 7,
    "input": "0xdeadbeef",
    "blockHash": "0xbb",
    "blockNumber": "0x10",
    "transactionIndex": "0x2",
    "timestamp": "0x65000000",
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as opened:
        yield opened


def test_a_transaction_is_a_row_with_the_time_of_its_block() -> None:
    row = transaction_row(ONE, NODE)
    moment = dt.datetime.fromtimestamp(0x65000000, dt.UTC)
    assert row["block_time"] == moment
    assert (row["year"], row["month"], row["day"], row["hour"]) == (moment.year, moment.month, moment.day, moment.hour)
    assert (row["value"], row["gas_limit"], row["nonce"]) == ("1000000000000000000", "21000", "7")
    assert (row["block_number"], row["tx_index"], row["to_address"]) == (16, 2, None)
    assert (row["input_data"], row["success"]) == (b"\xde\xad\xbe\xef", True)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hash": None}, "hash"),
        ({"from": 5}, "from"),
        ({"value": "-1"}, "value"),
        ({"value": "0xzz"}, "value"),
        ({"value": True}, "value"),
        ({"value": "9" * 100}, "value"),
        ({"blockNumber": hex(1 << 63)}, "blockNumber"),
        ({"transactionIndex": str(1 << 31)}, "transactionIndex"),
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"timestamp": None}, "timestamp"),
        ({"input": "0xq"}, "input"),
    ],
)
def test_a_field_that_is_wrong_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=f"'{named}'"):
        transaction_row(ONE | change, NODE)


def test_the_table_is_made_once_and_partitioned_by_day(lake: quacklake.Lake) -> None:
    create_table(lake)
    create_table(lake)
    assert lake.table(TABLE).columns[:3] == ["network", "subnet", "vm_type"]
    assert len(lake.table(TABLE).columns) == 21
    with DuckLakeWriter(lake) as writer:
        writer.WriteTransaction(ONE, {"network": "a", "subnet": "b", "vm_type": "c", "id": "node-1"})
        assert writer.FlushAll() == 1
    assert lake.sql(f"SELECT count(*), any_value(network) FROM {TABLE}").fetchall() == [(1, "a")]


def test_transactions_that_come_twice_late_or_again_in_a_block_are_there_once(lake: quacklake.Lake) -> None:
    simulation = Simulation(seed=3, duplicates=0.2, late=0.2, malformed=0.05, reorgs=0.2)
    clean = {each["hash"] for block in Simulation(seed=3, reorgs=0.2).blocks(30) for each in block["transactions"]}
    refused = 0
    with DuckLakeWriter(lake, batch_size=100, flush_interval="1 hour") as writer:
        for body in simulation.messages(30):
            try:
                message = json.loads(body)
                writer.write_transaction(message, message)
            except (ValueError, InputError, AttributeError):
                refused += 1
    found = lake.sql(f"SELECT tx_hash FROM {TABLE}").fetchall()
    assert sorted(row[0] for row in found) == sorted(clean)
    assert refused > 5


def test_a_block_gives_its_hash_number_and_time(lake: quacklake.Lake) -> None:
    block = next(Simulation(transactions=5).blocks(1))
    with DuckLakeWriter(lake) as writer:
        assert writer.write_block(block, NODE) == 5
    rows = lake.sql(f"SELECT DISTINCT block_hash, block_number, epoch(block_time) FROM {TABLE}").fetchall()
    assert rows == [(block["hash"], 0, 1_700_000_000.0)]


def test_the_same_seed_makes_the_same_blocks() -> None:
    assert list(Simulation(seed=1, reorgs=0.5).messages(5)) == list(Simulation(seed=1, reorgs=0.5).messages(5))
    assert list(Simulation(seed=1).messages(5)) != list(Simulation(seed=2).messages(5))


def test_a_writer_is_opened_by_its_settings_or_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "DUCKLAKE_CATALOG_TYPE": "sqlite",
        "DUCKLAKE_CATALOG_PATH": str(tmp_path / "lake.db"),
        "DUCKLAKE_DATA_PATH": str(tmp_path / "data"),
    }
    quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True).close()
    with DuckLakeWriter(WriterSettings.resolve(variables)) as writer:
        writer.write_transaction(ONE, NODE)
    for number, config in enumerate((WriterSettings.resolve(variables), variables)):
        go = NewDuckLakeWriter(config, object())
        go.WriteTransaction("ctx", ONE | {"hash": f"0x{number}"}, NODE)
        assert go.FlushAll("ctx") == 1
        go.Close()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with DuckLakeWriter() as writer:
        writer.WriteTransaction(ONE | {"hash": "0x9"}, NODE)
        assert writer.FlushAll() == 1
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as lake:
        assert lake.table(TABLE).count() == 4
        with pytest.raises(InputError, match="twice"):
            DuckLakeWriter(WriterSettings(), settings=WriterSettings())
    with pytest.raises(TypeError):
        writer.WriteTransaction("ctx", ONE, NODE, "more")


def test_a_writer_goes_on_when_the_hash_is_renamed(lake: quacklake.Lake) -> None:
    with DuckLakeWriter(lake, batch_size=1000) as writer:
        writer.write_transaction(ONE, NODE)
        writer.flush()
        writer.write_transaction(ONE | {"value": "2"}, NODE)
        lake.sql(f"ALTER TABLE {TABLE} RENAME tx_hash TO transaction_hash")
        lake.sql(f"ALTER TABLE {TABLE} ADD COLUMN transaction_type VARCHAR DEFAULT 'transfer'")
        writer.write_transaction(ONE | {"hash": "0x2"}, NODE)
    found = lake.sql(f'SELECT transaction_hash, "value" FROM {TABLE} ORDER BY 2 DESC').fetchall()
    assert found == [(ONE["hash"], "2"), ("0x2", str(transaction_row(ONE, NODE)["value"]))]
    rows = pa.Table.from_pylist([transaction_row(ONE | {"hash": "0x3"}, NODE)], ROWS)
    assert merge_newest(lake.table(TABLE), rows).rows_inserted == 1
    assert merge_newest(lake.table(TABLE), rows).rows_inserted == 0
