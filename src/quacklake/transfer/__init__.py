"""Take over whole databases, folders and foreign tables into a lake, and write a lake out to them.

``import_from`` and ``export_to`` are what the methods of ``Lake`` and the command line call. A source lists its tables
(``tables.py``), and ``importing.py`` copies them in commits that an interrupted import can go on from; a target
(``targets.py``) takes the tables of one snapshot and shows them only when they are complete.
"""

from quacklake.lake.transfers import ExportReport, ImportReport, LeftOut, TransferredTable
from quacklake.transfer.exporting import export_to
from quacklake.transfer.importing import import_from

__all__ = ["ExportReport", "ImportReport", "LeftOut", "TransferredTable", "export_to", "import_from"]
