"""Remove the Arrow files that a comparison has found in the lake, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quacklake import Lake, LakeTransaction
from quacklake.errors import InputError
from quacklake.extend.reporting import Progress, silent
from quacklake_ekko.migration import state
from quacklake_ekko.migration.folder import ArrowFolder, SkippedFile
from quacklake_ekko.table import TABLE


@dataclass(frozen=True)
class RetirementReport:
    """The files that were removed, or would be, and those that stay with the reason."""

    files: int
    bytes: int
    kept: tuple[SkippedFile, ...]
    dry_run: bool


def retire(lake: Lake, folder: ArrowFolder, *, dry_run: bool = False, progress: Progress = silent) -> RetirementReport:
    """Remove the files of the last comparison, each with its metadata, if they are still as they were compared.

    Files that came later or have changed stay, and so does everything else in the folder. Ended in between, it goes on
    where it was. Raise ``InputError`` unless readers use the lake, the last comparison found no difference, and the
    table has at least the rows it had then.
    """
    known = state.load(lake, folder.url)
    if known.readers != "lake":
        raise InputError(
            f"readers still use the Arrow files of {folder.url}",
            hint="`quacklake migrate-arrow switch --to lake` lets them use the lake",
        )
    if not known.equal:
        raise InputError(
            f"the last comparison with {folder.url} has found differences",
            hint="`quacklake migrate-arrow compare` compares them again",
        )
    there = lake.table(TABLE).count()
    if there < known.rows:
        raise InputError(
            f"{TABLE} has {there:,} rows, and had {known.rows:,} at the last comparison",
            hint="`quacklake migrate-arrow compare` shows what is missing",
        )
    compared = state.files(lake, folder.url, "compared")
    listed, kept = folder.files()
    removed, size = 0, 0
    for place, file in enumerate(listed):
        progress("retiring files", place, len(listed))
        row = compared.get(file.path)
        if row is None:
            kept.append(SkippedFile(file.path, "it was not there at the last comparison"))
        elif not folder.unchanged(file.path, row["sha256"]):
            kept.append(SkippedFile(file.path, "it has changed since the last comparison"))
        else:
            if not dry_run:
                if not removed:
                    folder.retire()
                folder.remove(file.path)
            removed, size = removed + 1, size + file.size
    if not dry_run:
        folder.prune()
        _keep(lake, folder, sum(not_there not in {file.path for file in folder.files()[0]} for not_there in compared))
    return RetirementReport(removed, size, tuple(kept), dry_run)


def _keep(lake: Lake, folder: ArrowFolder, retired: int) -> None:
    def work(transaction: LakeTransaction) -> None:
        state.save(transaction, replace(state.load(transaction, folder.url), retired=retired))

    lake.run(work, "migrate-arrow: retire")
