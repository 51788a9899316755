"""Bytes and Parquet: the only layer that touches files."""

from typing import TYPE_CHECKING

from quacklake.lazy import lazily

if TYPE_CHECKING:
    from quacklake.storage.listing import FileEntry
    from quacklake.storage.parquet import Footer, FooterColumn, column_stats, read_footer, read_footers
    from quacklake.storage.roots import Links, S3Options
    from quacklake.storage.store import Store
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.storage.listing": "FileEntry",
            "quacklake.storage.parquet": "Footer FooterColumn column_stats read_footer read_footers",
            "quacklake.storage.roots": "Links S3Options",
            "quacklake.storage.store": "Store",
        },
    )

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
