"""The shell's own commands: words with a leading dot, and a few without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quacklake.errors import InputError, nearest

if TYPE_CHECKING:
    from quacklake.cli.shell.loop import Shell

_HELP = {
    ".help": "this list",
    ".tables": "the tables of the lake",
    ".schema [TABLE]": "the columns of a table, or of all",
    ".timing [on|off]": "tell how long each statement took",
    ".mode [table|json|csv]": "the form of the answers",
    ".quit": "leave; so do exit, quit and Ctrl-D",
}
NAMES = tuple(words.split()[0] for words in _HELP)
"""The commands, as they are typed."""
_BARE = {"exit": ".quit", "quit": ".quit", "help": ".help"}
"""Commands without a dot, as in other shells."""
_MODES = ("table", "json", "csv")


def as_command(text: str) -> str | None:
    """Return the command in the input, typed with or without a dot; None for a statement.

    >>> as_command(" quit; "), as_command(".tables"), as_command("SELECT 1")
    ('.quit', '.tables', None)
    """
    line = text.strip()
    if line.startswith("."):
        return line
    return _BARE.get(line.rstrip(";").strip().lower())


def run_command(shell: Shell, line: str) -> bool:
    """Run a command. Return False when the shell should end. Raises ``InputError`` for an unknown command."""
    name, *arguments = line.rstrip(";").split()
    match name, arguments:
        case ".quit" | ".exit", []:
            return False
        case ".help", []:
            _help(shell)
        case ".tables", []:
            for table in shell.view.tables() + shell.view.views():
                shell.say(table)
        case ".schema", [] | [_]:
            for table in arguments or shell.view.tables():
                shell.say(_definition(shell, table))
        case ".timing", [] | ["on" | "off"]:
            shell.timing = not shell.timing if not arguments else arguments == ["on"]
            shell.say(f"timing is {'on' if shell.timing else 'off'}")
        case ".mode", []:
            shell.say(shell.context.output.format)
        case ".mode", [mode] if mode in _MODES:
            shell.context.output.format = mode
        case _ if name in NAMES:
            raise InputError(
                f"{name} is not used like that", hint=next(words for words in _HELP if words.startswith(name))
            )
        case _:
            raise InputError(f"there is no command {name}", hint=nearest(name, NAMES) or ".help lists them")
    return True


def _help(shell: Shell) -> None:
    shell.say("A statement ends with ; and may go over several lines. Ctrl-C ends it, TAB completes names.")
    for words, meaning in _HELP.items():
        shell.say(f"  {words:<24}{meaning}")


def _definition(shell: Shell, name: str) -> str:
    from quacklake.sql.listing import table_definition

    table = shell.view.table(name)
    return table_definition(table.handle.view(), table.info)
