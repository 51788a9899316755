"""The context of a command of ``pond``, and the options that its commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from quacklake.cli.context import Context, Options
from quacklake.cli.options import COMMON, argument, option
from quacklake.config import redact
from quacklake.errors import ConfigError

if TYPE_CHECKING:
    from quacklake.pond import FS, Pond
    from quacklake.pond.tree import Tree

T = TypeVar("T")

_POND = "The folder, URL or YAML file of the pond, instead of the variable POND."
POND_COMMON: dict[str, tuple[object, object]] = {
    "pond": (
        Annotated[str | None, option("--pond", _POND, "PATH", rich_help_panel="Options of every command")],
        None,
    ),
    **{name: each for name, each in COMMON.items() if name not in ("lake", "catalog", "data_path")},
}
"""The options of every command of ``pond``."""


class PondContext(Context):
    """The options of a command of ``pond``, the settings and the output."""

    @property
    def place(self) -> str:
        """The pond as it was named: a folder, a URL or a YAML file. Raise ``ConfigError`` when none is named."""
        place = self.options.pond or self.config.pond
        if place is None:
            raise ConfigError("POND environment variable not set", hint="set it, or pass --pond PATH")
        return place

    @property
    def folder(self) -> Path:
        """The folder of the pond."""
        return Path(self.place)

    @property
    def args(self) -> list[str]:
        """The command as it was typed, without secrets, for the log of commands."""
        return ["pond", *(redact(word) for word in self.options.words)]

    def pond(self, *, write: bool = False) -> Pond:
        """Open the pond. It is read-only unless ``write`` is true, and then pushes changes to its remotes."""
        from quacklake.pond import Pond

        pond = Pond.open(self.place, read_only=not write, config_file=self.options.config_file)
        if write:
            pond.on_commit = self._push
        return pond

    def change(self, work: Callable[[Pond, FS], T]) -> T:
        """Open the pond and run work in one transaction."""
        with self.pond(write=True) as pond:
            return pond.run(self.args, lambda fs: work(pond, fs))

    def _push(self, pond: Pond, tree: Tree) -> None:
        """Push a change, and tell which push failed; a JSON log has a line of it already."""
        from quacklake.pond.remotes import push_changes

        for sentence in push_changes(pond, tree, self.options.config_file):
            if not self.is_log_json:
                typer.echo(sentence, err=True)


def complete_path(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the paths of the pond that begin so; none without a pond."""
    try:
        with PondContext(Options.of(ctx)).pond() as pond:
            above = incomplete.rpartition("/")[0]
            found = pond.fs().glob(f"{above}/*")
            paths = [f"{each.path}/" if each.is_directory else each.path for each in found]
            return [path for path in paths if path.startswith(incomplete or "/")]
    except Exception:
        return []


NodeName = Annotated[str, argument("PATH", "A path of the pond.", autocompletion=complete_path)]
State = Annotated[
    str | None, option("--at", "Read the pond as it was at a snapshot number, a tag or a time.", "VERSION")
]
