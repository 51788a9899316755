"""``quacklake spark-settings``: the Spark settings for a lake."""

from __future__ import annotations

from typing import Annotated

import typer

from quacklake.cli.context import Context

Version = Annotated[
    str | None, typer.Option("--spark", metavar="VERSION", help="The version of Spark; default: the one installed.")
]


def spark_settings(context: Context, version: Version = None) -> None:
    """Keys and passwords are not among them. With --output json they are an object."""
    import quacklake

    with context.open() as lake:
        found = quacklake.spark_settings(lake, version)
    context.output.result("\n".join(f"{key} {value}" for key, value in found.items()), found)
