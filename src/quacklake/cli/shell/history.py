"""The history file of the shell."""

from __future__ import annotations

import os
import re
from pathlib import Path

from prompt_toolkit.history import FileHistory

from quacklake.config import redact

#: Statements about secrets, in any spelling.
_SECRET = re.compile(r"\s*(?:CREATE\b.{0,60}\bSECRET\b|PRAGMA\s+add_parquet_key\b)", re.IGNORECASE | re.DOTALL)


def history_file() -> Path:
    """Return the path of the history file, in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "quacklake" / "history"


class History(FileHistory):
    """The statements of earlier sessions. A statement that seems to contain a password is not stored."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        if redact(string) == string and not _SECRET.match(string):
            super().store_string(string)
