"""``quacklake tenant grant`` and related commands: access to the catalogs of a shared lake on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from quacklake.cli.commands.tenant import Name, tenants_of
from quacklake.cli.context import Context
from quacklake.cli.options import DryRun

Role = Annotated[str, typer.Argument(metavar="ROLE", help="a role of the database", show_default=False)]


def grant(
    context: Context,
    name: Name,
    role: Role,
    read_only: Annotated[bool, typer.Option("--read-only", help="Let it read, and change nothing.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Even raw SQL of the role sees no row of another catalog. With --dry-run it prints the SQL."""
    with tenants_of(context) as found:
        statements = found.grant(name, role, read_only=read_only, dry_run=dry_run)
    _tell(context, statements, f"{role} may {'read' if read_only else 'use'} {name}", dry_run=dry_run)


def revoke(context: Context, name: Name, role: Role, dry_run: DryRun = False) -> None:
    """With --dry-run it prints the SQL."""
    with tenants_of(context) as found:
        statements = found.revoke(name, role, dry_run=dry_run)
    _tell(context, statements, f"{role} may not use {name} any more", dry_run=dry_run)


def expose(
    context: Context,
    name: Name,
    role: Annotated[str | None, typer.Option("--role", metavar="ROLE", help="A role that may use it.")] = None,
    writable: Annotated[bool, typer.Option("--writable", help="Let DuckDB write it, too.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Its inlined rows become files. With --dry-run it prints the SQL."""
    with tenants_of(context) as found:
        made = found.expose(name, role, writable=writable, dry_run=dry_run)
    _tell(context, made.sql, f"{name} is METADATA_SCHEMA '{made.schema}' for stock DuckDB", dry_run=dry_run)


def unexpose(context: Context, name: Name, dry_run: DryRun = False) -> None:
    """With --dry-run it prints the SQL."""
    with tenants_of(context) as found:
        statements = found.unexpose(name, dry_run=dry_run)
    _tell(context, statements, f"{name} is not exposed", dry_run=dry_run)


def _tell(context: Context, statements: Sequence[str], sentence: str, *, dry_run: bool) -> None:
    text = "".join(f"{statement};\n" for statement in statements).rstrip("\n") if dry_run else sentence
    context.output.result(text, {"sql": list(statements), "dry_run": dry_run})
