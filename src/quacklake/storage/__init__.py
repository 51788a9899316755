"""Bytes and Parquet: the only layer that touches files."""

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
