"""Shared lakes as a fork of DuckLake with catalogs made them, in its versions 0.4-dev1 and 0.5-dev1."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

import quacklake
from quacklake.core.catalog import parse_url

__all__ = ["build"]

_OWN = ("snapshot", "snapshot_changes", "schema", "table", "view", "table_stats", "partition_info")
_WITH_CATALOG = (*_OWN, "files_scheduled_for_deletion", "schema_versions", "macro")
_SHIFT = 1000
_MYSQL = {"VARCHAR": "LONGTEXT", "TIMESTAMP WITH TIME ZONE": "TEXT"}


def build(url: str, home: Path, version: str, names: tuple[str, ...]) -> dict[str, list[int]]:
    """Make a lake of catalogs, each with a table ``users``; returns the snapshots of each.

    Each is made as a plain lake, and its rows are put together in one set of tables, in which ids are never used twice.
    """
    kind = "VARCHAR(255)" if version == "0.4-dev1" else "BIGINT"
    snapshots: dict[str, list[int]] = {}
    engine = sa.create_engine(parse_url(url).url)
    with engine.begin() as target:
        for number, name in enumerate(names):
            plain = f"sqlite:///{home}/{name}.db"
            with quacklake.connect(plain, home / "data" / name, data_inlining_row_limit=0) as lake:
                lake.create_table("users", {"id": list(range(number, number + 5)), "name": [name] * 5})
                lake.table("users").append({"id": [100], "name": [name]})
                lake.table("users").delete(f"id = {number}")
            source = sa.create_engine(plain)
            with source.connect() as reader:
                _copy(reader, target, number, name, kind, version, home)
                ids = reader.execute(sa.text("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1")).scalars()
                snapshots[name] = [id_ + number * _SHIFT for id_ in ids]
            source.dispose()
    engine.dispose()
    return snapshots


def _copy(
    reader: sa.Connection, target: sa.Connection, number: int, name: str, kind: str, version: str, home: Path
) -> None:
    key = f"'{name}'" if kind != "BIGINT" else str(number)
    for table in sa.inspect(reader).get_table_names():
        if not table.startswith("ducklake_") or "inlined_de" in table:
            continue
        short, columns = table.removeprefix("ducklake_"), _columns(reader, table, version)
        if target.dialect.name == "postgresql":
            columns = [(c, "UUID" if c.endswith("_uuid") else t) for c, t in columns]
        if target.dialect.name in ("mysql", "mariadb"):
            columns = [(c, _MYSQL.get(t, t)) for c, t in columns]
        with_catalog = short in _WITH_CATALOG
        if number == 0:
            first = f"catalog_id {kind}, " if with_catalog else ""
            quote = target.dialect.identifier_preparer.quote
            listed = ", ".join(f"{quote(c)} {t}" for c, t in columns)
            target.execute(sa.text(f"CREATE TABLE {table} ({first}{listed})"))
        elif short == "metadata":
            continue
        for row in reader.execute(sa.text(f"SELECT {', '.join(c for c, _ in columns)} FROM {table}")).mappings():
            values = {column: _shifted(column, row[column], number) for column, _ in columns}
            if short == "metadata":
                values["value"] = {"version": version, "data_path": f"{home}/data/"}.get(row["key"], row["value"])
            for column, type_ in columns:
                if type_ == "BOOLEAN" and values[column] is not None:
                    values[column] = bool(values[column])
            named = ", ".join(f":{column}" for column in values)
            first = f"{key}, " if with_catalog else ""
            target.execute(sa.text(f"INSERT INTO {table} VALUES ({first}{named})"), values)
    if number == 0:
        target.execute(
            sa.text(
                f"CREATE TABLE ducklake_catalog (catalog_id {kind}, catalog_name VARCHAR(99), created_snapshot BIGINT)"
            )
        )
    target.execute(sa.text(f"INSERT INTO ducklake_catalog VALUES ({key}, '{name}', {number * _SHIFT})"))


def _columns(reader: sa.Connection, table: str, version: str) -> list[tuple[str, str]]:
    found = []
    flags = ("path_is_relative", "nulls_allowed", "contains_null", "contains_nan", "is_partition")
    for column in sa.inspect(reader).get_columns(table):
        name = column["name"]
        if version == "0.4-dev1" and name in ("partial_max", "default_value_type", "default_value_dialect"):
            continue
        if version == "0.4-dev1" and (table, name) == ("ducklake_schema_versions", "table_id"):
            continue
        number = isinstance(column["type"], sa.Integer) and name not in flags
        kind = "BOOLEAN" if name in flags else "BIGINT" if number else "VARCHAR"
        if name in ("snapshot_time", "schedule_start"):
            kind = "TIMESTAMP WITH TIME ZONE"
        found.append((name, kind))
    return found


def _shifted(column: str, value: object, number: int) -> object:
    ids = ("snapshot_id", "begin_snapshot", "end_snapshot", "table_id", "schema_id", "data_file_id", "delete_file_id")
    if isinstance(value, int) and column in (*ids, "next_catalog_id", "next_file_id"):
        return value + number * _SHIFT
    return value
