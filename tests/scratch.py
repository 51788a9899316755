"""Put the lakes of the tests in memory where there is room: a small lake mostly waits for the disk.

``TMPDIR=… make test`` puts them elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

__all__ = ["use"]

_MEMORY = Path("/dev/shm")
#: A run needs less than two gigabytes there at any time.
_ROOM = 8 * 2**30


def use() -> None:
    """Let pytest make its temporary directories in memory, unless the user has said where."""
    if not any(os.environ.get(name) for name in ("TMPDIR", "PYTEST_DEBUG_TEMPROOT")) and _room() >= _ROOM:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)


def _room() -> int:
    """Return the free bytes in memory, or 0 if files cannot be there."""
    try:
        available = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
        if available is None or not os.access(_MEMORY, os.W_OK):
            return 0
        with tempfile.TemporaryFile(dir=_MEMORY):
            return min(int(available[1]) * 1024, shutil.disk_usage(_MEMORY).free)
    except OSError:
        return 0
