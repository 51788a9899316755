"""The demo's story: what a lake is for, in steps that each do what they say."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from quacklake.cli.demo import data
from quacklake.cli.demo.others import meet_duckdb, share
from quacklake.cli.demo.stage import Stage, open_lake, own_settings
from quacklake.cli.demo.streaming import stream
from quacklake.cli.output import human_size
from quacklake.lake.lake import Lake
from quacklake.lake.table import Table
from quacklake.operations.expression import Expression


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
            share(stage, lake, lambda: open_lake(directory))
        finally:
            lake.close()
        if count:
            stream(stage, directory, count)
        meet_duckdb(stage, directory, lambda: open_lake(directory))
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
    lake.create_table("shop.products", data.PRODUCTS)
    stage.call('orders = lake.create_table("shop.orders", pa.schema([("id", pa.int64()), …]))')
    lake.create_table("shop.orders", data.ORDERS)
    stage.table(data.products(lake))


def _fill(stage: Stage, lake: Lake) -> None:
    stage.step("Append")
    orders = lake.table("shop.orders")
    stage.say("Arrow, pandas, polars, dictionaries or a DuckDB relation: each append is one snapshot.")
    stage.call(f"for month in range(1, {data.MONTHS}): orders.append(arrow_table)")
    for number in range(1, data.MONTHS):
        orders.append(data.month(number))
    last = data.month(data.MONTHS)
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
        orders.append([data.order(900_000 + number, product=1, quantity=1)])
    each = (time.perf_counter() - start) / rounds * 1000
    after = orders.plan()
    stage.say(
        f"{rounds} commits of about {each:.0f} ms, and {after.files.num_rows - before.files.num_rows} new files: "
        f"{_inlined(after.inlined)} rows wait in the catalog (inlined), and every read sees them."
    )


def _inlined(rows: pa.Table | None) -> int:
    return 0 if rows is None else int(rows.num_rows)


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
    stage.table(data.products(lake))
    return versions


def _transact(stage: Stage, lake: Lake) -> None:
    stage.step("One transaction over two tables")
    stage.say("An order and the stock it takes belong together: one snapshot, or none.")
    stage.call('with lake.transaction(message="an order") as tx: …')
    with lake.transaction(message="an order", author="demo") as tx:
        tx.table("shop.orders").append([data.order(900_100, product=2, quantity=3)])
        tx.table("shop.products").update({"stock": Expression("stock - 3")}, "id = 2")
    assert tx.snapshot is not None
    stage.say(f"Both are in snapshot {tx.snapshot.id}; {data.stock(lake, 2)} of tea are left.")
    stage.say("When something fails on the way, nothing has happened:")
    orders, before = lake.table("shop.orders"), lake.current_snapshot()
    count = orders.count()
    try:
        with lake.transaction() as tx:
            tx.table("shop.orders").append([data.order(900_101, product=2, quantity=999)])
            if data.stock(lake, 2) < 999:
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
    stage.say(_pruned(orders, where))


def _pruned(orders: Table, where: str) -> str:
    everything, plan = orders.plan(), orders.plan(where)
    return (
        f"{plan.files.num_rows} of {everything.files.num_rows} files are read to find "
        f"{orders.count(where):,} of {orders.count():,} orders."
    )
