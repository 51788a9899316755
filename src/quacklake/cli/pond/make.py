"""``pond apply``, ``mknod`` and ``list-factories``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.options import argument, option
from quacklake.cli.pond.context import NodeName, PondContext

if TYPE_CHECKING:
    from quacklake.pond import FS, Pond
    from quacklake.pond.resources import Applied


def apply(
    context: PondContext,
    files: Annotated[list[str], option("--file -f", "A YAML file, or a folder of them; may be repeated.", "FILE")],
) -> None:
    """All resources are applied in one transaction, or none. Applying them again changes nothing."""
    from quacklake.pond import ImportOptions
    from quacklake.pond.resources import apply as apply_to
    from quacklake.pond.resources import load

    resources = load([Path(each) for each in files])

    def work(pond: Pond, fs: FS) -> list[Applied]:
        return apply_to(fs, resources, ImportOptions(timezone=fs.settings.get("timezone")))

    done = context.change(work)
    if context.output.for_people:
        for each in done:
            context.output.say(f"{each.result:<9} {each.kind} {each.name}")
        return
    import pyarrow as pa

    rows = [{"kind": each.kind, "name": each.name, "result": each.result} for each in done]
    context.output.rows(pa.Table.from_pylist(rows, pa.schema([(k, pa.string()) for k in ("kind", "name", "result")])))


def mknod(
    context: PondContext,
    factory: Annotated[str, argument("FACTORY", "The name of a factory; see list-factories.")],
    path: NodeName,
    config_path: Annotated[
        str | None, option("--config-path", "A YAML file with the options of the factory.", "FILE")
    ] = None,
    overwrite: Annotated[bool, option("--overwrite", "Replace the options of an existing node.")] = False,
    schedule: Annotated[
        str | None, option("--schedule", "When `pond run --watch` runs it: a cron expression, or every 10min.", "TEXT")
    ] = None,
) -> None:
    """The options are checked, and kept in the node. The node is computed whenever somebody looks at it."""
    from quacklake.pond.resources import check_secrets
    from quacklake.pond.schedules import parse_schedule

    config = _config(config_path)
    check_secrets(config, factory)
    if schedule is not None:
        parse_schedule(schedule)

    def work(_: Pond, fs: FS) -> str:
        return fs.make_node(path, factory, config, schedule=schedule, replace=overwrite).path

    made = context.change(work)
    context.output.result(f"made {made} with the factory {factory}", {"path": made, "factory": factory})


def _config(path: str | None) -> dict[str, Any]:
    import yaml

    from quacklake.errors import ConfigError

    if path is None:
        return {}
    try:
        found = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"the file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file {path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"the file {path} has no mapping at its top", hint="patterns: {source: /sensors/*.series}")
    return found


def list_factories(context: PondContext) -> None:
    """Each computes a directory, a table or a series, or collects rows. Installed packages add more."""
    import pyarrow as pa

    from quacklake.pond.factories.registry import factories, load_all

    failed = load_all()
    rows = [{"factory": each.name, "kind": str(each.kind), "description": each.description} for each in factories()]
    rows += [{"factory": name, "kind": "", "description": error.message} for name, error in failed.items()]
    context.output.rows(pa.Table.from_pylist(rows))
