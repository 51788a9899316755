"""``quacklake sql``: run one statement, several, or a shell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quacklake.cli.context import NO_LAKE, Context
from quacklake.cli.options import At, count_of
from quacklake.cli.output import plural
from quacklake.errors import CancelledError, InputError, SqlError

if TYPE_CHECKING:
    from quacklake.cli.statements import Statements
    from quacklake.lake.lake import Lake, LakeAt


def sql(
    context: Context,
    statement: Annotated[
        str | None, typer.Argument(metavar="STATEMENT", help="one statement, or several with ; between them")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Run the statements of a file, or - for standard input."),
    ] = None,
    limit: Annotated[
        str, typer.Option("--limit", "-n", metavar="ROWS", help="How many rows a table shows at most, or all.")
    ] = "100",
    at: At = None,
) -> None:
    """DuckDB's SQL over the tables of the lake. Every change is a snapshot, unless it stands between BEGIN and COMMIT.

    Without a statement and a file it reads standard input; on a terminal that is a shell, in which help tells more.
    With --output json, csv or arrow, it is what the last statement gives.
    """
    from quacklake.cli.statements import Statements
    from quacklake.sql.sessions import late_session, session_of

    count = count_of(limit)
    text = _text(statement, file)
    with ExitStack() as lakes:

        def view() -> Lake | LakeAt:
            return context.view(lakes.enter_context(context.open(write=at is None)), at)

        if text is not None:
            late = late_session(view if context.config.url else None, context.config)
            with closing(Statements(late)) as statements, _told_of_no_lake(context):
                run_text(context, statements, text, count)
            return
        from quacklake.cli.shell import run_shell

        shown = view()
        with closing(Statements(session_of(shown.handle))) as statements:
            run_shell(context, shown, statements)


@contextmanager
def _told_of_no_lake(context: Context) -> Iterator[None]:
    """Add a hint to errors without a lake: statements may do without one, but a missing name may be in one."""
    import duckdb

    try:
        yield
    except SqlError as error:
        if context.config.url is None and isinstance(error.__cause__, duckdb.CatalogException):
            error.hint = f"no lake was given: {NO_LAKE}"
        raise


def _text(statement: str | None, file: str | None) -> str | None:
    """Return the text to run, or None for a shell."""
    if statement is not None and file is not None:
        raise InputError("pass a statement or --file, not both")
    if statement is not None:
        return statement
    if file is None and sys.stdin.isatty():
        return None
    if file in (None, "-"):
        return sys.stdin.read()
    try:
        return Path(file or "").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error


def run_text(context: Context, statements: Statements, text: str, limit: int | None) -> None:
    """Run statements one after the other. People see every result, programs only the last one."""
    from quacklake.sql.words import split

    parts = split(text)
    for number, part in enumerate(parts, 1):
        result = statements.execute(part)
        last = number == len(parts)
        if statements.interrupted and not last:
            raise CancelledError("this statement was done already, the others are left out")
        if context.output.for_people and (result.rowcount >= 0 or not result.columns):
            context.output.say(f"{plural(result.rowcount, 'row')} changed" if result.rowcount >= 0 else "done")
        elif last or context.output.for_people:
            statements.run(lambda _, found=result: context.output.first_rows(found.to_reader(), limit))  # type: ignore[misc]
