"""Lakes of Quacklake in DataFusion.

``open`` registers the tables of a lake in a ``SessionContext``, so that ``ctx.sql`` reads them; the ``DataFusionLake``
that it returns appends, deletes and merges.
"""

from datafusion_quacklake.lake import DataFusionLake, open

__all__ = ["DataFusionLake", "open"]
