"""``quacklake doctor``: check that everything needed is there, and advise on what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quacklake.cli.context import Context

if TYPE_CHECKING:
    from quacklake.cli.checkup import CheckResult

_BROKEN = 1
_SIGNS = {"ok": ("✓", "green"), "absent": ("–", "dim"), "warning": ("!", "yellow"), "failed": ("✗", "bold red")}


def doctor(context: Context) -> int:
    """A tiny file is written into the data path and removed again; nothing else is changed.

    The exit code is 1 when something stands in the way; what is merely absent or worth a look does not count.
    """
    from quacklake.cli.checkup import checkup

    findings = checkup(context)
    if context.output.for_people:
        _print(context, findings)
    else:
        import pyarrow as pa

        schema = pa.schema([(name, pa.string()) for name in ("area", "what", "state", "detail", "fix")])
        context.output.rows(pa.Table.from_pylist([found.row() for found in findings], schema=schema))
    return _BROKEN if any(found.state == "failed" for found in findings) else 0


def _print(context: Context, findings: list[CheckResult]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = context.output.console
    area = ""
    for found in findings:
        row = found.row()
        if found.area != area:
            area = found.area
            console.print(Text(f"{area}", style="bold"))
        sign, style = _SIGNS[found.state]
        table = Table.grid(padding=(0, 1))
        table.add_row("", Text(sign, style=style), Text(f"{found.what:<24}"), Text(row["detail"] or ""))
        console.print(table)
        if row["fix"] is not None:
            console.print(Text(f"      → {row['fix']}", style=style))
    failed = sum(found.state == "failed" for found in findings)
    warned = sum(found.state == "warning" for found in findings)
    told = [f"{count} {what}" for count, what in ((failed, "failed"), (warned, "to look at")) if count]
    context.output.say(", ".join(told) or "everything is in order")
