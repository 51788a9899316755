"""Bytes and Parquet: the only layer that touches files."""

from typing import TYPE_CHECKING

from quacklake.core.lazy import lazily

if TYPE_CHECKING:
    from quacklake.core.storage.listing import FileEntry
    from quacklake.core.storage.parquet import Footer, FooterColumn, column_stats, read_footer, read_footers
    from quacklake.core.storage.roots import Links, S3Options
    from quacklake.core.storage.store import Store
else:
    __getattr__ = lazily(
        __name__,
        {
            "quacklake.core.storage.listing": "FileEntry",
            "quacklake.core.storage.parquet": "Footer FooterColumn column_stats read_footer read_footers",
            "quacklake.core.storage.roots": "Links S3Options",
            "quacklake.core.storage.store": "Store",
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
