"""Run the command line, from its arguments to an exit code."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

import quacklake
from quacklake import telemetry
from quacklake.cli.commands import Entry
from quacklake.cli.context import Options
from quacklake.cli.failures import (
    Form,
    log_failures_of_threads,
    report,
    report_interrupt,
    report_usage,
    take_unknown_variables,
    warn_of_variables,
)
from quacklake.cli.options import F, option, parameters_of
from quacklake.cli.programs import QUACKLAKE, Program
from quacklake.cli.progress import waiting
from quacklake.errors import CancelledError, ConfigError
from quacklake.plugins import find_plugins, load_plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FAILED = 1
"""The exit code after an error. Wrong usage is 2."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""
BROKEN_PIPE = 141
"""The exit code when the reader of the output stops early, as ``head`` does: what a shell reports for SIGPIPE."""

_GARBAGE = 250_000
"""Objects created before the garbage collector runs: imported modules are not garbage."""
_HELP_NAMES: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}


def run(program: Program = QUACKLAKE) -> NoReturn:
    """Run a program. It exits without tearing down every module, which takes as long as a small command."""
    gc.set_threshold(_GARBAGE)
    hidden = unneeded(sys.argv[1:], program)
    sys.meta_path.insert(0, _Without(hidden))
    if hidden:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start threads, and nothing here needs them
    code = main(program=program)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main(argv: Sequence[str] | None = None, program: Program = QUACKLAKE) -> int:
    """Run one command, and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # escape characters that the terminal's encoding lacks
    try:
        code = command_line(program).main(words, prog_name=program.name, standalone_mode=False, obj=words)
    except typer.TyperException as error:
        report_usage(error, Form.of_words(words))
        return error.exit_code
    except typer.Abort:
        return _exit_interrupted(Form.of_words(words))
    except ConfigError as error:  # of a command of another package, which cannot be loaded
        report(error, Form.of_words(words), debug="--debug" in words)
        return FAILED
    return int(code or 0)


@cache
def command_line(program: Program = QUACKLAKE) -> Any:
    """Return the whole command line of a program. Its commands are loaded when they are used."""

    def root(**_: Any) -> None:
        """Take the options before the command, which are read from the context."""

    def show_version(wanted: bool) -> None:
        if wanted:
            sys.stdout.write(f"{program.name} {quacklake.__version__}\n")
            raise typer.Exit

    shown = Annotated[bool, option("--version", "Show the version and exit.", is_eager=True, callback=show_version)]
    version = inspect.Parameter("version", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=shown)
    _taking([version, *parameters_of(program.common)], root)
    return _group_of(program, Entry(program.name, program.help, commands=program.commands), root=root)


def _run(
    program: Program,
    entry: Entry,
    function: Callable[..., int | None],
    ctx: typer.Context,
    values: Mapping[str, Any],
) -> int:
    """Run a command, and report its errors. The caller reports wrong usage."""
    options = Options.of(ctx)
    form = Form(options.output == "json", Form.of_words(options.words).is_log)
    with _CtrlC() as ctrl_c:
        try:
            context = program.context(options)
            if function.__name__ != "doctor":  # doctor reports them itself
                unknown = take_unknown_variables()
                try:
                    form = replace(form, is_log=context.config.log_format == "json")
                finally:
                    warn_of_variables(unknown, form)
                telemetry.configure_logging(context.config.log_level, context.config.log_format)
            watched = log_failures_of_threads() if form.is_log else nullcontext()
            with watched, nullcontext() if entry.shows_progress else waiting(f"{ctx.info_name}: working"):
                code = function(context, **values)
            sys.stdout.flush()
        except (KeyboardInterrupt, typer.Abort):
            return _exit_interrupted(form)
        except BrokenPipeError:
            # buffered output has nowhere to go, and the interpreter would complain about it at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except (typer.TyperException, typer.Exit):
            raise
        except Exception as error:
            if ctrl_c.pressed or isinstance(error, CancelledError):
                return _exit_interrupted(form)
            report(error, form, debug=options.debug)
            return FAILED
    return code or 0


def _exit_interrupted(form: Form) -> int:
    report_interrupt(form)
    return INTERRUPTED


_READERS = frozenset(
    ["info", "tables", "describe", "show", "head", "scan", "snapshots", "history", "changes", "files", "tag"]
)
"""Commands that read nothing but a lake."""
_NO_TABLE = re.compile(r"\s*select\b(?!.*\b(?:from|table|pivot|unpivot|describe|show|summarize)\b)", re.I | re.S)
"""A query that names no table: a name in a statement may mean a source of messages, whose reader needs numpy."""


def unneeded(words: Sequence[str], program: Program = QUACKLAKE) -> frozenset[str]:
    """Return the packages that Arrow and DuckDB would load for a command line that does not need them.

    They do so to recognise frames and arrays, which takes up to half of a command's time. A command of another package
    may need any of them.
    """
    if any("spark" in argument for argument in words):
        return frozenset()
    if not {"--help", "-h"}.isdisjoint(words):
        return frozenset({"pandas", "numpy", "attr"})  # rich would look for classes made with attrs
    own = {entry.name for entry in program.commands}
    if words and (own.isdisjoint(words) or not (words[0] in own or words[0].startswith("-"))):
        return frozenset()
    query = words[:1] == ["sql"] and any(map(_NO_TABLE.match, words[1:2]))
    return frozenset({"pandas", "numpy"} if query or not _READERS.isdisjoint(words[:1]) else {"pandas"})


class _Without:
    """Hides packages from this process, unless it uses Spark, whose executors write files with Arrow and pandas."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname in self._names and "pyspark" not in sys.modules:
            raise ModuleNotFoundError(f"this command does not need {fullname}", name=fullname)


class _CtrlC:
    """Notes Ctrl-C, because DuckDB turns the ``KeyboardInterrupt`` into an error that does not mention it."""

    pressed = False

    def __enter__(self) -> _CtrlC:
        self._ours = threading.current_thread() is threading.main_thread()
        if self._ours:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, self._before)


# -- groups that load a command when it is used, so that listing them costs only their names ---------------------------


def _group_of(program: Program, entry: Entry, *, root: Callable[..., None] | None = None) -> TyperGroup:
    """Return the commands of an entry. ``root`` takes the options before the command."""
    app = typer.Typer(
        name=entry.name,
        cls=type("Group", (_LazyGroup,), {"entry": entry, "program": program}),
        help=entry.help,
        epilog=None if root is None else program.epilog,
        no_args_is_help=True,
        add_completion=root is not None,
        context_settings=dict(_HELP_NAMES),
        rich_markup_mode="markdown",
    )
    app.callback()(root or (lambda: None))
    made: TyperGroup = _simplify_command(typer.main.get_command(app))
    return made


class _LazyGroup(TyperGroup):
    """A group that knows the names and purposes of its commands, and loads a command on request."""

    entry: Entry
    program: Program

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for entry in self.entry.commands:
            self.commands[entry.name] = TyperCommand(entry.name, help=entry.help, rich_help_panel=entry.panel)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *self._plugins()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = super().get_command(ctx, cmd_name)
        if known is None and cmd_name in (plugins := self._plugins()):
            try:
                entry = load_plugin(plugins[cmd_name])
            except ConfigError:  # told when the command is run; the list of commands does not fail for it
                return TyperCommand(cmd_name, help="Cannot be loaded; run it to see why")
            return TyperCommand(cmd_name, help=entry.help, rich_help_panel=entry.panel)
        return known

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        entry = next((entry for entry in self.entry.commands if entry.name == name), None)
        if entry is None and name is not None and name in (plugins := self._plugins()):
            entry = load_plugin(plugins[name])
        return name, found if entry is None else _load(self.program, entry), rest

    def _plugins(self) -> Mapping[str, EntryPoint]:
        """Return the commands of other packages, which only the program itself has."""
        if self.entry.commands is not self.program.commands:
            return {}
        return {each.name: each for each in find_plugins(self.program.plugins) if each.name not in self.commands}


def _load(program: Program, entry: Entry) -> Any:
    if entry.commands:
        return _group_of(program, entry)
    module, _, name = entry.home.partition(":")
    module = module if "." in module else f"{program.package}.{module}"
    function = getattr(importlib.import_module(module), name)
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    help_ = f"{entry.help}.\n\n{inspect.getdoc(function) or ''}".rstrip()
    app.command(entry.name, help=help_, context_settings=dict(_HELP_NAMES))(_with_common(program, entry, function))
    return _simplify_command(typer.main.get_command(app))


def _with_common(program: Program, entry: Entry, function: Callable[..., int | None]) -> Callable[..., int]:
    """Return the function with the common options, which :class:`Options` reads from the context."""

    def call(ctx: typer.Context, **values: Any) -> int:
        given = {name: value for name, value in values.items() if name not in program.common}
        return _run(program, entry, function, ctx, given)

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return _taking([context, *own, *parameters_of(program.common)], call)


def _taking(parameters: Sequence[inspect.Parameter], call: F) -> F:
    """Return the function with the signature of these parameters."""
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    call.__annotations__ = {}
    return call


def _simplify_command(command: Any) -> Any:
    """Parse arguments here, since typer would load modules that take a tenth of a second each time.

    Also leave trivial facts out of the help: that a flag is true or false, that words are text.
    """
    for parameter in (*command.params, command.get_help_option(typer.Context(command, **_HELP_NAMES))):
        parameter._runtime_param = _Plain()
        if parameter.param_type_name == "argument" or parameter.is_flag or parameter.count:
            parameter.display_type_rich = lambda ctx: None
    return command


class _Plain:
    """Parses numbers, choices and lists of them."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert the value of an argument to the type of its annotation."""
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        kind = param.type_descriptor.annotation
        if many:
            return tuple(self._one(each, get_args(kind)[0], param, ctx) for each in value)
        return self._one(value, kind, param, ctx)

    def _one(self, value: Any, kind: Any, param: Any, ctx: Any) -> Any:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        if get_origin(kind) is Literal:
            choices = get_args(kind)
            if value not in choices:
                expected = ", ".join(map(str, choices[:-1])) + f" or {choices[-1]}"
                raise typer.BadParameter(f"{value!r} is not {expected}", ctx=ctx, param=param)
            return value
        if kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                expected = "a whole number" if kind is int else "a number"
                raise typer.BadParameter(f"{value!r} is not {expected}", ctx=ctx, param=param) from None
        return value
