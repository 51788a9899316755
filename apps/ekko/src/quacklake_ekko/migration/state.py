"""The state of a migration, kept in the lake: the files taken over or compared, and the side that readers use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import Lake, LakeTransaction
from quacklake.errors import NotFoundError
from quacklake_ekko.migration.folder import CheckedFile
from quacklake_ekko.transactions import create_table

FILES = "blockchain.arrow_files"
MIGRATION = "blockchain.arrow_migration"

Step = Literal["backfilled", "compared"]
Side = Literal["arrow", "lake"]

_FILES = pa.schema(
    [
        ("folder", pa.string()),
        ("path", pa.string()),
        ("step", pa.string()),
        ("bytes", pa.int64()),
        ("rows", pa.int64()),
        ("sha256", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
_MIGRATION = pa.schema(
    [
        ("folder", pa.string()),
        ("readers", pa.string()),
        ("equal", pa.bool_()),
        ("compared_at", pa.timestamp("us", "UTC")),
        ("snapshot_id", pa.int64()),
        ("rows", pa.int64()),
        ("retired", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


@dataclass(frozen=True)
class MigrationState:
    """The progress of a folder's migration. ``equal`` is the last comparison's answer, None before the first.

    ``rows`` is what the lake had at the last comparison, ``retired`` the number of Arrow files that were removed.
    """

    folder: str
    readers: Side = "arrow"
    equal: bool | None = None
    compared_at: datetime | None = None
    snapshot_id: int | None = None
    rows: int = 0
    retired: int = 0


def prepare(lake: Lake) -> None:
    """Create the tables of transactions and of the migration, unless they are there."""
    create_table(lake)

    def work(transaction: LakeTransaction) -> None:
        for name, schema in ((FILES, _FILES), (MIGRATION, _MIGRATION)):
            if name not in transaction:
                transaction.create_table(name, schema)

    if FILES not in lake or MIGRATION not in lake:
        lake.run(work, "migrate-arrow: create its tables")


def load(lake: Lake | LakeTransaction, folder: str) -> MigrationState:
    """Return the state of a folder's migration, the first one if nothing is known of it."""
    try:
        rows = lake.table(MIGRATION).to_pylist(where=pc.field("folder") == folder)
    except NotFoundError:
        rows = []
    if not rows:
        return MigrationState(folder)
    newest = max(rows, key=lambda row: row.pop("at"))
    return MigrationState(**newest)


def save(transaction: LakeTransaction, state: MigrationState) -> None:
    """Replace the state of a folder's migration."""
    row: dict[str, Any] = {**vars(state), "at": datetime.now(UTC)}
    transaction.table(MIGRATION).overwrite(
        pa.Table.from_pylist([row], _MIGRATION), where=pc.field("folder") == state.folder
    )


def files(lake: Lake, folder: str, step: Step) -> dict[str, dict[str, Any]]:
    """Return the files of a folder that have come to a step, by their paths."""
    try:
        rows = lake.table(FILES).to_pylist(where=_of(folder, step))
    except NotFoundError:
        return {}
    return {row["path"]: row for row in rows}


def add_files(transaction: LakeTransaction, folder: str, step: Step, done: Iterable[CheckedFile]) -> None:
    """Note files that have come to a step."""
    now = datetime.now(UTC)
    rows = [
        {"folder": folder, "path": f.path, "step": step, "bytes": f.size, "rows": f.rows, "sha256": f.sha256, "at": now}
        for f in done
    ]
    if rows:
        transaction.table(FILES).append(pa.Table.from_pylist(rows, _FILES))


def replace_files(transaction: LakeTransaction, folder: str, step: Step, done: Iterable[CheckedFile]) -> None:
    """Note files that have come to a step, in place of all that had."""
    transaction.table(FILES).delete(_of(folder, step))
    add_files(transaction, folder, step, done)


def _of(folder: str, step: Step) -> pc.Expression:
    return (pc.field("folder") == folder) & (pc.field("step") == step)
