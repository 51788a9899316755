"""Tables of other formats whose files a lake adopts: what a reader of such a format returns.

A package adds a format by an object of the entry points ``quacklake.connectors`` that has ``foreign_table(store,
place)``: it reads the metadata through the lake's store, so that its keys and limits hold, and returns a
``ForeignTable``. ``lake.adopt("format:place", as_="events")`` registers its files.
"""

from collections.abc import Iterator

import pyarrow as pa

from quacklake.core.format.vectors import decode as decode_vector
from quacklake.core.format.vectors import referenced_blobs
from quacklake.lake.adopting import ForeignField, ForeignFile, ForeignTable

__all__ = ["ForeignField", "ForeignFile", "ForeignTable", "decode_vector", "decode_vectors"]


def decode_vectors(puffin: bytes) -> Iterator[tuple[str, pa.Array]]:
    """Yield the deleted positions in a Puffin file, each with the data file that it is of.

    Raise ``CorruptFileError`` for anything else.

    >>> list(decode_vectors(b"PFA1PFA1{}"))
    Traceback (most recent call last):
        ...
    quacklake.errors.CorruptFileError: a Puffin file does not end as one
    """
    for path, blob in referenced_blobs(puffin):
        yield path, decode_vector(blob)
