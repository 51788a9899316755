"""``pond show``, ``log``, ``status`` and ``recover``."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from quacklake.cli.options import option
from quacklake.cli.output import plural
from quacklake.cli.pond.context import PondContext
from quacklake.config import redact

Last = Annotated[int | None, option("--last -n", "Only the newest transactions.", "COUNT")]


def show(
    context: PondContext,
    filesystem: Annotated[
        Literal["data", "control"], option("--filesystem -f", "The data, or the records of the control log.")
    ] = "data",
    last: Last = None,
) -> None:
    """For each transaction, only what it changed is shown, by the directory (partition) that it is in."""
    import pyarrow as pa

    with context.pond() as pond:
        if filesystem == "control":
            records = pond.control.records()
            context.output.rows(records if last is None else records.slice(max(records.num_rows - last, 0)))
            return
        from quacklake.pond.deltas import deltas, lines

        found = deltas(pond, last)
        if context.output.for_people:
            children = Counter(node.part_id for node in pond.fs().tree if not node.is_root)
            for delta in found:
                for line in lines(delta, children):
                    context.output.say(line)
            return
        rows = [
            {
                "txn_seq": delta.commit.txn_seq,
                "command": delta.commit.command,
                "snapshot_id": delta.commit.snapshot_id,
                "change": entry.change,
                "part_id": entry.node.part_id,
                "node_id": entry.node.node_id,
                "name": entry.node.name,
                "file_type": str(entry.node.file_type),
                "version": entry.node.version,
                "timestamp": entry.node.timestamp,
                "size": entry.node.size,
            }
            for delta in found
            for entry in delta.entries()
        ]
        context.output.rows(pa.Table.from_pylist(rows))


def log(context: PondContext, last: Last = None) -> None:
    """A line has the number of the transaction, its state, how long it took, its snapshot and the command."""
    import pyarrow as pa

    with context.pond() as pond:
        found = pond.control.transactions(last or None)
    columns: dict[str, tuple[Any, Any]] = {
        "txn_seq": (pa.int64(), lambda each: each.txn_seq),
        "begun": (pa.timestamp("us", "UTC"), lambda each: each.begun),
        "state": (pa.string(), lambda each: each.state),
        "duration_ms": (pa.int64(), lambda each: each.duration_ms),
        "snapshot_id": (pa.int64(), lambda each: each.snapshot_id),
        "command": (pa.string(), lambda each: each.command),
        "error": (pa.string(), lambda each: each.error),
    }
    rows = {name: pa.array([get(each) for each in found], type_) for name, (type_, get) in columns.items()}
    context.output.rows(pa.table(rows), shorten=True)


def status(context: PondContext) -> None:
    """It also says whether a process was killed while it wrote a large file, so that `pond recover` is needed."""
    with context.pond() as pond:
        fs = pond.fs()
        counts = Counter(str(node.file_type) for node in fs.tree)
        left = pond.large_files.leftovers()
        last = pond.last_commit()
        context.output.facts(
            {
                "pond": redact(context.place),
                "lake": pond.lake.url,
                "data_path": pond.lake.data_path,
                "snapshot": pond.lake.current_snapshot(),
                "last_transaction": f"#{last.txn_seq:03d} {last.command}",
                **{kind: counts[kind] for kind in sorted(counts)},
                "recovery_needed": bool(left),
            }
        )
        if left:
            context.output.say(f"Recovery needed: {plural(len(left), 'unfinished file')}; run 'pond recover'")


def recover(context: PondContext) -> None:
    """A command is there whole, with its record in the log, or not at all. Only unfinished files may be left of it."""
    with context.pond(write=True) as pond:
        done = pond.recover()
        removed = f"removed {plural(done.removed_files, 'unfinished file')}"
        sentence = removed if done.was_needed else "nothing to recover"
        facts = {name: getattr(done, name) for name in done.__slots__}
        context.output.result(sentence, facts)
