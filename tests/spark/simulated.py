"""Spark's own loop over batches, without Spark: a checkpoint that is copied, put back and lost in part, many times.

The loop keeps the files that Spark keeps, in the order in which Spark writes them, and refuses what Spark refuses. What
commits a batch is the real thing: the handle of a stream, its sink, and the lake. A driver dies at any point of both. In
the end the rows of the source are in the table, each once and in turn, or somebody was told that they cannot be.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import quacklake
from quacklake.core import faults
from quacklake.core.operations import dml
from quacklake.core.operations.keyed_changes import upsert
from quacklake.core.operations.reference import TableRef
from quacklake.core.transaction import Transaction
from quacklake.errors import StreamFencedError, StreamMismatchError
from quacklake.inputs.frames import to_source
from quacklake.spark.streams.checkpoint import SparkCheckpoint, read_from_folder
from quacklake.spark.streams.sink import SparkSink, StreamHandle
from tests.seeds import chance
from tests.spark.deaths import Died, death

__all__ = ["Checkpoints", "Query", "Source", "SparkRefusal"]

FOLDERS = ("commits", "offsets", "sources", "state")
KEYS = 5
RESTARTS = 3
"""The starts after which a stream that is whole has caught up."""
_COPIES = 5
_POINTS = ("spark.*", "stream.*", "simulated.*", "catalog.*")
_OURS = ("spark.*", "stream.batch.before", "simulated.stage")
"""The points at which another driver may do what it likes: no transaction of the catalog is open there."""


class SparkRefusal(Exception):
    """Spark does not go on with a checkpoint, or says that a batch was not computed."""


class Source:
    """Rows 0, 1, 2, … that arrive, each in a file of its own. Spark lists the files, or asks for offsets."""

    def __init__(self, *, files: bool) -> None:
        self.files = files
        self.rows = 0


class Rows:
    """A batch, with as much of a DataFrame as the sink needs to compute it and drop it."""

    def __init__(self, compute: Callable[[], list[tuple[int, int]]]) -> None:
        self._compute = compute
        self.computed = False

    def compute(self) -> list[tuple[int, int]]:
        self.computed = True
        return self._compute()

    @property
    def write(self) -> Rows:
        return self

    def format(self, name: str) -> Rows:
        assert name == "noop"
        return self

    def mode(self, _: str) -> Rows:
        return self

    def save(self) -> None:
        self.compute()


class PlainSink(SparkSink):
    """Writes rows of a few numbers as the driver of a stream does."""

    def stage(self, frame: Any) -> AbstractContextManager[Callable[[Transaction], dict[str, Any]]]:
        names = ("id", "n")
        rows = pa.table(dict(zip(names, zip(*frame.compute(), strict=True), strict=False)) or {n: [] for n in names})
        rows = rows.cast(pa.schema([(name, pa.int64()) for name in names]))
        context = self.engine.context
        faults.reach("simulated.stage")

        def work(tx: Transaction) -> dict[str, Any]:
            table = tx.find_table(self.table.schema, self.table.name)
            if self.mode == "append":
                dml.append(context, tx, table, to_source(rows))
            elif rows.num_rows:
                upsert(context, tx, table, rows, self.on, None)
            return {"rows": rows.num_rows}

        return nullcontext(work)


class Query:
    """A query of Spark over a checkpoint: what it does between two batches, and in which order."""

    def __init__(self, folder: Path, source: Source, clock: Callable[[], int], *, stateful: bool) -> None:
        self.folder = folder
        self.source = source
        self.clock = clock
        self.stateful = stateful
        self.runId = str(uuid.uuid4())
        metadata = folder / "metadata"
        if not metadata.is_file():
            self._write(metadata, json.dumps({"id": str(uuid.uuid4())}))
        self.id = str(json.loads(metadata.read_text())["id"])

    def stop(self) -> None:
        """Nothing runs beside the caller."""

    def run(self, batch: Callable[[Any, int], None], most: int) -> None:
        """Run the batches that are there: at first one that was planned and maybe done."""
        offsets, commits = self._numbers("offsets"), self._numbers("commits")
        epoch, end = 0, -1
        if offsets:
            epoch, end = offsets[-1], self._end(offsets[-1])
            start = -1 if epoch == 0 else self._end(epoch - 1)
            if not commits or commits[-1] != epoch:
                self._batch(batch, epoch, start, end, most)
            epoch += 1
        while (planned := self._latest(most)) != end:
            faults.reach("spark.offsets.before")
            self._add(
                "offsets", epoch, f'v1\n{{"batchTimestampMs":{self.clock()}}}\n{json.dumps(self._offset(planned))}'
            )
            faults.reach("spark.offsets.after")
            self._batch(batch, epoch, end, planned, most)
            epoch, end = epoch + 1, planned

    def _batch(self, batch: Callable[[Any, int], None], epoch: int, start: int, end: int, most: int) -> None:
        if end < start:
            raise SparkRefusal("the source is behind the batch")
        rows = Rows(lambda: self._compute(epoch, start, end))
        batch(rows, epoch)
        if self.stateful and not rows.computed:
            raise SparkRefusal("not all StateStores committed")
        faults.reach("spark.commits.before")
        self._add("commits", epoch, "v1\n{}")
        faults.reach("spark.commits.after")

    def _compute(self, epoch: int, start: int, end: int) -> list[tuple[int, int]]:
        if self.source.files:
            lists = (self.folder / "sources/0" / str(number) for number in range(start + 1, end + 1))
            rows = [row for each in lists if each.is_file() for row in json.loads(each.read_text())]
        else:
            rows = list(range(start + 1, end + 1))
        if not self.stateful:
            return [(row, row % KEYS) for row in rows]
        state = self.folder / "state" / str(epoch)
        if epoch and not state.is_file():
            raise SparkRefusal("the state cannot be read")
        counts = Counter({int(key): n for key, n in json.loads(state.read_text() if epoch else "{}").items()})
        counts.update(row % KEYS for row in rows)
        faults.reach("spark.state.before")
        self._write(self.folder / "state" / str(epoch + 1), json.dumps(counts))
        faults.reach("spark.state.after")
        return [(key, counts[key]) for key in sorted({row % KEYS for row in rows})]

    def _latest(self, most: int) -> int:
        """Return the end of the next batch; a source of files writes the list of new ones first."""
        if not self.source.files:
            return self.source.rows - 1
        lists = self._numbers("sources/0")
        if lists != list(range(len(lists))):
            raise SparkRefusal("a list of files is gone")
        seen = {row for number in lists for row in json.loads((self.folder / f"sources/0/{number}").read_text())}
        new = [row for row in range(self.source.rows) if row not in seen][:most]
        if new:
            faults.reach("spark.sources.before")
            self._add("sources/0", len(lists), json.dumps(new))
            faults.reach("spark.sources.after")
        return len(lists) - (not new)

    def _offset(self, end: int) -> dict[str, Any]:
        return {"logOffset": end} if self.source.files else {"topic": {"0": end}}

    def _end(self, epoch: int) -> int:
        path = self.folder / "offsets" / str(epoch)
        if not path.is_file():
            raise SparkRefusal(f"batch {epoch} does not exist")
        offset = json.loads(path.read_text().splitlines()[-1])
        return int(offset["logOffset"] if self.source.files else offset["topic"]["0"])

    def _numbers(self, below: str) -> list[int]:
        return sorted(int(path.name) for path in (self.folder / below).glob("[0-9]*"))

    def _add(self, below: str, number: int, text: str) -> None:
        if (self.folder / below / str(number)).exists():
            raise SparkRefusal("another query writes into the checkpoint")
        self._write(self.folder / below / str(number), text)

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Checkpoints:
    """A stream whose drivers die, and whose checkpoint is put back, copied and lost in part between their lives."""

    def __init__(self, folder: Path, seed: str, *, files: bool, stateful: bool) -> None:
        self.dice = chance("checkpoints", seed, files, stateful)
        self.folder = folder
        self.here = folder / "checkpoint"
        self.source = Source(files=files)
        self.stateful = stateful
        self.lake = quacklake.connect(f"sqlite:///{folder}/lake.db", data_path=folder / "data", duckdb_threads=1)
        self.lake.create_table("t", {"id": pa.int64(), "n": pa.int64()})
        self.copies: list[Path] = []
        self.outcomes: Counter[str] = Counter()
        self.restarts = 0
        self._time = self._number = self._rows = 0
        self.keep: Callable[[], SparkCheckpoint] | None = None

    def close(self) -> None:
        self.lake.close()

    def play(self, lives: int) -> None:
        """Let drivers live and die, and look at the table after each."""
        for number in range(lives):
            self.source.rows += self.dice.choice((0, 1, 1, 2, 5))
            if self.dice.random() < 0.3:
                self._copy()
            whole = self._kept(self.here)
            damaged, before = self._damage(), self._mark()
            try:
                self._live_and_die()
            except (Died, SparkRefusal, StreamMismatchError, StreamFencedError) as error:
                self.outcomes[f"{damaged}: {type(error).__name__}"] += 1
            else:
                self.outcomes[f"{damaged}: caught up"] += 1
            self.check()
            if self._mark() == before:  # nobody went on from what is there now: the right one is put back
                self._put(whole)
            shutil.rmtree(whole, ignore_errors=True)
            if number % 3 == 0:
                self._catch_up()
        self._catch_up()

    def check(self) -> None:
        """Assert that the table has the first rows of the source, each once."""
        rows = self.lake.table("t").to_pylist()
        found = [(row["id"], row["n"]) for row in rows]
        count = sum(n for _, n in found) if self.stateful else len(found)
        first = range(count)
        expected = Counter(row % KEYS for row in first) if self.stateful else {row: row % KEYS for row in first}
        assert sorted(found) == sorted(expected.items()), f"{sorted(found)}, not the first {count} rows"
        assert self._rows <= count <= self.source.rows
        self._rows = count

    def live(self, folder: Path, **options: Any) -> None:
        """Start the stream once, and let it catch up."""
        self.restarts += 1
        context = self.lake.handle.context
        engine: Any = SimpleNamespace(context=context, handle=self.lake.handle)
        mode, keys = ("upsert", ["id"]) if self.stateful else ("append", [])
        sink = PlainSink(engine, "in", TableRef.parse("t"), mode, keys, **options)
        handle = StreamHandle(sink, SparkCheckpoint(read_from_folder(folder)))
        handle.check()
        query = Query(folder, self.source, self._tick, stateful=self.stateful)
        handle._begin(query, restart=False)  # type: ignore[arg-type]
        query.run(handle.hand_over(), self.dice.choice((1, 2, 100)))

    def _catch_up(self) -> None:
        """Start the stream as a supervisor does, with the right checkpoint."""
        for left in reversed(range(RESTARTS)):
            try:
                self.live(self.here)
                break
            except SparkRefusal:
                assert left, "a stream that is whole does not come up"
        self.check()
        assert self._rows == self.source.rows

    def _live_and_die(self) -> None:
        pattern, at = self.dice.choice(_POINTS), self.dice.choice((1, 1, 2, 3, 5, 9, 14))
        if self.dice.random() < 0.25:
            with self._rival():
                self.live(self.here)
        elif self.dice.random() < 0.8:
            with death(pattern, at, clean=self.dice.random() < 0.25):
                self.live(self.here)
        else:
            self.live(self.here)

    @contextmanager
    def _rival(self) -> Iterator[None]:
        """Let another driver live within the life of one: with the same checkpoint, or with a copy of it."""
        pattern, left = self.dice.choice(_OURS), self.dice.choice((1, 2, 4))
        same = self.dice.random() < 0.5
        beside: Path | None = None
        mark: Any = None

        def hook(name: str) -> None:
            nonlocal left, beside, mark
            if faults.fnmatchcase(name, pattern):
                left -= 1
                if left == 0:
                    beside = self.here if same else self._kept(self.here)
                    before = self._mark()
                    try:
                        self.live(beside)
                        self.outcomes["a rival caught up"] += 1
                    except (SparkRefusal, StreamMismatchError, StreamFencedError) as error:
                        self.outcomes[f"a rival: {type(error).__name__}"] += 1
                    mark = None if self._mark() == before else self._mark()

        try:
            with faults._hooked(hook):
                yield
        finally:
            if beside not in (None, self.here):
                assert beside is not None
                if mark is not None and mark == self._mark():  # the copy is now the right one
                    self._put(beside)
                shutil.rmtree(beside, ignore_errors=True)

    # -- what happens to a checkpoint ----------------------------------------------------------------------------------

    def _damage(self) -> str:
        how = self.dice.choice(("nothing", "nothing", "put back", "put back", "folder", "some", "last", "metadata"))
        if how == "put back":
            if not self.copies:
                return "nothing"
            self._put(self.dice.choice(self.copies))
        elif how == "metadata":
            (self.here / "metadata").unlink(missing_ok=True)
        elif how != "nothing":
            below = self.dice.choice(FOLDERS)
            files = sorted(
                (path for path in (self.here / below).rglob("[0-9]*") if path.is_file()),
                key=lambda path: int(path.name),
            )
            lost = (
                files
                if how == "folder"
                else files[-1:]
                if how == "last"
                else [f for f in files if self.dice.random() < 0.5]
            )
            for path in lost:
                path.unlink()
            return f"{how} of {below}"
        return how

    def _copy(self) -> None:
        self.copies.append(self._kept(self.here))
        if len(self.copies) > _COPIES:
            shutil.rmtree(self.copies.pop(self.dice.randrange(_COPIES)))

    def _kept(self, folder: Path) -> Path:
        self._number += 1
        place = self.folder / f"copy-{self._number}"
        place.mkdir()
        if folder.exists():
            shutil.copytree(folder, place, dirs_exist_ok=True)
        return place

    def _put(self, copy: Path) -> None:
        shutil.rmtree(self.here, ignore_errors=True)
        shutil.copytree(copy, self.here)

    def _mark(self) -> Any:
        return self.lake.streams.list().select(["epoch", "position", "query"]).to_pylist()

    def _tick(self) -> int:
        self._time += 1
        return self._time
