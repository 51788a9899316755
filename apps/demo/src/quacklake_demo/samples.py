"""More of the lake of ``quacklake serve-demo``: a pond with a year of readings, and transactions of blockchains.

It is made after the shop, so that nobody waits for it.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING

from quacklake.extend.duckdbs import arrow_table
from quacklake.extend.duckdbs import connect as duckdb
from quacklake.lake import Lake

if TYPE_CHECKING:
    from quacklake.pond import Pond

__all__ = ["add_block", "fill_chains", "fill_docks", "fill_pond"]

DAYS = 365
_READINGS = """
    SELECT t AS timestamp,
        round({warm} + 7 * sin(epoch(t) / 5022432 - 2) + 1.8 * sin(epoch(t) / 13751)
            + hash(i + {seed}) % 1000 / 2500, 3) AS temperature,
        round(2.4 + {tide} * sin(epoch(t) / 7112) + 0.4 * sin(epoch(t) / 208000) + hash(i) % 1000 / 9000, 3) AS depth
    FROM (
        SELECT i, TIMESTAMPTZ '{last}' - to_minutes(CAST({minutes} - i AS INTEGER)) AS t FROM range({minutes}) AS r(i)
    )
    WHERE i NOT BETWEEN {minutes} * {gap} AND {minutes} * {gap} + 5760
    ORDER BY t
"""
_DOCKS = (("silver", 14.5, 0.9, 0.31, 3), ("b-dock", 13.0, 1.1, 0.62, 7))
_NOTES = """
    CREATE TABLE notes AS SELECT TIMESTAMPTZ '{last}' - to_days(days) AS time, place, text FROM (VALUES
        (251, 'silver', 'Battery changed, four days without readings'), (138, 'b-dock', 'Storm, the dock was cut off'),
        (92, 'silver', 'Sensor cleaned'), (9, 'b-dock', 'Calibrated')) AS n(days, place, text)
"""
_SITE = {
    "title": "The docks",
    "description": "A year of readings",
    "pages": [
        {
            "name": "index",
            "title": "This year",
            "content": "# The docks\n\nDrag to move, scroll to zoom.",
            "charts": [{"name": "temperature", "series": "/docks/*.series", "title": "Temperature (°C)"}],
        }
    ],
}
_TRANSACTIONS = """
    INSERT INTO blockchain.transactions
    SELECT network, subnet, 'EVM', moment, year(moment), month(moment), day(moment), hour(moment),
        '0x' || sha256('block' || network || block), block, '0x' || sha256('transaction' || network || i),
        (i % 20)::INTEGER, '0x' || left(sha256('wallet' || sender), 40),
        CASE WHEN i % 53 = 7 THEN NULL ELSE '0x' || left(sha256('wallet' || receiver), 40) END,
        (hash(i) % 90000000000)::VARCHAR || '00000000', (25000000000 + hash(i, 1) % 5000000000)::VARCHAR,
        (21000 + hash(i, 2) % 400000)::VARCHAR, (i // 40)::VARCHAR,
        CASE WHEN i % 10 < 3 THEN unhex(left(sha256('input' || i), 16)) END, i % 31 <> 5, moment
    FROM (
        SELECT i, network, subnet, i // 20 AS block,
            TIMESTAMPTZ '{last}' - to_seconds(({last_row} - 1 - i) * {seconds}) AS moment,
            floor(pow(hash(i, 3) % 1000 / 1000, 3) * 60) AS sender,
            floor(pow(hash(i, 4) % 1000 / 1000, 2) * 200) AS receiver
        FROM range({first_row}, {last_row}) AS r(i),
            (VALUES {nodes}) AS n(network, subnet, number) WHERE i % {share} = number
    )
"""
_NODES = (
    "('Avalanche', 'Mainnet', 0), ('Avalanche', 'Mainnet', 1), ('Avalanche', 'Fuji', 2), ('Ethereum', 'Mainnet', 3)"
)
_SHARE = 4
_VIEWS = (
    (
        "blockchain.transactions_by_hour",
        "SELECT network, date_trunc('hour', block_time) AS hour, count(*) AS transactions,"
        " count(*) FILTER (NOT success) AS failed FROM blockchain.transactions GROUP BY ALL",
        "on commit",
    ),
    (
        "blockchain.wallets",
        "SELECT from_address AS wallet, count(*) AS sent, max(block_time) AS last_time,"
        " count(DISTINCT network) AS networks FROM blockchain.transactions GROUP BY ALL",
        "manual",
    ),
)
FIRST = 12_000
"""The transactions that there are at first."""


def fill_pond(lake: Lake, now: dt.datetime) -> None:
    """Make a pond in a lake, with a reading a minute for a year at two docks, their reductions, notes and a site."""
    from quacklake.pond import Pond

    fill_docks(Pond.create_in(lake), now)


def fill_docks(pond: Pond, now: dt.datetime) -> None:
    """Add a reading a minute for a year at two docks to a pond, their reductions, notes and a site."""
    from quacklake.pond import reduces
    from quacklake.pond.series import append_series
    from quacklake.pond.site.export import store_site

    last = now.replace(second=0, microsecond=0)
    pond.run(["demo"], lambda fs: fs.make_directory("/docks"))
    with duckdb() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, warm, tide, gap, seed in _DOCKS:
            values = {"warm": warm, "tide": tide, "gap": gap, "seed": seed}
            text = _READINGS.format(last=last.isoformat(), minutes=DAYS * 1440, **values)
            rows = arrow_table(connection, text)
            pond.run(["demo"], partial(append_series, path=f"/docks/{name}.series", rows=rows))
    config = {"in_pattern": "/docks/*.series", "out_pattern": "$0", "resolutions": ["1h", "1d"]}
    pond.run(["demo"], lambda fs: fs.make_node("/reduced", "temporal-reduce", config))
    pond.run(["demo"], lambda fs: fs.write_file("/readme.md", b"# The docks\n\nOne reading a minute.\n"))
    pond.run(["demo"], lambda fs: store_site(fs, "/sites/docks.yaml", _SITE))
    reduces.maintain(pond)
    pond.lake.signed("Note what happened at the docks", "mia").sql(_NOTES.format(last=last.isoformat()))


def fill_chains(lake: Lake, now: dt.datetime) -> None:
    """Fill the table of Ekko's transactions with some weeks of two networks, and make views of it."""
    from quacklake_ekko.transactions import create_table

    create_table(lake)
    half, seconds = FIRST // 2, 150
    middle = now - dt.timedelta(seconds=half * seconds)
    lake.signed("Load old blocks", "ekko").sql(_insert(0, half, middle, seconds))
    lake.signed("Load newer blocks", "ekko").sql(_insert(half, FIRST, now, seconds))
    for name, query, refresh in _VIEWS:
        lake.materialized_views.create(name, query, refresh=refresh)


def add_block(lake: Lake, number: int, now: dt.datetime) -> None:
    """Add one block of transactions after those of ``fill_chains``."""
    first = FIRST + number * 5
    lake.signed("A block came in", "ekko").sql(_insert(first, first + 5, now, 1))


def _insert(first: int, last: int, now: dt.datetime, seconds: int) -> str:
    return _TRANSACTIONS.format(
        first_row=first, last_row=last, last=now.isoformat(), seconds=seconds, nodes=_NODES, share=_SHARE
    )
