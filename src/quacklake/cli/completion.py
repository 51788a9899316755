"""Completions that a shell offers for a command when TAB is pressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tables of the lake, those in ``main`` also without their schema."""

    def names(lake: object) -> list[str]:
        found: list[str] = lake.tables()  # type: ignore[attr-defined]
        return [name.removeprefix("main.") for name in found] + found

    return _matching(ctx, incomplete, names)


def complete_version(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tags of the lake."""

    def tags(lake: Any) -> list[str]:
        return list(lake.history.tags().column("tag").to_pylist())

    return _matching(ctx, incomplete, tags)


def complete_setting(incomplete: str) -> list[str]:
    """Return the names of the settings."""
    from quacklake.config import SETTINGS

    return [setting.name for setting in SETTINGS if setting.name.startswith(incomplete)]


def _matching(ctx: typer.Context, incomplete: str, names: Callable[[object], list[str]]) -> list[str]:
    """Return the names with this prefix, or none without a lake: no error may disturb the line being typed."""
    from quacklake.cli.context import Context, Options

    try:
        with Context(Options.of(ctx)).open() as lake:
            return sorted({name for name in names(lake) if name.startswith(incomplete)})
    except Exception:
        return []
