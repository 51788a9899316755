"""How far streams have come: the mark that is written in the transaction of a batch, and when it may be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quacklake.errors import InvalidNameError, StreamBatchDoneError, StreamFencedError, StreamMismatchError

MAX_STREAM = 128
"""The longest name of a stream, in characters."""

NOTHING_YET = -1
"""The epoch of a stream without any batch."""


@dataclass(frozen=True, slots=True)
class StreamMark:
    """The last batch of a stream that is in the lake.

    ``query`` is what keeps its own count of batches, such as the checkpoint of a Spark query; ``run`` is one life of
    it. ``epoch`` is the number of the batch, ``position`` where the stream has come to, in the words of whoever runs
    it, ``snapshot_id`` the newest snapshot when it was marked.
    """

    name: str
    query: str
    run: str
    epoch: int = NOTHING_YET
    position: str | None = None
    snapshot_id: int | None = None


def check_stream(name: object) -> str:
    """Return the name if a stream may be called so; raise ``InvalidNameError`` if not."""
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_STREAM or not name.isprintable():
        raise InvalidNameError(
            f"a stream cannot be called {name!r:.150}", hint=f"a text of at most {MAX_STREAM} printable characters"
        )
    return name


def claimed(known: StreamMark | None, name: str, query: str, run: str, *, restart: bool) -> StreamMark:
    """Return the mark after a new run has made a stream its own, which fences every other.

    Raises ``StreamMismatchError`` when batches of another query are in the lake, unless the stream is to start anew.
    """
    if known is None:
        return StreamMark(name, query, run)
    if known.query == query:
        return replace(known, run=run)
    if known.epoch != NOTHING_YET and not restart:
        raise StreamMismatchError(
            f'the stream "{name}" is that of another query, which has come to batch {known.epoch}:'
            " rows could be missing, or come twice",
            hint="use the checkpoint it had, or another name; restart=True lets this query take the name over",
        )
    return StreamMark(name, query, run)


def marked(
    known: StreamMark | None, name: str, run: str, epoch: int, position: str | None, *, gaps: bool = False
) -> StreamMark:
    """Return the mark after a batch; with ``gaps`` batches may have been left out.

    Raises ``StreamBatchDoneError`` for one that is in the lake already, ``StreamFencedError`` when the run is not the
    last that has claimed the stream.
    """
    if known is None:
        raise StreamFencedError(f'the stream "{name}" was forgotten while it ran', hint="start it again")
    if known.run != run:
        raise StreamFencedError(
            f'another query has taken over the stream "{name}"', hint="let one query at a time have a name"
        )
    if epoch <= known.epoch:
        raise StreamBatchDoneError(f'batch {epoch} of the stream "{name}" is in the lake already')
    if epoch != known.epoch + 1 and not gaps:
        lost = f"batch {known.epoch + 1}" if epoch == known.epoch + 2 else f"batches {known.epoch + 1} to {epoch - 1}"
        raise StreamMismatchError(
            f'{lost} of the stream "{name}" are not in this lake, and batch {epoch} is next',
            hint="is the checkpoint that of another stream, or the lake restored from a backup?"
            " restart=True goes on without them",
        )
    return replace(known, epoch=epoch, position=position)
