"""Ekko's transactions for its dashboard: ``DuckLakeService``, and the queries behind its endpoints."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from quacklake import Lake
from quacklake.errors import InputError
from quacklake_ekko.table import KEY, TABLE, find_key

__all__ = ["DuckLakeService", "TransactionFilter", "wire"]

T = TypeVar("T")
_MAX_COUNT = 10_000
_SYMBOLS = {"avalanche": "AVAX", "ethereum": "ETH", "polygon": "POL", "bitcoin": "BTC"}
_SORTS = {"timestamp": "block_time", "block": "block_number", "value": "TRY_CAST(value AS DECIMAL(38, 0))"}
_TYPES = {
    "contract_creation": "to_address IS NULL",
    "contract_call": "(to_address IS NOT NULL AND octet_length(coalesce(input_data, ''::BLOB)) > 0)",
    "transfer": "(to_address IS NOT NULL AND octet_length(coalesce(input_data, ''::BLOB)) = 0)",
}
_STATES = {"confirmed": "success", "success": "success", "failed": "NOT success", "pending": "false"}
COLUMNS = f"DESCRIBE {TABLE}"
_COLUMNS = """
    {key} AS tx_hash, from_address, to_address, value, gas_limit, gas_price, nonce,
    lower(hex(coalesce(input_data, ''::BLOB))) AS input, block_number, block_hash, tx_index, block_time,
    network, subnet, success
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilter:
    """The transactions that a request asks for. Every value becomes a parameter of the query. Raise ``InputError``."""

    wallet_addresses: Sequence[str] = ()
    networks: Sequence[str] = ()
    subnets: Sequence[str] = ()
    transaction_types: Sequence[str] = ()
    status: str | None = None
    from_date: str | None = None
    to_date: str | None = None
    search: str | None = None
    hash: str | None = None
    sort_by: str = "timestamp"
    sort_order: str = "desc"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("sort_by", self.sort_by, _SORTS),
            ("sort_order", self.sort_order, ("asc", "desc")),
            *(("transaction_types", each, _TYPES) for each in self.transaction_types),
            *((("status", self.status, _STATES),) if self.status is not None else ()),
        ):
            if value not in known:
                raise InputError(f"{name} cannot be {value!r:.60}", hint=f"one of: {', '.join(known)}")

    def condition(self, key: str = KEY) -> tuple[str, list[Any]]:
        """Return the condition of the query, and the values of its parameters. ``key`` is the column of the hash."""
        parts: list[str] = []
        values: list[Any] = []

        def add(text: str, value: Any) -> None:
            values.append(value)
            parts.append(text.replace("?", f"${len(values)}"))

        for names, column in ((self.networks, "network"), (self.subnets, "subnet")):
            if names:
                add(f"lower({column}) IN (SELECT unnest(?::VARCHAR[]))", [name.lower() for name in names])
        if self.wallet_addresses:
            wallets = "(SELECT unnest(?::VARCHAR[]))"
            add(
                f"(lower(from_address) IN {wallets} OR lower(to_address) IN {wallets})",
                [address.lower() for address in self.wallet_addresses],
            )
        if self.hash is not None:
            add(f"lower({key}) = ?", self.hash.lower())
        if self.search:
            add(
                f"(contains(lower({key}), ?) OR contains(lower(from_address), ?) OR contains(lower(to_address), ?))",
                self.search.lower(),
            )
        if self.from_date is not None:
            add("block_time >= ?::TIMESTAMPTZ", _time(self.from_date))
        if self.to_date is not None:
            add("block_time <= ?::TIMESTAMPTZ", _time(self.to_date))
        if self.transaction_types:
            parts.append(f"({' OR '.join(_TYPES[each] for each in self.transaction_types)})")
        if self.status is not None:
            parts.append(_STATES[self.status])
        return " AND ".join(parts) or "true", values

    def page(self, limit: int, offset: int, key: str = KEY) -> tuple[str, list[Any]]:
        """Return the query of a page, and the values of its parameters."""
        text, values = self.all(key)
        return f"{text} LIMIT {limit:d} OFFSET {offset:d}", values

    def all(self, key: str = KEY) -> tuple[str, list[Any]]:
        """Return the query of all of them, in order, and the values of its parameters."""
        where, values = self.condition(key)
        order = f"{_SORTS[self.sort_by]} {self.sort_order.upper()} NULLS LAST, {key}"
        return f"SELECT {_COLUMNS.format(key=key)} FROM {TABLE} WHERE {where} ORDER BY {order}", values

    def total(self, key: str = KEY) -> tuple[str, list[Any]]:
        """Return the query that counts them."""
        where, values = self.condition(key)
        return f"SELECT count(*) AS total FROM {TABLE} WHERE {where}", values


def _time(text: str) -> str:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text!r:.60} is not a time", hint="2026-01-31T12:00:00") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).isoformat()


STATS = f"""
    SELECT count(*) AS total_transactions, count(DISTINCT network) AS networks,
        count(DISTINCT from_address) AS senders, min(block_time) AS first_time, max(block_time) AS last_time,
        count(*) FILTER (WHERE NOT success) AS failed
    FROM {TABLE}
"""
NETWORKS = f"SELECT network, subnet, count(*) AS transactions FROM {TABLE} GROUP BY ALL ORDER BY ALL"


def wire(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a transaction as Ekko's dashboard reads it."""
    input_, to = row["input"], row["to_address"]
    kind = "contract_creation" if to is None else "contract_call" if input_ else "transfer"
    time = row["block_time"]
    return {
        "hash": row["tx_hash"],
        "from": row["from_address"],
        "to": to,
        "value": row["value"],
        "gas": row["gas_limit"],
        "gasPrice": row["gas_price"],
        "nonce": row["nonce"],
        "input": f"0x{input_}",
        "blockNumber": row["block_number"],
        "blockHash": row["block_hash"],
        "transactionIndex": row["tx_index"],
        "timestamp": time.isoformat() if isinstance(time, dt.datetime) else time,
        "network": row["network"],
        "subnet": row["subnet"],
        "status": "confirmed" if row["success"] else "failed",
        "details": {"token_symbol": _SYMBOLS.get(str(row["network"]).lower()), "transaction_type": kind},
    }


class DuckLakeService:
    """Ekko's view of its lake: the one that is given, or that variables such as ``DUCKLAKE_CATALOG_PATH`` name."""

    def __init__(self, lake: Lake | None = None) -> None:
        self._own = lake is None
        if lake is None:
            from quacklake_ekko.settings import WriterSettings

            lake = WriterSettings.resolve().connect()
        self._lake = lake

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self._lake

    async def get_transactions(
        self,
        limit: int = 100,
        network: str | None = None,
        subnet: str | None = None,
        *,
        offset: int = 0,
        snapshot_id: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return transactions, newest first; with ``snapshot_id``, those of the lake as it was at that snapshot."""
        if not 1 <= limit <= _MAX_COUNT or offset < 0:
            raise InputError(f"limit must be 1 to {_MAX_COUNT}, and offset not negative")
        wanted = TransactionFilter(
            networks=() if network is None else (network,), subnets=() if subnet is None else (subnet,)
        )

        def work() -> list[dict[str, Any]]:
            state = self._lake if snapshot_id is None else self._lake.at(version=snapshot_id)
            page = wanted.page(limit, offset, find_key(state.table(TABLE).columns))
            return [wire(row) for row in state.sql(*page).to_arrow().to_pylist()]

        return await _run(work)

    async def get_recent_changes(self, hours: float = 24) -> list[dict[str, Any]]:
        """Return the rows that were inserted, updated or deleted in the last hours, with their snapshots."""
        since = dt.datetime.now(dt.UTC) - dt.timedelta(hours=hours)

        def work() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = self._lake.table(TABLE).changes(since).to_arrow().to_pylist()
            return found

        return await _run(work)

    async def get_table_info(self) -> dict[str, Any]:
        """Return the columns, rows, files, bytes and snapshot of the table."""

        def work() -> dict[str, Any]:
            table = self._lake.table(TABLE)
            files = table.files()
            return {
                "table": TABLE,
                "columns": [
                    {"name": column.name, "type": column.duckdb_type()} for column in table.info.schema.columns
                ],
                "partitioned_by": table.partitioned_by,
                "row_count": table.count(),
                "file_count": files.num_rows,
                "size_bytes": sum(files.column("file_size_bytes").to_pylist()),
                "snapshot_id": self._lake.current_snapshot(),
            }

        return await _run(work)

    async def get_snapshots(self) -> list[dict[str, Any]]:
        """Return every snapshot, newest first."""
        found: list[dict[str, Any]] = await _run(lambda: self._lake.snapshots().to_pylist()[::-1])
        return found

    async def cleanup_old_files(self, dry_run: bool = True) -> dict[str, Any]:
        """Remove files that no snapshot needs any more, or only count them."""
        return await _run(lambda: asdict(self._lake.cleanup_old_files(dry_run=dry_run)))

    async def expire_snapshots(self, older_than: dt.datetime, *, dry_run: bool = False) -> dict[str, Any]:
        """Remove snapshots older than a time, and the data that only they can see."""
        return await _run(lambda: asdict(self._lake.expire_snapshots(older_than, dry_run=dry_run)))

    def close(self) -> None:
        """Close the lake, if the service has opened it."""
        if self._own:
            self._lake.close()

    async def __aenter__(self) -> DuckLakeService:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def _run(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)
