"""The origin of the rows of a commit: the pipeline and its batch, and the messages that the batch has read.

A pipeline writes this into its commits, as the extra text of a snapshot, so that it lasts as long as the snapshot does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlglot import exp

from quacklake.errors import SqlError
from quacklake.lake import Lake
from quacklake.pipelines.definition import SOURCE_NAME, PipelineDefinition
from quacklake.pipelines.windows import parse_query

__all__ = ["Origin", "Origins", "sequence_of"]

_MARK = "quacklake_pipeline"
_SEQUENCE = "_sequence"
"""The column of a message's sequence, as the source names it."""


@dataclass(frozen=True)
class Origin:
    """A batch of a pipeline. Of NATS: its stream, and the sequences from ``first`` to ``last`` that it has read.

    ``column`` has the sequence of each row in the tables of the lake; None where the query does not pass it on.
    """

    pipeline: str
    checkpoint: int
    stream: str | None = None
    created: str | None = None
    first: int | None = None
    last: int | None = None
    column: str | None = None

    def to_extra(self) -> str:
        """Return the origin as the extra text of a snapshot."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps({_MARK: known}, sort_keys=True)

    @classmethod
    def of_extra(cls, extra: str | None) -> Origin | None:
        """Return the origin in the extra text of a snapshot; None for a commit that was not made by a pipeline."""
        try:
            found = json.loads(extra or "null")
            known = found[_MARK]
            numbers = [known.get(name) for name in ("first", "last")]
            texts = [known["pipeline"], *(known[name] for name in ("stream", "created", "column") if name in known)]
            if not all(isinstance(text, str) for text in texts) or not isinstance(known["checkpoint"], int):
                return None
            if not all(number is None or isinstance(number, int) for number in numbers):
                return None
            return cls(**known)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


class Origins:
    """The origins of the batches of one run, which begins behind a position."""

    def __init__(self, definition: PipelineDefinition, position: str | None) -> None:
        self._name = definition.name
        source = definition.source
        self._stream = str(source.options.get("stream")) if source.type == "nats" else None
        self._column = _SEQUENCE if self._stream is not None and passes_sequence(definition.query) else None
        self._after = position

    def origin(self, checkpoint_id: int, position: str) -> Origin:
        """Return the origin of a batch that ends at a position."""
        last = sequence_of(position)
        if self._stream is None or last is None:
            return Origin(self._name, checkpoint_id)
        # without a position, the first batch began at 1 or later
        first = 1 if self._after is None else (sequence_of(self._after) or 0) + 1
        created = _offsets(position).get("created")
        return Origin(
            self._name,
            checkpoint_id,
            self._stream,
            None if created is None else str(created),
            first,
            last,
            self._column,
        )

    def passed(self, position: str) -> None:
        """Note that a batch was committed: the next begins behind its position."""
        self._after = position

    def signed(self, lake: Lake, checkpoint_id: int, position: str) -> Lake:
        """Return the lake with the origin of a batch in its commits. What the user of the lake has given stays."""
        given = lake.handle.signature
        if given.extra is not None:
            return lake
        author = f"pipeline {self._name}" if given.author is None else given.author
        return lake.signed(given.message, author, self.origin(checkpoint_id, position).to_extra())


def passes_sequence(query: str | None) -> bool:
    """Return whether each row of a query has the sequence of its message in the column ``_sequence``.

    >>> passes_sequence("SELECT id, _sequence FROM source WHERE id > 3")
    True
    >>> passes_sequence("SELECT id AS _sequence FROM source"), passes_sequence("SELECT count(*) FROM source")
    (False, False)
    """
    if query is None:
        return True
    for dialect in ("duckdb", "spark"):
        try:
            tree = parse_query(query, dialect)
            break
        except SqlError:
            continue
    else:
        return False
    return _passes(tree)


def _passes(tree: exp.Query) -> bool:
    """Return whether a query is a plain selection of the source that keeps the column."""
    parts = (exp.With, exp.Join, exp.Group, exp.Lateral, exp.Subquery, exp.AggFunc, exp.Unnest, exp.Pivot)
    if not isinstance(tree, exp.Select) or tree.find(*parts) is not None:
        return False
    tables = list(tree.find_all(exp.Table))
    if len(tables) != 1 or tables[0].name.lower() != SOURCE_NAME:
        return False
    named = [each for each in tree.expressions if each.alias_or_name.lower() == _SEQUENCE]
    if named:
        return len(named) == 1 and isinstance(named[0], exp.Column) and named[0].name.lower() == _SEQUENCE
    return any(isinstance(each, exp.Star) and not any(each.args.values()) for each in tree.expressions)


def sequence_of(position: str) -> int | None:
    """Return the sequence of a position in a stream; None for the position of another source."""
    found = _offsets(position).get("sequence")
    return found if isinstance(found, int) else None


def _offsets(position: str) -> Mapping[str, Any]:
    try:
        found = json.loads(position)
        known = found.get("offsets", found)  # Spark has its own form
        return known if isinstance(known, Mapping) else {}
    except (ValueError, AttributeError):
        return {}
