"""Command groups that load a command when it is used, so that listing them costs only their names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from quacklake.cli.entry import Entry
from quacklake.cli.options import COMMON

F = TypeVar("F", bound=Callable[..., Any])
Runner = Callable[[Callable[..., int | None], typer.Context, Mapping[str, Any]], int]
"""Runs the function of a command with its arguments, and returns the exit code."""

_HELP_NAMES: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}


def group_of(
    entry: Entry, run: Runner, *, root: Callable[..., None] | None = None, epilog: str | None = None
) -> TyperGroup:
    """Return the commands of an entry. ``root`` takes the options before the command."""
    kind = type("Group", (_LazyGroup,), {"entry": entry, "run": staticmethod(run)})
    app = typer.Typer(
        name=entry.name,
        cls=kind,
        help=entry.help,
        epilog=epilog,
        no_args_is_help=True,
        add_completion=root is not None,
        context_settings=dict(_HELP_NAMES),
        rich_markup_mode="markdown",
    )
    app.callback()(root or _nothing)
    made = typer.main.get_command(app)
    assert isinstance(made, TyperGroup)
    _tidied(made)
    return made


def _nothing() -> None:
    """Nothing but its commands."""


class _LazyGroup(TyperGroup):
    """A group that knows the names and purposes of its commands, and loads a command on request."""

    entry: Entry
    run: Runner

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for entry in self.entry.commands:
            self.commands[entry.name] = TyperCommand(entry.name, help=entry.help, rich_help_panel=entry.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        entry = next((entry for entry in self.entry.commands if entry.name == name), None)
        return name, found if entry is None else _load(entry, self.run), rest


def _load(entry: Entry, run: Runner) -> Any:
    if entry.commands:
        return group_of(entry, run)
    module, _, name = entry.home.partition(":")
    function = getattr(importlib.import_module(f"quacklake.cli.commands.{module}"), name)
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    more = inspect.getdoc(function)
    app.command(
        entry.name,
        help=entry.help + (f"\n\n{more}" if more else ""),
        context_settings=dict(_HELP_NAMES),
    )(_with_common(function, run))
    return _tidied(typer.main.get_command(app))


def _with_common(function: Callable[..., int | None], run: Runner) -> Callable[..., int]:
    """Return the function with the common options, which :class:`Options` reads from the context."""

    def call(ctx: typer.Context, **values: Any) -> int:
        return run(function, ctx, {name: value for name, value in values.items() if name not in COMMON})

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return taking([context, *own, *common_parameters()], call)


def common_parameters() -> list[inspect.Parameter]:
    """Return the options of every command."""
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in COMMON.items()
    ]


def taking(parameters: Sequence[inspect.Parameter], call: F) -> F:
    """Return the function with the signature of these parameters."""
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    call.__annotations__ = {}
    return call


def _tidied(command: Any) -> Any:
    """Parse arguments here, since typer would load modules that take a tenth of a second each time.

    Also leave trivial facts out of the help: that a flag is true or false, that words are text.
    """
    asks_help = command.get_help_option(typer.Context(command, **_HELP_NAMES))
    for parameter in (*command.params, asks_help):
        parameter._runtime_param = _Plain()
        if parameter.param_type_name == "argument" or parameter.is_flag or parameter.count:
            parameter.display_type_rich = _nothing_to_say
    return command


def _nothing_to_say(ctx: Any) -> None:
    """Return no help text for the type of a parameter."""


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
