"""Where the shell remembers what was typed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from prompt_toolkit.history import FileHistory

from quacklake.config import redact

__all__ = ["History", "history_file"]

#: Statements that are about secrets, however these are written.
_SECRET = re.compile(r"\s*(?:CREATE\b.{0,60}\bSECRET\b|PRAGMA\s+add_parquet_key\b)", re.IGNORECASE | re.DOTALL)


def history_file() -> Path:
    """The file, in the folder for such things."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "quacklake" / "history"


class History(FileHistory):
    """Statements of earlier days. What looks as if it held a password is not written down."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        """Write a statement down."""
        if redact(string) == string and not _SECRET.match(string):
            super().store_string(string)
