"""Bytes and Parquet: the only layer that touches files.

==================  ============================================================================
module              what it holds
==================  ============================================================================
:mod:`.store`       the store: read, write, list and delete under one data root
:mod:`.parquet`     footers of Parquet files, and the statistics that follow from them
:mod:`.physical`    Parquet's bounds as values that compare
:mod:`.vectors`     deletion vectors
:mod:`.roots`       from the text of a data path to a file system; endpoint and keys
:mod:`.buckets`     whether the bucket is there
:mod:`.confinement` which paths stay under the root
:mod:`.listing`     walking the files of a folder
:mod:`.atomic`      local files that appear whole or not at all
:mod:`.attempts`    retries, fault points and counts around each call
:mod:`.failures`    from what a store reports to an error of Quacklake
==================  ============================================================================
"""

from quacklake.storage.listing import FileEntry
from quacklake.storage.parquet import Footer, FooterColumn, column_stats, read_footer, read_footers
from quacklake.storage.roots import Links, S3Options
from quacklake.storage.store import Store

__all__ = [
    "FileEntry",
    "Footer",
    "FooterColumn",
    "Links",
    "S3Options",
    "Store",
    "column_stats",
    "read_footer",
    "read_footers",
]
