"""``quacklake sql``: run statements, or a shell. Ctrl-C ends a statement, which runs in a thread for that."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from quacklake import telemetry
from quacklake.cli.context import NO_LAKE, Context
from quacklake.cli.options import AllRows, At, ShownRows, argument, option
from quacklake.cli.output import plural
from quacklake.cli.progress import stages
from quacklake.errors import CancelledError, InputError, SqlError

if TYPE_CHECKING:
    from rich.console import Console

    from quacklake import Result, Session
    from quacklake.core.operations.handles import LakeHandle
    from quacklake.extend.reporting import Progress
    from quacklake.lake.lake import Lake, LakeAt


T = TypeVar("T")
_GLANCE = 0.1
"""Seconds between two checks whether the statement has ended."""


def sql(
    context: Context,
    statement: Annotated[str | None, argument("STATEMENT", "One or more statements, separated by ;")] = None,
    file: Annotated[
        str | None, option("--file -f", "Run the statements in a file, or in standard input for -.", "FILE")
    ] = None,
    limit: ShownRows = None,
    all_rows: AllRows = False,
    at: At = None,
) -> None:
    """The SQL is that of DuckDB. Every statement that changes something makes a snapshot, except in a transaction.

    Without a statement or file, the command reads standard input, or opens a shell on a terminal; enter .help there.
    With --output json, csv or arrow, it prints only the result of the last statement.
    """
    from quacklake.core.sql.sessions import late_session
    from quacklake.extend.sql import open_session

    count = context.row_limit(limit, all_rows)
    text = _text(statement, file)
    with ExitStack() as lakes:

        def view() -> Lake | LakeAt:
            return context.view(lakes.enter_context(context.open(write=at is None)), at)

        def handle() -> Lake | LakeAt | LakeHandle:
            if at is not None:
                return view()
            opened = context.open_for_sql(write=True)
            lakes.callback(opened.close)
            return opened

        if text is not None:
            late = late_session(handle if context.config.url else None, context.config)
            with closing(Statements(late)) as statements, _hint_at_missing_lake(context):
                run_text(context, statements, text, count)
            return
        from quacklake.cli.shell import Shell

        shown = view()
        with closing(Statements(open_session(shown))) as statements:
            Shell(context, shown, statements).run()


@contextmanager
def _hint_at_missing_lake(context: Context) -> Iterator[None]:
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
        raise InputError("pass either a statement or --file")
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
    """Run statements in turn. People see every result, programs only the last one."""
    from quacklake.extend.sql import split

    parts = split(text)
    for number, part in enumerate(parts, 1):
        result = statements.execute(part)
        last = number == len(parts)
        if statements.interrupted and not last:
            raise CancelledError("the statement was already done; the others were not run")
        if context.output.for_people and (result.rowcount >= 0 or not result.columns):
            context.output.say(f"{plural(result.rowcount, 'row')} changed" if result.rowcount >= 0 else "done")
        elif last or context.output.for_people:
            statements.run(lambda _, found=result: context.output.first_rows(found.to_reader(), limit))  # type: ignore[misc]


class Statements:
    """A session for the statements of one person."""

    def __init__(self, session: Session, console: Console | None = None) -> None:
        self.session = session
        self._console = console
        self.session.python_frames = False  # statements do not see this program's variables
        self.interrupted = False
        """True when Ctrl-C was pressed during the last piece of work."""

    def close(self) -> None:
        """Roll back the open transaction."""
        self.session.close()

    def execute(self, statement: str) -> Result:
        """Run a statement. One that writes for more than a second shows the number of rows written."""

        def rows_taken() -> int:
            return telemetry.snapshot().counters.get(telemetry.ROWS_TAKEN, 0)

        before = rows_taken()
        tell: Progress | None = None
        with ExitStack() as bar:

            def glance() -> None:
                nonlocal tell
                rows = rows_taken() - before
                if rows and tell is None:
                    tell = bar.enter_context(stages(console=self._console))
                if tell is not None:
                    tell("writing rows", rows, None)

            return self.run(lambda session: session.statement(statement), glance)

    def run(self, work: Callable[[Session], T], glance: Callable[[], None] = lambda: None) -> T:
        """Run a function with the session. Ctrl-C ends it with ``CancelledError``, unless it is too late for that.

        ``glance`` is called several times a second meanwhile.
        """
        ended = threading.Event()
        results: list[T] = []
        failures: list[BaseException] = []

        def target() -> None:
            try:
                results.append(work(self.session))
            except BaseException as error:
                failures.append(error)
            finally:
                ended.set()

        cancelled = False
        threading.Thread(target=target, name="statement", daemon=True).start()
        # not Thread.join, which treats a thread as ended when it is interrupted itself
        while not ended.is_set():
            try:
                if cancelled:
                    self.session.interrupt()  # once more: the work may not have begun, or may have begun something new
                ended.wait(_GLANCE)
                glance()
            except KeyboardInterrupt:
                cancelled = True
        self.interrupted = cancelled
        if failures:
            raise failures[0]
        return results[0]
