"""Transactions of blockchains as Ekko's pipeline sends them, and a writer into ``blockchain.transactions``.

A transaction arrives as JSON beside the node that saw it. Numbers are decimal or hexadecimal texts; ``value``,
``gas_price``, ``gas_limit`` and ``nonce`` may be larger than any integer type and are kept as decimal texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import Lake, LakeTransaction, MergeResult, Table
from quacklake.errors import InputError
from quacklake.extend.duckdbs import arrow_table, connect
from quacklake.extend.names import quote
from quacklake.pipelines import BufferedWriter
from quacklake_ekko.settings import WriterSettings
from quacklake_ekko.table import KEY, SCHEMA, TABLE, find_key

DEFINITION = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    network VARCHAR NOT NULL,
    subnet VARCHAR NOT NULL,
    vm_type VARCHAR NOT NULL,
    block_time TIMESTAMPTZ NOT NULL,
    "year" INTEGER NOT NULL,
    "month" INTEGER NOT NULL,
    "day" INTEGER NOT NULL,
    "hour" INTEGER NOT NULL,
    block_hash VARCHAR NOT NULL,
    block_number BIGINT NOT NULL,
    tx_hash VARCHAR PRIMARY KEY,
    tx_index INTEGER NOT NULL,
    from_address VARCHAR NOT NULL,
    to_address VARCHAR,
    "value" VARCHAR NOT NULL,
    gas_price VARCHAR NOT NULL,
    gas_limit VARCHAR NOT NULL,
    nonce VARCHAR NOT NULL,
    input_data BLOB,
    success BOOLEAN NOT NULL DEFAULT true,
    ingested_at TIMESTAMPTZ DEFAULT now()
)"""
PARTITIONS = f"ALTER TABLE {TABLE} SET PARTITIONED BY (year(block_time), month(block_time), day(block_time))"

ROWS = pa.schema(
    [
        ("network", pa.string()),
        ("subnet", pa.string()),
        ("vm_type", pa.string()),
        ("block_time", pa.timestamp("us", "UTC")),
        ("year", pa.int32()),
        ("month", pa.int32()),
        ("day", pa.int32()),
        ("hour", pa.int32()),
        ("block_hash", pa.string()),
        ("block_number", pa.int64()),
        ("tx_hash", pa.string()),
        ("tx_index", pa.int32()),
        ("from_address", pa.string()),
        ("to_address", pa.string()),
        ("value", pa.string()),
        ("gas_price", pa.string()),
        ("gas_limit", pa.string()),
        ("nonce", pa.string()),
        ("input_data", pa.binary()),
        ("success", pa.bool_()),
        ("ingested_at", pa.timestamp("us", "UTC")),
    ]
)
"""The columns of the table in Arrow."""

_CONTENT = {"block_time": "epoch_us({})", "input_data": "hex({})"}


@dataclass(frozen=True)
class NodeConfig:
    """The node that saw a transaction."""

    network: str
    subnet: str
    vm_type: str

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NodeConfig:
        """Return the node of a mapping that may hold more. Raise ``InputError``."""
        return cls(*(_text(values, name) for name in ("network", "subnet", "vm_type")))


def create_table(lake: Lake) -> None:
    """Create the schema and the table of transactions, partitioned by day, unless they are there."""

    def work(transaction: LakeTransaction) -> None:
        transaction.create_schema(SCHEMA, if_not_exists=True)
        if TABLE not in transaction:
            transaction.sql(DEFINITION)
            transaction.sql(PARTITIONS)

    if TABLE not in lake:
        lake.run(work, f"create {TABLE}")


def with_key(rows: pa.Table, key: str) -> pa.Table:
    """Return rows with another name for the column that has the hash."""
    found = find_key(rows.column_names)
    return rows if key == found else rows.rename_columns({found: key})


def content(rows: str, key: str = KEY) -> str:
    """Return an SQL expression for the checksum of a row, of all columns but the time at which it was ingested."""
    names = (key if name == KEY else name for name in ROWS.names if name != "ingested_at")
    columns = (_CONTENT.get(name, "{}").format(f"{rows}.{quote(name)}") for name in names)
    return f"md5(CAST(json_array({', '.join(columns)}) AS VARCHAR))"


def age(rows: str, key: str = KEY) -> str:
    """Return an SQL expression that orders the rows of one transaction from the oldest to the newest.

    The newest is the one ingested last. Its block and its checksum decide between two of the same time, so that rows
    end up the same in whatever order they arrive.
    """
    return f"row(coalesce(epoch_us({rows}.ingested_at), 0), {rows}.block_number, {content(rows, key)})"


def newest(rows: pa.Table) -> pa.Table:
    """Return the newest row of each transaction."""
    if pc.count_distinct(rows[KEY]).as_py() == len(rows):
        return rows
    with connect() as connection:
        connection.register("given", rows)
        found = arrow_table(
            connection,
            f"SELECT * FROM given QUALIFY row_number() OVER (PARTITION BY {KEY} ORDER BY {age('given')} DESC) = 1",
        )
    return found.cast(rows.schema)


def merge_newest(table: Table, rows: pa.Table) -> MergeResult:
    """Merge transactions into their table, but for rows that are older than those of the table.

    Rows may come again and in any order: the table ends with the newest of each transaction.
    """
    key = find_key(table.columns)
    merge = table.merge_builder(with_key(newest(rows), key), key)
    merge = merge.when_matched_update_all(f"{age('source', key)} > {age('target', key)}")
    return merge.when_not_matched_insert_all().execute()


def transaction_row(
    transaction: Mapping[str, Any],
    node: NodeConfig,
    *,
    block_time: datetime | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Return the row of a transaction. Raise ``InputError`` that names the field which is missing or wrong.

    The time is that of the block: ``block_time``, or the transaction's own ``timestamp`` in seconds.
    """
    moment = block_time or _moment(transaction)
    return {
        "network": node.network,
        "subnet": node.subnet,
        "vm_type": node.vm_type,
        "block_time": moment,
        "year": moment.year,
        "month": moment.month,
        "day": moment.day,
        "hour": moment.hour,
        "block_hash": _text(transaction, "blockHash"),
        "block_number": _integer(transaction, "blockNumber", bits=63),
        "tx_hash": _text(transaction, "hash"),
        "tx_index": _integer(transaction, "transactionIndex", bits=31),
        "from_address": _text(transaction, "from"),
        "to_address": None if transaction.get("to") is None else _text(transaction, "to"),
        "value": str(_integer(transaction, "value")),
        "gas_price": str(_integer(transaction, "gasPrice")),
        "gas_limit": str(_integer(transaction, "gas")),
        "nonce": str(_integer(transaction, "nonce")),
        "input_data": _bytes(transaction, "input"),
        "success": _success(transaction),
        "ingested_at": now or datetime.now(UTC),
    }


class _TransactionBuffer(BufferedWriter):
    """A buffer whose rows go by the name that the column with the hash has when they are committed."""

    def _commit(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        key = find_key(self._lake.table(table).columns)
        self._keys = {TABLE: [key]}
        super()._commit(table, [{key if name == KEY else name: row[name] for name in row} for row in rows])


class DuckLakeWriter:
    """Writes transactions in batches; one that comes again, by its hash, replaces the first.

    ``lake`` is an open lake, or settings that name one (``WriterSettings``, or a mapping like the environment, from
    which they are taken by default); such a lake is closed with the writer. ``batch_size`` rows or ``flush_interval``
    make a commit; what is not given is as ``settings`` say. See :class:`BufferedWriter` for what a crash can lose.
    """

    def __init__(
        self,
        lake: Lake | WriterSettings | Mapping[str, str] | None = None,
        *,
        settings: WriterSettings | None = None,
        batch_size: int | None = None,
        flush_interval: timedelta | str | None = None,
    ) -> None:
        self._own: Lake | None = None
        if not isinstance(lake, Lake):
            if lake is not None and settings is not None:
                raise InputError("settings were given twice", hint="pass a lake and settings, or settings alone")
            given = settings if lake is None else lake
            settings = given if isinstance(given, WriterSettings) else WriterSettings.resolve(given)
            lake = self._own = settings.connect()
        chosen = settings or WriterSettings()
        try:
            create_table(lake)
            self._writer = self._open(
                lake,
                chosen.batch_size if batch_size is None else batch_size,
                chosen.flush_interval if flush_interval is None else flush_interval,
            )
        except BaseException:
            self._close_own()
            raise

    def _open(self, lake: Lake, batch_size: int, flush_interval: timedelta | str) -> BufferedWriter:
        return _TransactionBuffer(lake, batch_rows=batch_size, flush_interval=flush_interval, keys={TABLE: [KEY]})

    def _close_own(self) -> None:
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._writer.__exit__(*error)
        finally:
            self._close_own()

    def write_transaction(
        self,
        transaction: Mapping[str, Any],
        node: NodeConfig | Mapping[str, Any],
        *,
        block_time: datetime | None = None,
    ) -> None:
        """Keep a transaction for the next commit. Raise ``InputError`` if it is not a row."""
        place = node if isinstance(node, NodeConfig) else NodeConfig.of(node)
        self._writer.write(TABLE, transaction_row(transaction, place, block_time=block_time))

    def write_block(self, block: Mapping[str, Any], node: NodeConfig | Mapping[str, Any]) -> int:
        """Keep the transactions of a block, which have its hash, number and time, and return how many they are."""
        shared = {
            "blockHash": block.get("hash"),
            "blockNumber": block.get("number"),
            "timestamp": block.get("timestamp"),
        }
        listed = block.get("transactions", ())
        if not isinstance(listed, Sequence):
            raise InputError("the transactions of a block are a list")
        place = node if isinstance(node, NodeConfig) else NodeConfig.of(node)
        rows = [
            transaction_row({"transactionIndex": index, **each, **shared}, place) for index, each in enumerate(listed)
        ]
        for row in rows:
            self._writer.write(TABLE, row)
        return len(rows)

    async def write_transaction_async(
        self, transaction: Mapping[str, Any], node: NodeConfig | Mapping[str, Any]
    ) -> None:
        """Do as :meth:`write_transaction`, without keeping the event loop while it waits."""
        place = node if isinstance(node, NodeConfig) else NodeConfig.of(node)
        await self._writer.write_async(TABLE, transaction_row(transaction, place))

    def flush(self) -> int:
        """Commit what is kept and return how many rows it was."""
        return self._writer.flush_all()

    flush_all = flush

    async def flush_all_async(self) -> int:
        """Do as :meth:`flush`, in a thread."""
        return await asyncio.to_thread(self.flush)

    def close(self) -> None:
        """Commit what is kept, and end."""
        try:
            self._writer.close()
        finally:
            self._close_own()

    def write_in_context(self, *arguments: Any, **options: Any) -> None:
        """Do as :meth:`write_transaction`. The context of Go, an additional first argument, is not used."""
        self.write_transaction(*(arguments[1:] if len(arguments) == 3 else arguments), **options)

    def flush_in_context(self, context: object = None) -> int:
        """Do as :meth:`flush`, with the context of Go, which is not used."""
        return self.flush()

    def close_in_context(self, context: object = None) -> None:
        """Do as :meth:`close`, with the context of Go, which is not used."""
        self.close()

    # The names of the writer that this one takes the place of.
    WriteTransaction = write_in_context
    FlushAll = flush_in_context
    Close = close_in_context


def open_writer(
    config: Lake | WriterSettings | Mapping[str, str] | None = None, connection: object = None
) -> DuckLakeWriter:
    """Return a writer for a configuration, as the Go pipeline opens one.

    The connection to NATS is not used: ``quacklake_ekko.nats_writer.run_writer`` reads what comes from there.
    """
    return DuckLakeWriter(config)


NewDuckLakeWriter = open_writer
"""The name that it has in Go."""


def _require(values: Mapping[str, Any], name: str) -> Any:
    found = values.get(name)
    if found is None:
        raise InputError(f"the transaction lacks {name!r}")
    return found


def _text(values: Mapping[str, Any], name: str) -> str:
    found = _require(values, name)
    if not isinstance(found, str) or not found:
        raise InputError(f"{name!r} is a text, not {found!r:.80}")
    return found


def _integer(values: Mapping[str, Any], name: str, bits: int = 256) -> int:
    found = _require(values, name)
    try:
        if isinstance(found, bool) or not isinstance(found, int | str) or len(str(found)) > 80:
            raise ValueError
        number = found if isinstance(found, int) else int(found, 16 if found.lower().startswith("0x") else 10)
        if not 0 <= number < 1 << bits:
            raise ValueError
    except ValueError:
        raise InputError(f"{name!r} is a number from 0 to 2^{bits} - 1, not {found!r:.80}") from None
    return number


def _moment(values: Mapping[str, Any]) -> datetime:
    found = values.get("timestamp", values.get("blockTime"))
    if isinstance(found, str) and not found.lower().startswith("0x") and not found.isdigit():
        try:
            moment = datetime.fromisoformat(found)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        except ValueError:
            raise InputError(f"'timestamp' is a time, not {found!r:.80}") from None
    return datetime.fromtimestamp(_integer({"timestamp": found}, "timestamp", bits=37), UTC)


def _bytes(values: Mapping[str, Any], name: str) -> bytes | None:
    found = values.get(name)
    if found is None or found in ("", "0x"):
        return None
    try:
        return bytes.fromhex(str(found).removeprefix("0x"))
    except ValueError:
        raise InputError(f"{name!r} is hexadecimal, not {found!r:.80}") from None


def _success(values: Mapping[str, Any]) -> bool:
    found = values.get("status", values.get("success", True))
    return found if isinstance(found, bool) else str(found).lower() in ("1", "0x1", "true", "success", "confirmed")
