"""Two stores: whether their files may be among each other."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from quacklake.core.storage.store import Store

_SAME_SERVICE = {"s3a": "s3", "s3n": "s3", "gs": "gcs", "abfs": "az", "abfss": "az"}


def overlap(one: Store, other: Store) -> bool:
    """Return whether one of two stores is inside the other, or both are the same, however their roots are spelled.

    Links are followed, and the case of letters counts only where the file system tells names apart by it.
    """
    if one.is_local != other.is_local:
        return False
    if not one.is_local:
        roots = sorted((_place(one), _place(other)), key=len)
        return roots[1][: len(roots[0])] == roots[0]
    short, long = sorted(
        ([part for part in os.path.realpath(store.root).split("/") if part] for store in (one, other)), key=len
    )
    long = long[: len(short)]
    if short == long:
        return True
    if _fold_parts(short) != _fold_parts(long):
        return False
    first, second = Path("/", *short), Path("/", *long)
    there = first.exists(), second.exists()
    # if only one spelling exists, the file system distinguishes them
    return first.samefile(second) if all(there) else not any(there)


def spellings(store: Store) -> tuple[str, ...]:
    """Return the root of a store as a catalog may spell it, before and after following links."""
    if not store.is_local:
        return (store.root,)
    real = os.path.realpath(store.root).rstrip("/") + "/"
    return tuple(dict.fromkeys((store.root, real, f"file://{store.root}", f"file://{real}")))


def _place(store: Store) -> list[str]:
    scheme, _, rest = store.root.partition("://")
    bucket, *folders = rest.strip("/").split("/")
    return [_SAME_SERVICE.get(scheme, scheme), bucket.partition("@")[0], *folders]


def _fold_parts(parts: list[str]) -> list[str]:
    return [unicodedata.normalize("NFC", part).casefold() for part in parts]
