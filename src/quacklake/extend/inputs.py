"""Files of people as rows: folders and patterns of Parquet, CSV, JSON, Arrow and Excel, streamed in bounded memory.

``quacklake.open_files`` opens them, with ``quacklake.CsvOptions`` where they need them; what comes are ``InputFiles``.
"""

from quacklake.core.operations.input_files import InputFiles

__all__ = ["InputFiles"]
