"""Tables of other formats as sources, in their four modes."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quacklake.connectors import Source, SourceCheckpoint
from quacklake.errors import ConfigError, ConnectorError, NotFoundError, StreamMismatchError
from tests.connectors.sinks import FORMATS, Format
from tests.seeds import SEED


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Format:
    found = FORMATS[request.param]
    if not found.there():
        pytest.skip(f"the package {found.library} is not installed")
    return found


def drain(source: Source) -> Iterator[pa.RecordBatch]:
    while (batch := source.poll_next()) is not None:
        yield batch


def ids(source: Source) -> list[int]:
    return sorted(n for batch in drain(source) for n in batch.column("id").to_pylist())


def test_the_modes_that_end_read_what_they_say(form: Format, tmp_path: Path) -> None:
    versions = [form.append(tmp_path, first, first + 10) for first in (0, 10, 20)]
    then = datetime.now(UTC)
    time.sleep(0.01)
    versions.append(form.append(tmp_path, 30, 40))
    cases: list[tuple[dict[str, Any], range]] = [
        ({}, range(40)),
        ({"mode": "snapshot", "version": versions[1]}, range(20)),
        ({"mode": "snapshot", "timestamp": then.isoformat()}, range(30)),
        ({"mode": "incremental", "version": versions[0]}, range(10, 40)),
        ({"mode": "incremental", "version": versions[3]}, range(0)),
    ]
    for options, expected in cases:
        source = form.source(tmp_path, **options)
        source.start()
        assert ids(source) == list(expected), options
        assert source.poll_next() is None
        assert source.schema().names == ["id", "part"]


def test_a_source_that_ends_anywhere_goes_on_behind_its_checkpoint(form: Format, tmp_path: Path) -> None:
    """Random histories and random deaths: what was returned before a checkpoint and after it is everything, once."""
    dice = random.Random(SEED)
    last = 20
    form.append(tmp_path, 0, last)
    for _ in range(3):
        seen: Counter[int] = Counter()
        checkpoint: SourceCheckpoint | None = None
        for _ in range(dice.randint(3, 8)):
            source = form.source(tmp_path, mode="continuous", batch_rows=dice.randint(1, 6))
            source.start(checkpoint)
            for _ in range(dice.randint(0, 9)):
                batch = source.poll_next()
                if batch is not None:
                    seen.update(batch.column("id").to_pylist())
            checkpoint = SourceCheckpoint.from_json(source.current_checkpoint().to_json())
            source.close()
            if dice.random() < 0.4:
                last, first = last + dice.randint(1, 5), last
                form.append(tmp_path, first, last)
        source = form.source(tmp_path, mode="continuous", batch_rows=4)
        source.start(checkpoint)
        seen.update(ids(source))
        assert seen == Counter(range(last))


def test_a_checkpoint_has_the_time_at_which_it_was_reached(form: Format, tmp_path: Path) -> None:
    """L15; a checkpoint of an earlier release has no time, and is read as well."""
    form.append(tmp_path, 0, 5)
    source = form.source(tmp_path, mode="continuous")
    began = datetime.now(UTC)
    source.start()
    assert ids(source) == list(range(5))
    first = source.current_checkpoint()
    assert first.timestamp is not None
    assert began <= first.timestamp <= datetime.now(UTC)
    assert SourceCheckpoint.from_json(first.to_json()) == first
    assert source.poll_next() is None
    assert source.current_checkpoint() == first  # nothing is new, so nothing has moved
    form.append(tmp_path, 5, 7)
    facts = json.loads(first.to_json())
    for old in ({**facts, "timestamp": None}, {key: value for key, value in facts.items() if key != "timestamp"}):
        again = form.source(tmp_path, mode="continuous")
        again.start(SourceCheckpoint.from_json(json.dumps(old)))
        assert ids(again) == [5, 6]
        second = again.current_checkpoint()
        assert second.table_version != first.table_version
        assert second.timestamp is not None
        assert second.timestamp > first.timestamp


def test_changed_rows_are_an_error_or_what_the_option_says(form: Format, tmp_path: Path) -> None:
    version = form.append(tmp_path, 0, 6)
    form.delete(tmp_path, 3)
    form.append(tmp_path, 6, 7)
    for choice in ("skip", "rows"):
        source = form.source(tmp_path, mode="incremental", version=version, on_change=choice)
        source.start()
        found = ids(source)
        assert found == [6] if choice == "skip" else 6 in found and 3 not in found
    source = form.source(tmp_path, mode="incremental", version=version)
    source.start()
    with pytest.raises(ConnectorError, match="changed or removed rows"):
        ids(source)


def test_another_table_in_the_place_of_the_first_is_an_error(form: Format, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    form.append(place, 0, 5)
    source = form.source(place, mode="continuous")
    source.start()
    ids(source)
    shutil.rmtree(place)
    place.mkdir()
    form.append(place, 0, 5)
    with pytest.raises(StreamMismatchError):
        form.source(place, mode="continuous").start(source.current_checkpoint())


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "snapshot"},
        {"mode": "incremental"},
        {"mode": "sometimes"},
        {"timestamp": "noon", "mode": "snapshot"},
        {"change_data_feed": True},
        {"pol_interval": "1s"},
        {"poll_interval": "10"},
        {"on_change": "what"},
    ],
)
def test_bad_options_are_refused(form: Format, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        form.source(tmp_path, **options)


def test_a_place_without_a_table_is_an_error(form: Format, tmp_path: Path) -> None:
    with pytest.raises((ConnectorError, NotFoundError)):
        form.source(tmp_path).start()
    with pytest.raises(ConnectorError, match="start"):
        form.source(tmp_path).poll_next()


def test_an_idle_source_waits_its_interval(form: Format, tmp_path: Path) -> None:
    form.append(tmp_path, 0, 3)
    source = form.source(tmp_path, mode="continuous", poll_interval="50 ms")
    source.start()
    ids(source)
    begun = time.monotonic()
    assert source.poll_next() is None
    assert time.monotonic() - begun >= 0.03
