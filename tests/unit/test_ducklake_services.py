"""``DuckLakeService``: Ekko's transactions, now and as they were, its snapshots and its maintenance."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import InputError, NotFoundError
from quacklake_ekko.service import DuckLakeService, TransactionFilter
from quacklake_ekko.transactions import DuckLakeWriter, create_table
from tests.service.serving import Served, is_problem, served

NODES = {"Avalanche": ("Avalanche", "Mainnet", "EVM"), "Ethereum": ("Ethereum", "Sepolia", "EVM")}


def transaction(number: int, network: str) -> dict[str, Any]:
    return {
        "hash": f"0x{number:04x}", "from": f"0xA{number % 3}", "to": None if number % 5 == 0 else f"0xB{number % 2}",
        "value": str(number * 10**18), "gas": "21000", "gasPrice": "1", "nonce": number,
        "input": "0xdeadbeef" if number % 4 == 0 else "0x", "blockHash": "0xbb", "blockNumber": number,
        "transactionIndex": 0, "timestamp": 1_700_000_000 + number, "success": number % 7 != 0,
    }  # fmt: skip


def write(lake: quacklake.Lake, numbers: range) -> None:
    with DuckLakeWriter(lake) as writer:
        for number in numbers:
            network = "Avalanche" if number % 2 else "Ethereum"
            name, subnet, vm = NODES[network]
            writer.write_transaction(transaction(number, network), {"network": name, "subnet": subnet, "vm_type": vm})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Lake]:
    folder = tmp_path_factory.mktemp("ekko")
    with quacklake.connect(f"sqlite:///{folder}/lake.db", folder / "data", create=True) as opened:
        create_table(opened)
        write(opened, range(1, 41))
        opened.tag("first")
        write(opened, range(41, 61))
        yield opened


@pytest.fixture(scope="module")
def service(lake: quacklake.Lake) -> Iterator[Served]:
    with served(quacklake.connect(lake.url)) as found:
        yield found


def test_transactions_of_a_network_come_newest_first(lake: quacklake.Lake) -> None:
    found = asyncio.run(DuckLakeService(lake).get_transactions(limit=100, network="Avalanche", subnet="Mainnet"))
    assert [row["blockNumber"] for row in found] == sorted((n for n in range(1, 61) if n % 2), reverse=True)
    assert found[0] == {
        "hash": "0x003b", "from": "0xA2", "to": "0xB1", "value": str(59 * 10**18), "gas": "21000", "gasPrice": "1", "nonce": "59",
        "input": "0x", "blockNumber": 59, "blockHash": "0xbb", "transactionIndex": 0,
        "timestamp": dt.datetime.fromtimestamp(1_700_000_059, dt.UTC).isoformat(), "network": "Avalanche", "subnet": "Mainnet",
        "status": "confirmed", "details": {"token_symbol": "AVAX", "transaction_type": "transfer"},
    }  # fmt: skip


def test_a_snapshot_shows_the_lake_as_it_was(lake: quacklake.Lake) -> None:
    first = lake.at(tag="first").snapshot_id
    then = asyncio.run(DuckLakeService(lake).get_transactions(limit=100, snapshot_id=first))
    assert {row["blockNumber"] for row in then} == set(range(1, 41))
    with pytest.raises(NotFoundError):
        asyncio.run(DuckLakeService(lake).get_transactions(snapshot_id=9999))
    for limit, offset in ((0, 0), (10_001, 0), (1, -1)):
        with pytest.raises(InputError):
            asyncio.run(DuckLakeService(lake).get_transactions(limit, offset=offset))


def test_recent_changes_snapshots_and_the_table_are_told(lake: quacklake.Lake) -> None:
    service = DuckLakeService(lake)
    changes = asyncio.run(service.get_recent_changes(hours=24))
    assert len(changes) == 60 and {row["change_type"] for row in changes} == {"insert"}
    info = asyncio.run(service.get_table_info())
    assert (info["row_count"], len(info["columns"]), info["snapshot_id"]) == (60, 21, lake.current_snapshot())
    snapshots = asyncio.run(service.get_snapshots())
    assert [each["snapshot_id"] for each in snapshots] == list(range(lake.current_snapshot(), -1, -1))


def test_maintenance_tells_what_it_would_do_and_does_it(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True) as lake:
        create_table(lake)
        write(lake, range(1, 30))
        service = DuckLakeService(lake)
        old = dt.datetime.now(dt.UTC) - dt.timedelta(days=30)
        assert asyncio.run(service.expire_snapshots(older_than=old))["snapshots"] == ()
        soon = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
        would = asyncio.run(service.expire_snapshots(older_than=soon, dry_run=True))["snapshots"]
        assert would and asyncio.run(service.expire_snapshots(older_than=soon))["snapshots"] == would
        assert asyncio.run(service.cleanup_old_files(dry_run=True))["files"] >= 0
        assert len(asyncio.run(service.get_transactions())) == 29


def test_the_environment_names_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKLAKE_ENABLED", "true")
    monkeypatch.setenv("DUCKLAKE_CATALOG_TYPE", "sqlite")
    monkeypatch.setenv("DUCKLAKE_CATALOG_PATH", str(tmp_path / "catalog.sqlite"))
    monkeypatch.setenv("DUCKLAKE_DATA_PATH", str(tmp_path / "data"))
    monkeypatch.setenv("DUCKLAKE_BATCH_SIZE", "1000")
    monkeypatch.setenv("DUCKLAKE_FLUSH_INTERVAL", "30s")

    async def use() -> list[dict[str, Any]]:
        async with DuckLakeService() as service:
            create_table(service.lake)
            write(service.lake, range(1, 3))
            return await service.get_transactions()

    assert len(asyncio.run(use())) == 2


def get(service: Served, path: str = "/", **params: Any) -> dict[str, Any]:
    answer = service.reader.get(f"/api/transactions{path}", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({}, lambda n: True),
        ({"networks": "avalanche"}, lambda n: n % 2),
        ({"networks": "Avalanche,Ethereum", "subnets": "Sepolia"}, lambda n: n % 2 == 0),
        ({"wallet_addresses": "0xa1"}, lambda n: n % 3 == 1),
        ({"wallet_addresses": ["0xa1", "0xB1"]}, lambda n: n % 3 == 1 or (n % 5 and n % 2)),
        ({"transaction_types": "contract_creation"}, lambda n: n % 5 == 0),
        ({"transaction_types": "contract_call"}, lambda n: n % 5 and n % 4 == 0),
        ({"transaction_types": "contract_call,transfer"}, lambda n: n % 5),
        ({"status": "failed"}, lambda n: n % 7 == 0),
        ({"status": "pending"}, lambda n: False),
        ({"from_date": "2023-11-14T22:14:00"}, lambda n: n >= 40),
        ({"to_date": "2023-11-14T22:14:00+00:00"}, lambda n: n <= 40),
        ({"search": "0X003"}, lambda n: 0x30 <= n <= 0x3F),
        ({"search": "'; DROP TABLE x; --"}, lambda n: False),
    ],
)
def test_filters_find_what_a_model_finds(service: Served, params: dict[str, Any], wanted: Any) -> None:
    numbers = [number for number in range(60, 0, -1) if wanted(number)]
    found, offset = [], 0
    while True:
        page = get(service, limit=25, offset=offset, **params)
        found += [row["blockNumber"] for row in page["transactions"]]
        assert (page["total"], page["limit"], page["offset"]) == (len(numbers), 25, offset)
        offset += 25
        assert page["has_more"] == (offset < len(numbers))
        if not page["has_more"]:
            break
    assert found == numbers


def test_pages_are_sorted_as_asked(service: Served) -> None:
    assert [row["blockNumber"] for row in get(service, sort_by="value", sort_order="asc", limit=3)["transactions"]] == [
        1,
        2,
        3,
    ]
    assert get(service, limit=1, offset=10**12)["transactions"] == []


@pytest.mark.parametrize("params", [{"limit": 0}, {"limit": 101}, {"offset": -1}, {"sort_by": "x; DROP"}, {"sort_order": "up"},
                                    {"status": "odd"}, {"from_date": "never"}, {"transaction_types": "x"}])  # fmt: skip
def test_wrong_filters_are_refused(service: Served, params: dict[str, Any]) -> None:
    assert service.reader.get("/api/transactions/", params=params).status_code in (400, 422)


def test_single_transactions_networks_and_figures(service: Served) -> None:
    assert get(service, "/0x0005")["details"]["transaction_type"] == "contract_creation"
    is_problem(service.reader.get("/api/transactions/0xffff"), 404, "not_found")
    assert [(row["network"], row["transactions"]) for row in get(service, "/networks")["networks"]] == [
        ("Avalanche", 30),
        ("Ethereum", 30),
    ]
    stats = get(service, "/stats")
    assert (stats["total_transactions"], stats["networks"], stats["failed"]) == (60, 2, 8)
    assert get(service, "/test") == {"status": "ok"}
    is_problem(service.anonymous.get("/api/transactions/"), 401, "unauthenticated")
    assert get(service, version=service.lake.at(tag="first").snapshot_id)["total"] == 40


def test_a_filter_never_becomes_text_of_the_query() -> None:
    odd = "x' OR 1=1 --"
    text, values = TransactionFilter(wallet_addresses=[odd], networks=[odd], subnets=[odd], search=odd, hash=odd).page(
        1, 0
    )
    assert odd not in text and odd.lower() not in text and len(values) == 5


def test_the_service_answers_before_and_after_the_hash_is_renamed(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True) as lake:
        write(lake, range(1, 4))
        before = lake.current_snapshot()
        lake.sql("ALTER TABLE blockchain.transactions RENAME tx_hash TO transaction_hash")
        write(lake, range(3, 6))
        own = DuckLakeService(lake)
        newest = [row["hash"] for row in asyncio.run(own.get_transactions())]
        assert newest == ["0x0005", "0x0004", "0x0003", "0x0002", "0x0001"]
        assert len(asyncio.run(own.get_transactions(snapshot_id=before))) == 3
        with served(quacklake.connect(lake.url)) as found:
            for words, count in (({}, 5), ({"search": "0x0004"}, 1), ({"version": before}, 3)):
                page = found.reader.get("/api/transactions/", params=words).json()
                assert (page["total"], len(page["transactions"])) == (count, count)
            assert found.reader.get("/api/transactions/0x0005").json()["hash"] == "0x0005"
            exported = found.reader.get("/api/transactions/export", headers={"Accept": "application/json"}).json()
            assert [row["tx_hash"] for row in exported["rows"]] == newest
