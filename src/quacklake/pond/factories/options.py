"""Options of factories and resources as a pond keeps them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any


def plain(given: Any) -> Any:
    """Return options as JSON can keep them: the dates and times that YAML makes of texts are texts again.

    >>> plain({"start": dt.date(2024, 1, 31), "points": [1, "a"]})
    {'start': '2024-01-31', 'points': [1, 'a']}
    """
    if isinstance(given, Mapping):
        return {str(key): plain(value) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return [plain(each) for each in given]
    return given.isoformat() if isinstance(given, dt.date) else given
