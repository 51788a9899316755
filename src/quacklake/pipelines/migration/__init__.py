"""Move from Ekko's Arrow files to a lake: write both, take the old files over, compare, switch, retire."""

from quacklake.pipelines.migration.backfill import BackfillReport, backfill
from quacklake.pipelines.migration.comparison import Comparison, Difference, HourComparison, compare
from quacklake.pipelines.migration.dual_writer import DualWriter, SideReport
from quacklake.pipelines.migration.folder import ArrowFolder, CheckedFile, SkippedFile
from quacklake.pipelines.migration.retirement import RetirementReport, retire
from quacklake.pipelines.migration.state import MigrationState, Side, load
from quacklake.pipelines.migration.switching import TransactionReader, TransactionRows, switch

__all__ = [
    "ArrowFolder",
    "BackfillReport",
    "CheckedFile",
    "Comparison",
    "Difference",
    "DualWriter",
    "HourComparison",
    "MigrationState",
    "RetirementReport",
    "Side",
    "SideReport",
    "SkippedFile",
    "TransactionReader",
    "TransactionRows",
    "backfill",
    "compare",
    "load",
    "retire",
    "switch",
]
