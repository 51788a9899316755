"""Hide the locations of lakes from the user of a safe session."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from quacklake.engines.duckdb.connections import file_name
from quacklake.engines.duckdb.sql import NOTHING
from quacklake.errors import NotPermittedError, QuacklakeError
from quacklake.format.names import literal
from quacklake.sql.attached import Attached

_FRAME = re.compile(r"[\s│┌┐└┘├┤┬┴┼─]+")
_CATALOG = "the catalog"


def places_of(lakes: Iterable[Attached], spill: str) -> dict[str, str]:
    """Return the texts that reveal a location, the longest first, with their replacements."""
    found = {os.path.dirname(NOTHING) + "/": "", spill: ""}  # noqa: PTH120 - as it is in plans
    for attached in lakes:
        store = attached.context.store
        for folder in (store.root, *store.external):
            real = os.path.realpath(folder) if store.is_local else folder
            for name in (folder, real, file_name(folder), file_name(real)):
                found |= {f"{name.rstrip('/')}/": "", name.rstrip("/"): "the data path"}
        url = attached.context.catalog.url
        found |= {str(url): _CATALOG, url.shown: _CATALOG}
        if url.path is not None:
            found[str(url.path)] = _CATALOG
    known = sorted((text for text in found if len(text) > 1), key=len, reverse=True)
    return {text: found[text] for text in known}


def hidden_text(text: str, places: dict[str, str]) -> str:
    """Return a text in which paths begin at the data path."""
    for place, shown in places.items():
        # another path may begin with the same characters
        end = "" if place.endswith("/") else r"(?![\w.-])"
        text = re.sub(re.escape(place) + end, lambda _, shown=shown: shown, text)  # type: ignore[misc]
    return text


def hidden_error(error: QuacklakeError, places: dict[str, str]) -> None:
    """Remove locations from an error, and remove its cause: DuckDB's own errors name files."""
    error.message = hidden_text(error.message, places)
    if error.hint is not None:
        error.hint = hidden_text(error.hint, places)
    error.args = (error.message,)
    error.__cause__ = error.__context__ = None


def hidden_plan(text: str, places: dict[str, str]) -> str:
    """Return a plan without file names. Raises ``NotPermittedError`` when they cannot be removed."""
    with suppress(ValueError):  # the plan is in another format
        text = json.dumps(_without_files(json.loads(text)), indent=4)
    text = hidden_text(text, places)
    # a path in a box is broken across lines
    whole = _FRAME.sub("", text)
    if any(_FRAME.sub("", place) in whole for place in places):
        raise NotPermittedError("the plan names files", hint="EXPLAIN (FORMAT JSON) leaves them out")
    return text


def _without_files(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_files(item) for item in node]
    if isinstance(node, dict):
        return {key: _without_files(value) for key, value in node.items() if not key.lower().startswith("filename")}
    return node


def relative_name(query: str, lake: Attached) -> str:
    """Return a scan whose column ``filename`` begins at the data path, or is a file name for a path elsewhere."""
    store = lake.context.store
    roots = dict.fromkeys([store.root, f"{os.path.realpath(store.root)}/" if store.is_local else store.root])
    cases = "".join(
        f" WHEN starts_with(filename, {literal(root)}) THEN substr(filename, {len(root) + 1:d})" for root in roots
    )
    return f"SELECT * REPLACE (CASE{cases} ELSE parse_filename(filename) END AS filename) FROM ({query})"
