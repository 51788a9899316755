"""``pond list``, ``mkdir``, ``mv``, ``rm`` and ``describe``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.options import ShownRows, argument, option
from quacklake.cli.output import plural
from quacklake.cli.pond.context import NodeName, PondContext, State, complete_path

if TYPE_CHECKING:
    from quacklake.pond import FS, NodePath, Pond

_ICONS = {
    "directory": "📁",
    "file:data": "📄",
    "file:table": "📊",
    "file:series": "📈",
    "symlink": "🔗",
    "dynamic": "⚙",
}
Pattern = Annotated[str, argument("PATTERN", "A path, or a pattern such as '/sensors/**/*.series'.")]


def list_(
    context: PondContext,
    pattern: Pattern = "**/*",
    all_: Annotated[bool, option("--all -a", "Also list names that begin with a dot.")] = False,
    limit: ShownRows = None,
    at: State = None,
) -> None:
    """A line has the type, the size, the end of the node's id, the version, the time of the change, and the path.

    A terminal shows the first nodes; everything else gets all of them.
    """
    from quacklake.pond.patterns import is_pattern

    with context.pond() as pond:
        fs = pond.fs(at)
        if not is_pattern(pattern):
            found = [fs.get(pattern, follow=False)]
        else:
            found = [
                each
                for each in fs.glob(pattern)
                if all_ or not any(part.startswith(".") for part in each.path.split("/"))
            ]
        shown = found[: context.terminal_limit(limit, all_rows=False)]
        if context.output.for_people:
            for each in shown:
                context.output.say(_line(each))
            context.output.way_to_all = "--limit all shows them"
            context.output.mention_more(len(found) - len(shown))
        else:
            context.output.rows(_table(shown))


def _line(found: NodePath) -> str:
    from quacklake.pond.nodes import TARGET

    node = found.node
    target = f" -> {node.attribute(TARGET)}" if node.attribute(TARGET) else ""
    when = f"{node.timestamp:%Y-%m-%d %H:%M:%S}"
    return (
        f"{_ICONS[node.file_type]} {_size(found.size):>9} {node.short_id} v{node.version} {when} {found.path}{target}"
    )


def _size(size: int | None) -> str:
    """Return a size as lists show it: B, KB or MB."""
    if size is None:
        return "-"
    if size < 1024:
        return f"{size}B"
    return f"{size / 1024:.1f}KB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f}MB"


def _table(found: list[NodePath]) -> Any:
    import pyarrow as pa

    from quacklake.pond.nodes import TARGET

    columns: dict[str, tuple[Any, Any]] = {
        "path": (pa.string(), lambda each: each.path),
        "type": (pa.string(), lambda each: str(each.node.file_type)),
        "size": (pa.int64(), lambda each: each.size),
        "node_id": (pa.string(), lambda each: each.node.node_id),
        "version": (pa.int64(), lambda each: each.node.version),
        "timestamp": (pa.timestamp("us", "UTC"), lambda each: each.node.timestamp),
        "target": (pa.string(), lambda each: each.node.attribute(TARGET)),
        "rows": (pa.int64(), lambda each: each.rows),
    }
    return pa.table({name: pa.array([get(each) for each in found], type_) for name, (type_, get) in columns.items()})


def mkdir(
    context: PondContext,
    path: NodeName,
    parents: Annotated[
        bool, option("--parents -p", "Also make the directories above; an existing one is fine.")
    ] = False,
) -> None:
    """Without --parents, the directory above must exist."""

    def work(_: Pond, fs: FS) -> str:
        return fs.make_directory(path, parents=parents).path

    made = context.change(work)
    context.output.result(f"made the directory {made}", {"path": made})


def mv(
    context: PondContext,
    source: Annotated[str, argument("SOURCE", "The node to move.", autocompletion=complete_path)],
    target: Annotated[str, argument("TARGET", "A new path, or an existing directory.", autocompletion=complete_path)],
) -> None:
    """Nothing is copied: the tables of series below are renamed with it."""

    def work(_: Pond, fs: FS) -> tuple[str, str]:
        return fs.get(source, follow=False).path, fs.move(source, target).path

    before, now = context.change(work)
    context.output.result(f"moved {before} to {now}", {"from": before, "path": now})


def rm(
    context: PondContext,
    paths: Annotated[list[str], argument("PATH", "The nodes to remove.", autocompletion=complete_path)],
    recursive: Annotated[bool, option("--recursive -r", "Also remove all that is in a directory.")] = False,
) -> None:
    """All are removed in one transaction, or none. Older states of the pond keep them: see --at of list and cat."""

    def work(_: Pond, fs: FS) -> int:
        return sum(fs.remove(path, recursive=recursive) for path in paths)

    count = context.change(work)
    context.output.result(f"removed {plural(count, 'node')}", {"removed": count})


def describe(context: PondContext, path: NodeName, at: State = None) -> None:
    """For a table or series these are its columns, rows, versions and times, for a file what its bytes look like."""
    from quacklake.pond.describing import describe_node

    with context.pond() as pond:
        fs = pond.fs(at)
        context.output.facts(describe_node(fs, fs.get(path, follow=False)))
