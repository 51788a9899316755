"""``pond copy``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from quacklake.cli.commands.append import CSV, csv_options
from quacklake.cli.options import also, argument, option
from quacklake.cli.output import plural
from quacklake.cli.pond.context import PondContext

if TYPE_CHECKING:
    from pathlib import Path

    from quacklake import CsvOptions
    from quacklake.pond import FS, ImportOptions, Pond
    from quacklake.pond.copying import Outgoing
    from quacklake.pond.series import Imported

Paths = Annotated[
    list[str] | None,
    argument("PATH", "The files to copy, and last where they go; host:///… is a path of this machine."),
]
_FORMAT = "auto, data (bytes as they are), table (parquet is the same) or series."


@also(CSV)
def copy(
    context: PondContext,
    paths: Paths = None,
    format: Annotated[Literal["auto", "data", "table", "parquet", "series"], option("--format", _FORMAT)] = "auto",
    timestamp_column: Annotated[
        str | None, option("--timestamp-column", "The column with the times of a series.", "NAME")
    ] = None,
    timezone: Annotated[
        str | None, option("--timezone", "The zone of times that are written without one.", "ZONE")
    ] = None,
    ambiguous: Annotated[
        Literal["refuse", "earlier", "later"],
        option("--ambiguous", "Which of two a local time is that comes twice, when clocks go back."),
    ] = "refuse",
    nonexistent: Annotated[
        Literal["refuse", "shift"],
        option("--nonexistent", "What a local time is that never comes, when clocks go forward."),
    ] = "refuse",
    allow_future: Annotated[bool, option("--allow-future", "Accept times that are more than a day ahead.")] = False,
    keep_conflicts: Annotated[
        bool, option("--keep-conflicts", "Store two different readings of one time, instead of refusing them.")
    ] = False,
    replace: Annotated[bool, option("--replace", "Replace a file of bytes by a new version.")] = False,
    force: Annotated[bool, option("--force", "Replace files of this machine.")] = False,
    **more: Any,
) -> None:
    """All files are copied in one transaction, or none. The last path is where they go.

    In: a destination that is a directory, or ends with a slash, takes all files under their names; else there is one
    file, and its new path. Parquet files become tables, files for a path that ends in .series become series, and
    everything else stays bytes, unless --format says otherwise. CSV, JSON, Parquet, Arrow, Excel and reports in
    HTML that are called Excel files have rows. Rows for an existing series are its next version.

    Out: when the destination is host:///PATH, nodes of the pond are copied to this machine, tables and series as
    Parquet, or as the suffix of the file says. Several nodes go into a folder, and keep their paths there.
    """
    from quacklake.errors import InputError
    from quacklake.pond.inputs import is_host

    *sources, destination = paths or [""]
    if not sources:
        raise InputError("At least one source file must be specified", hint="pond copy FILE… DESTINATION")
    if is_host(destination):
        _copy_out(context, sources, destination, force=force)
        return
    csv, _ = csv_options(more)
    given = (timestamp_column, timezone, allow_future, keep_conflicts, csv, (ambiguous, nonexistent))
    _copy_in(context, sources, destination, format, given, replace=replace)


def _copy_in(
    context: PondContext, sources: list[str], destination: str, format: str, given: tuple[Any, ...], *, replace: bool
) -> None:
    from quacklake.pond.copying import copy_in, targets
    from quacklake.pond.inputs import parse_host

    def work(pond: Pond, fs: FS) -> list[Imported]:
        options = _options(fs, *given)
        found = targets(fs, [parse_host(each) for each in sources], destination, format, replace=replace)
        return [copy_in(fs, target, options, replace=replace) for target in found]

    done = context.change(work)
    if context.output.for_people:
        for each in done:
            context.output.say(_sentence(each))
        return
    import pyarrow as pa

    rows = [
        {
            "path": each.path,
            "type": str(each.entry_type),
            "version": each.version,
            "rows": each.rows,
            "repeated": each.repeated,
            "sorted": each.sorted,
        }
        for each in done
    ]
    context.output.rows(pa.Table.from_pylist(rows))


def _options(
    fs: FS,
    column: str | None,
    timezone: str | None,
    allow_future: bool,
    keep_conflicts: bool,
    csv: CsvOptions,
    local: tuple[str, str],
) -> ImportOptions:
    from quacklake.pond import ImportOptions
    from quacklake.pond.local_times import LocalRule

    zone = timezone or fs.settings.get("timezone")
    return ImportOptions(column, zone, allow_future, keep_conflicts, csv, LocalRule(*local))


def _sentence(done: Imported) -> str:
    if not done.entry_type.has_rows:
        return f"copied {done.path} (v{done.version})"
    more = f", left out {plural(done.repeated, 'row')} that it has already" if done.repeated else ""
    if not done.rows and done.repeated:
        return f"{done.path} is unchanged{more}"
    order = ", put in order of time" if done.sorted else ""
    return f"copied {plural(done.rows, 'row')} to {done.path} (v{done.version}){more}{order}"


def _copy_out(context: PondContext, sources: list[str], destination: str, *, force: bool) -> None:
    from quacklake.pond.copying import copy_out, outgoing
    from quacklake.pond.inputs import parse_host

    with context.pond(write=True) as pond:
        fs = pond.fs()
        for out in outgoing(fs, sources, parse_host(destination), force=force):
            if out.format is None:
                size = copy_out(fs, out)
                facts: dict[str, Any] = {"path": out.found.path, "file": str(out.path), "bytes": size}
                context.output.result(f"copied {out.found.path} to {out.path} ({plural(size, 'byte')})", facts)
            else:
                rows = _export(pond, out, out.format)
                facts = {"path": out.found.path, "file": str(out.path), "rows": rows}
                context.output.result(f"copied {plural(rows, 'row')} of {out.found.path} to {out.path}", facts)


def _export(pond: Pond, out: Outgoing, format: str) -> int:
    from quacklake.cli.commands.rows import count_rows, write_rows
    from quacklake.extend.stores import replace_file
    from quacklake.pond.queries import rows

    def write(path: Path) -> int:
        with rows(pond, out.found.path) as reader:
            count, _ = count_rows(reader, "copying rows", None, lambda counted: write_rows(counted, path, format, None))
        return count

    with replace_file(out.path.absolute(), parents=True) as part:
        return write(part)
