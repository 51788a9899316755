"""The demo: a story about one lake, in steps that each do what they say. Every number is read from the lake."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from quacklake import Expression, Lake, telemetry
from quacklake.cli.output import human_size
from quacklake.errors import CommitConflict
from quacklake.extend.duckdbs import connect
from quacklake_demo import stage as shop
from quacklake_demo.pond_command import collect
from quacklake_demo.stage import Stage, open_lake, own_settings
from quacklake_demo.streaming import stream


def tell(console: Console, directory: Path, *, kept: bool = False, count: int = 0) -> None:
    """Tell the story with a lake in an empty directory. ``count`` events stream through Spark, if it is not 0."""
    stage = Stage(console)
    begun = time.perf_counter()
    with own_settings():
        lake = _make(stage, directory)
        try:
            _create(stage, lake)
            _fill(stage, lake)
            _stay_small(stage, lake)
            versions = _change(stage, lake)
            _transact(stage, lake)
            _travel(stage, lake, versions)
            _follow(stage, lake, versions)
            _list(stage, lake)
            _prune(stage, lake)
            _share(stage, lake, directory)
        finally:
            lake.close()
        if count:
            stream(stage, directory, count)
        _meet_duckdb(stage, directory)
        collect(stage, directory)
    stage.console.print()
    stage.say(f"{stage.steps} steps in {time.perf_counter() - begun:.1f} seconds.")
    if kept:
        stage.say(f"The lake stays: quacklake --lake sqlite:///{directory / 'lake.db'} tables")


def _make(stage: Stage, directory: Path) -> Lake:
    stage.step("Make a lake")
    stage.say("A lake is a database with the metadata, here a SQLite file, and a folder with Parquet files.")
    stage.call('lake = quacklake.connect("sqlite:///lake.db", data_path="data/")')
    lake = open_lake(directory)
    stage.say(f"It is empty, in the DuckLake format {lake.version}, at snapshot {lake.current_snapshot()}.")
    return lake


def _create(stage: Stage, lake: Lake) -> None:
    stage.step("Create tables")
    stage.say("From rows, whose types are then the table's, or from an Arrow schema.")
    stage.call('lake.create_schema("shop")')
    lake.create_schema("shop")
    stage.call('products = lake.create_table("shop.products", [{"id": 1, "name": "coffee", …}, …])')
    lake.create_table("shop.products", shop.PRODUCTS)
    stage.call('orders = lake.create_table("shop.orders", pa.schema([("id", pa.int64()), …]))')
    lake.create_table("shop.orders", shop.ORDERS)
    stage.table(shop.products(lake))


def _fill(stage: Stage, lake: Lake) -> None:
    stage.step("Append")
    orders = lake.table("shop.orders")
    stage.say("Arrow, pandas, polars, dictionaries or a DuckDB relation: each append is one snapshot.")
    stage.call(f"for month in range(1, {shop.MONTHS}): orders.append(arrow_table)")
    for number in range(1, shop.MONTHS):
        orders.append(shop.month(number))
    last = shop.month(shop.MONTHS)
    if importlib.util.find_spec("pandas") is None:
        orders.append(last)
    else:
        stage.call("orders.append(pandas_frame)")
        orders.append(last.to_pandas(date_as_object=True))
    files = orders.files()
    size = pc.sum(files.column("file_size_bytes")).as_py()
    stage.say(f"{orders.count():,} orders are now in {files.num_rows} Parquet files, {human_size(size)} together.")


def _stay_small(stage: Stage, lake: Lake) -> None:
    stage.step("Small commits make no small files")
    orders = lake.table("shop.orders")
    before, start, rounds = orders.plan(), time.perf_counter(), 5
    stage.call(f'for n in range({rounds}): orders.append([{{"id": 900_000 + n, "day": …}}])')
    for number in range(rounds):
        orders.append([shop.order(900_000 + number, product=1, quantity=1)])
    each = (time.perf_counter() - start) / rounds * 1000
    after = orders.plan()
    stage.say(
        f"{rounds} commits of about {each:.0f} ms, and {after.files.num_rows - before.files.num_rows} new files: "
        f"{0 if after.inlined is None else after.inlined.num_rows} rows are inlined in the catalog, and every read "
        "returns them."
    )


def _change(stage: Stage, lake: Lake) -> dict[str, int]:
    """Change rows, and return the snapshot after each change."""
    stage.step("Update, merge, delete")
    products, orders = lake.table("shop.products"), lake.table("shop.orders")
    versions = {"before": lake.current_snapshot()}
    stage.call('products.update({"price": quacklake.expr("price * 2")}, "name = \'coffee\'")')
    updated = products.update({"price": Expression("price * 2")}, "name = 'coffee'")
    versions["update"] = lake.current_snapshot()
    stage.call('products.merge([{"id": 3, …}, {"id": 4, …}], on="id")')
    rows = [
        {"id": 3, "name": "cocoa", "price": 5.5, "stock": 250},
        {"id": 4, "name": "mate", "price": 7.0, "stock": 50},
    ]
    merged = products.merge(rows, on="id")
    versions["merge"] = lake.current_snapshot()
    stage.call("orders.delete(\"day < DATE '2025-02-01'\")")
    deleted = orders.delete("day < DATE '2025-02-01'")
    versions["delete"] = lake.current_snapshot()
    stage.say(
        f"Updated {updated}; merged {merged.updated} into an existing row and {merged.inserted} as a new one; "
        f"deleted {deleted:,}."
    )
    stage.table(shop.products(lake))
    return versions


def _transact(stage: Stage, lake: Lake) -> None:
    stage.step("One transaction over two tables")
    stage.say("An order and the stock it takes belong together: one snapshot, or none.")
    stage.call('with lake.transaction(message="an order") as tx: …')
    with lake.transaction(message="an order", author="demo") as tx:
        tx.table("shop.orders").append([shop.order(900_100, product=2, quantity=3)])
        tx.table("shop.products").update({"stock": Expression("stock - 3")}, "id = 2")
    assert tx.snapshot is not None
    stage.say(f"Both are in snapshot {tx.snapshot.id}; {shop.stock(lake, 2)} of tea are left.")
    stage.say("When something fails on the way, nothing has happened:")
    orders, before = lake.table("shop.orders"), lake.current_snapshot()
    count = orders.count()
    try:
        with lake.transaction() as tx:
            tx.table("shop.orders").append([shop.order(900_101, product=2, quantity=999)])
            if shop.stock(lake, 2) < 999:
                raise RuntimeError("not enough tea")
    except RuntimeError as error:
        stage.say(
            f'  "{error}": {orders.count() - count} orders were added, '
            f"{lake.current_snapshot() - before} snapshots were made."
        )


def _travel(stage: Stage, lake: Lake, versions: dict[str, int]) -> None:
    stage.step("Travel in time")
    stage.say("Every snapshot stays readable.")
    stage.call(f'lake.at(version={versions["before"]}).table("shop.products").to_arrow()')
    rows = []
    for when, version in versions.items():
        past = lake.at(version=version)
        products = past.table("shop.products")
        rows.append(
            {
                "snapshot": version,
                "after": "(start)" if when == "before" else when,
                "price of coffee": products.to_pylist(["price"], "id = 1")[0]["price"],
                "products": products.count(),
                "orders": past.table("shop.orders").count(),
            }
        )
    stage.table(pa.Table.from_pylist(rows))


def _follow(stage: Stage, lake: Lake, versions: dict[str, int]) -> None:
    stage.step("Follow the changes")
    stage.say("What came and went, row by row; an update has two images, and the row keeps its id.")
    since, until = versions["update"], versions["merge"]
    stage.call(f"products.changes(since={since}, until={until})")
    feed = lake.table("shop.products").changes(since, until).to_arrow()
    stage.table(feed.sort_by([("snapshot_id", "ascending"), ("rowid", "ascending"), ("change_type", "descending")]))


def _list(stage: Stage, lake: Lake) -> None:
    stage.step("See what happened")
    stage.call("lake.snapshots()")
    snapshots = lake.snapshots()
    last = snapshots.slice(max(snapshots.num_rows - 6, 0))
    shown = last.select(["snapshot_id", "changes", "author", "commit_message"])
    stage.table(shown, total=snapshots.num_rows)


def _prune(stage: Stage, lake: Lake) -> None:
    stage.step("Read only what is needed")
    stage.say("The catalog knows the smallest and largest value of every column in every file.")
    orders, where = lake.table("shop.orders"), "day >= DATE '2025-06-01'"
    stage.call(f'orders.plan(where="{where}")')
    everything, plan = orders.plan(), orders.plan(where)
    stage.say(
        f"{plan.files.num_rows} of {everything.files.num_rows} files are read to find "
        f"{orders.count(where):,} of {orders.count():,} orders."
    )


# -- other clients: a second writer, and stock DuckDB ------------------------------------------------------------------


def _share(stage: Stage, lake: Lake, directory: Path) -> None:
    """Let two writers change the same row."""
    stage.step("Share it")
    with open_lake(directory) as other:
        _collide(stage, lake, other)
        _compete(stage, lake, other)


def _collide(stage: Stage, lake: Lake, other: Lake) -> None:
    stage.say("Two writers change one row. The transaction that commits last is refused, and changes nothing:")
    try:
        with lake.transaction() as tx:
            tx.table("shop.products").update({"stock": Expression("stock - 1")}, "id = 1")
            other.table("shop.products").update({"stock": Expression("stock - 1")}, "id = 1")
    except CommitConflict as error:
        stage.say(f"  {type(error).__name__}: {error.message}")


def _compete(stage: Stage, lake: Lake, other: Lake) -> None:
    stage.say("A single operation is planned again by itself. Two writers take one from the stock at the same time:")
    times = 5
    stage.call(f'for n in range({times}): products.update({{"stock": quacklake.expr("stock - 1")}}, "id = 1")')
    before, replans = shop.stock(lake, 1), _replans()
    start = threading.Barrier(2)

    def sell(mine: Lake) -> None:
        try:
            for _ in range(times):
                start.wait()
                mine.table("shop.products").update({"stock": Expression("stock - 1")}, "id = 1")
        except BaseException:
            start.abort()  # otherwise the other thread would wait forever
            raise

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(sell, mine) for mine in (lake, other)]:
            future.result()
    after, again = shop.stock(lake, 1), _replans() - replans
    stage.say(
        f"{2 * times} updates met {again} conflict{'' if again == 1 else 's'} and lost nothing: "
        f"the stock went from {before} to {after}, which is {before - after} less."
    )


def _replans() -> int:
    return telemetry.snapshot().counters.get("commit.replans", 0)


def _meet_duckdb(stage: Stage, directory: Path) -> None:
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
    with open_lake(directory) as lake:
        changes = lake.table("shop.products").history().column("changes").to_pylist()
        stage.say(
            f"Back here it is snapshot {lake.current_snapshot()}, with the changes {changes[1]} and {changes[0]}:"
        )
        stage.table(shop.products(lake))


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
