"""The part of the demo with other clients: a second writer, and stock DuckDB."""

from __future__ import annotations

import importlib
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb

from quacklake import telemetry
from quacklake.cli.demo import data
from quacklake.cli.demo.stage import Stage
from quacklake.duckdb_versions import connect
from quacklake.errors import CommitConflict
from quacklake.lake.lake import Lake
from quacklake.operations.expression import Expression

_PRODUCTS = "shop.products"


def share(stage: Stage, lake: Lake, connect: Callable[[], Lake]) -> None:
    """Let two writers change the same row."""
    stage.step("Share it")
    with connect() as other:
        _collide(stage, lake, other)
        _compete(stage, lake, other)


def _collide(stage: Stage, lake: Lake, other: Lake) -> None:
    stage.say("Two writers change one row. The transaction that commits last is refused, and changes nothing:")
    try:
        with lake.transaction() as tx:
            tx.table(_PRODUCTS).update({"stock": Expression("stock - 1")}, "id = 1")
            other.table(_PRODUCTS).update({"stock": Expression("stock - 1")}, "id = 1")
    except CommitConflict as error:
        stage.say(f"  {type(error).__name__}: {error.message}")


def _compete(stage: Stage, lake: Lake, other: Lake) -> None:
    stage.say("A single operation is planned again by itself. Two writers take one from the stock at the same time:")
    times = 5
    stage.call(f'for n in range({times}): products.update({{"stock": quacklake.expr("stock - 1")}}, "id = 1")')
    before, replans = data.stock(lake, 1), _replans()
    start = threading.Barrier(2)

    def sell(mine: Lake) -> None:
        try:
            for _ in range(times):
                start.wait()
                mine.table(_PRODUCTS).update({"stock": Expression("stock - 1")}, "id = 1")
        except BaseException:
            start.abort()  # otherwise the other thread would wait forever
            raise

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(sell, mine) for mine in (lake, other)]:
            future.result()
    after, again = data.stock(lake, 1), _replans() - replans
    stage.say(
        f"{2 * times} updates met {again} conflict{'' if again == 1 else 's'} and lost nothing: "
        f"the stock went from {before} to {after}, which is {before - after} less."
    )


def _replans() -> int:
    return telemetry.snapshot().counters.get("commit.replans", 0)


def meet_duckdb(stage: Stage, directory: Path, connect: Callable[[], Lake]) -> None:
    """Let stock DuckDB read and write the lake, which is closed here meanwhile."""
    stage.step("Let stock DuckDB read and write the same lake")
    with tempfile.TemporaryDirectory(prefix="quacklake-extensions-") as extensions:
        try:
            connection = _open_duckdb(Path(extensions))
        except (ImportError, AttributeError, duckdb.Error) as error:  # the packages do not support every DuckDB
            stage.say(f"Left out: DuckDB's ducklake extension is not here ({str(error).splitlines()[0]}).")
            return
        with connection:
            _visit(stage, connection, directory)
    with connect() as lake:
        changes = lake.table(_PRODUCTS).history().column("changes").to_pylist()
        stage.say(
            f"Back here it is snapshot {lake.current_snapshot()}, with the changes {changes[1]} and {changes[0]}:"
        )
        stage.table(data.products(lake))


def _visit(stage: Stage, connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
    stage.sql("ATTACH 'ducklake:sqlite:lake.db' AS lake")
    path = str(directory / "lake.db").replace("'", "''")
    connection.execute(f"ATTACH 'ducklake:sqlite:{path}' AS lake")
    query = "FROM lake.shop.orders SELECT count(*), sum(quantity)"
    stage.sql(query)
    count, quantity = connection.sql(query).fetchall()[0]
    stage.say(f"DuckDB counts {count:,} orders for {quantity:,} things.")
    if connection.sql("SELECT 1 FROM duckdb_tables() WHERE table_name = 'minutes'").fetchall():
        _read_streams(stage, connection)
    for statement in (
        "INSERT INTO lake.shop.products VALUES (5, 'cider', 3.5, 80)",
        "UPDATE lake.shop.products SET price = price + 1 WHERE name = 'tea'",
    ):
        stage.sql(statement)
        connection.execute(statement)
    connection.execute("DETACH lake")


def _read_streams(stage: Stage, connection: duckdb.DuckDBPyConnection) -> None:
    query = "FROM lake.stream.minutes SELECT count(*), sum(events), sum(amount)"
    stage.sql(query)
    minutes, counted, amount = connection.sql(query).fetchall()[0]
    events = connection.sql("FROM lake.stream.events SELECT count(DISTINCT id), sum(amount)").fetchall()[0]
    stage.say(
        f"DuckDB finds {counted:,} events worth {amount:,} in {minutes:,} totals, and in the events themselves"
        f" {events[0]:,} different ones, worth {events[1]:,}."
    )


def _open_duckdb(extensions: Path) -> duckdb.DuckDBPyConnection:
    """Open DuckDB with the extensions that are installed as Python packages. Nothing is downloaded."""
    wheels = importlib.import_module("duckdb_extensions")
    config: dict[str, str | bool | int | float | list[str]] = {
        "extension_directory": str(extensions),
        "autoinstall_known_extensions": False,
    }
    connection = connect(config=config)
    try:
        for name in ("ducklake", "sqlite_scanner"):
            wheels.import_extension(name, con=connection)
            connection.execute(f"LOAD {name}")
    except BaseException:
        connection.close()
        raise
    return connection
