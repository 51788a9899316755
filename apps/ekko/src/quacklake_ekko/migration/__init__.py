"""Move from Ekko's Arrow files to a lake: write both, take the old files over, compare, switch, retire."""

from quacklake_ekko.migration.backfill import BackfillReport, backfill
from quacklake_ekko.migration.comparison import Comparison, Difference, HourComparison, compare
from quacklake_ekko.migration.dual_writer import DualWriter, SideReport
from quacklake_ekko.migration.folder import ArrowFolder, CheckedFile, SkippedFile
from quacklake_ekko.migration.retirement import RetirementReport, retire
from quacklake_ekko.migration.state import MigrationState, Side, load
from quacklake_ekko.migration.switching import TransactionReader, TransactionRows, switch

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
