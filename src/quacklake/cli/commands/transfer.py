"""``quacklake import`` and ``export``: take over whole sources, and write tables for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from quacklake.cli.commands.append import CSV, csv_options
from quacklake.cli.commands.rows import export_file
from quacklake.cli.context import Context
from quacklake.cli.options import At, Columns, DryRun, Where, also, argument, complete_table, names_of, option
from quacklake.cli.output import human_size, plural
from quacklake.cli.progress import stages
from quacklake.errors import InputError

if TYPE_CHECKING:
    from quacklake.lake.transfers import ExportReport, ImportReport, LeftOut

_PLACES = "parquet:FOLDER, csv:FOLDER, json:FOLDER, duckdb:FILE, delta:PLACE, iceberg:PLACE"
_SOURCE = f"{_PLACES}, excel:FOLDER, sqlite:FILE, postgresql://… or mysql://…"
_TARGET = f"The tables, by default all, and last the target: a file for one table, or {_PLACES} or postgresql://…."
_ADDRESSES = ("parquet:", "csv:", "json:", "duckdb:", "delta:", "iceberg:", "postgresql:", "postgres:")
_SHOWN = 20

Include = Annotated[
    list[str] | None, option("--include", "Only tables that match, such as 'shop.*'; may be repeated.", "PATTERN")
]
Exclude = Annotated[list[str] | None, option("--exclude", "No tables that match; may be repeated.", "PATTERN")]
Option = Annotated[
    list[str] | None, option("--option", "An option of the Delta or Iceberg connector; may be repeated.", "NAME=VALUE")
]


@also(CSV)
def import_(
    context: Context,
    source: Annotated[str, argument("SOURCE", _SOURCE)],
    table: Annotated[str | None, argument("TABLE", "The name of the table, if the source is one.")] = None,
    schema: Annotated[str | None, option("--schema", "Put all tables into this schema.", "NAME")] = None,
    include: Include = None,
    exclude: Exclude = None,
    in_place: Annotated[
        bool, option("--in-place", "Register Parquet files, a Delta or an Iceberg table without copying them.")
    ] = False,
    map_type: Annotated[
        list[str] | None,
        option("--map-type", "The type for values of a type that a lake lacks; may be repeated.", "TYPE=TYPE"),
    ] = None,
    options: Option = None,
    commit_rows: Annotated[
        int, option("--commit-rows", "The number of rows at which a commit ends, with the file.", "N", min=1)
    ] = 2_000_000,
    create: Annotated[bool, option("--create", "Create the lake if it does not exist.")] = False,
    dry_run: DryRun = False,
    **more: Any,
) -> None:
    """It can be interrupted at any time: the same command goes on, and copies nothing twice.

    A table appears with its first rows, and is complete when the command ends. Nothing is written if the lake has a
    table of the same name that this import did not make.
    """
    from quacklake import CsvOptions

    csv, _ = csv_options(more)
    with context.open(write=True, create=create and not dry_run) as lake, stages() as progress:
        report = lake.import_from(
            source,
            table,
            schema=schema,
            include=include or (),
            exclude=exclude or (),
            in_place=in_place,
            map_types=_pairs(map_type, "--map-type"),
            options=_pairs(options, "--option"),
            csv=None if csv == CsvOptions() else csv,
            commit_rows=commit_rows,
            dry_run=dry_run,
            progress=progress,
        )
    _print(context, report, "would import" if dry_run else "imported", f"from {report.source}")


def export(
    context: Context,
    names: Annotated[list[str], argument("[TABLE]... TARGET", _TARGET, autocompletion=complete_table)],
    format: Annotated[
        Literal["parquet", "csv", "json", "jsonl", "arrow", "excel"] | None,
        option("--format", "parquet, csv, json, jsonl, arrow or excel; by default taken from the file name.", "FORMAT"),
    ] = None,
    where: Where = None,
    columns: Columns = None,
    at: At = None,
    include: Include = None,
    exclude: Exclude = None,
    partition_by: Annotated[
        str | None, option("--partition-by", "Write folders such as year=2024 of these columns.", "NAMES")
    ] = None,
    options: Option = None,
    force: Annotated[bool, option("--force", "Replace what exists.")] = False,
    dry_run: DryRun = False,
) -> None:
    """All tables are of the same snapshot. What is written appears only when it is complete.

    A file for one table is compressed if its name ends in .gz or .zst. To send rows to another program, use
    `quacklake scan --output csv`.
    """
    *tables, target = names
    if not target.startswith(_ADDRESSES):
        if len(tables) != 1 or include or exclude or partition_by or options or dry_run:
            raise InputError(
                f"{target} is a file, which takes one table and none of these options",
                hint="to export several tables, name a target such as parquet:FOLDER or duckdb:FILE",
            )
        export_file(context, tables[0], target, format, where, columns, at, force)
        return
    if where is not None or columns is not None or format is not None:
        raise InputError(
            "--where, --columns and --format are for the file of one table", hint="name a file such as rows.parquet"
        )
    with context.open() as lake, stages() as progress:
        report = context.view(lake, at).export_to(
            target,
            tables,
            include=include or (),
            exclude=exclude or (),
            partition_by=names_of(partition_by) or (),
            replace=force,
            options=_pairs(options, "--option"),
            dry_run=dry_run,
            progress=progress,
        )
    where_to = f"of snapshot {report.snapshot_id} to {report.target}"
    _print(context, report, "would export" if dry_run else "exported", where_to)


def _pairs(given: Sequence[str] | None, name: str) -> dict[str, str]:
    found = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=f"'{name}'")
        found[key] = value
    return found


def _print(context: Context, report: ImportReport | ExportReport, verb: str, where: str) -> None:
    if not context.output.for_people:
        context.output.facts({**asdict(report), "rows": report.rows})
        return
    for table in report.tables[:_SHOWN]:
        before = f", {table.rows_before:,} before" if table.rows_before else ""
        size = f", {human_size(table.bytes)}" if table.bytes else ""
        context.output.say(f"{table.table}: {table.state}, {plural(table.rows, 'row')}{before}{size}")
    if len(report.tables) > _SHOWN:
        context.output.say(f"and {plural(len(report.tables) - _SHOWN, 'more table')}")
    for view in report.views[:_SHOWN]:
        context.output.say(f"{view}: view")
    _say_left_out(context, report.left_out)
    counts = f"{plural(len(report.tables), 'table')} with {plural(report.rows, 'row')}"
    context.output.say(f"{verb} {counts} {where}")


def _say_left_out(context: Context, left: Sequence[LeftOut]) -> None:
    for each in left[:_SHOWN]:
        context.output.say(f"not taken over: {each.what}: {each.reason}")
    if len(left) > _SHOWN:
        context.output.say(f"not taken over: {len(left) - _SHOWN:,} more, which --output json lists")
