"""Bodies that stand for far more than they are: each is refused before it takes the memory, and nothing changes."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from quacklake.errors import InputError, ResultTooLargeError, UnsupportedFeatureError
from quacklake.service.bodies import rows_of
from quacklake.service.encoding import ARROW, CSV, JSON, NDJSON, PARQUET
from quacklake.service.expansion import plain_batch, plain_schema, unpacked_size
from quacklake.service.settings import ServiceSettings
from tests import seeds
from tests.service.serving import Served, is_problem, sample_lake, served

ARROW_FILE = "application/vnd.apache.arrow.file"
LIMITS = {"max_body": 300_000, "max_unpacked": 4_000_000, "max_body_rows": 20_000}
LONG = "a" * 10_000_000
ROWS = 10_000
IDS = pa.array(range(ROWS), pa.int64())
PLAIN = pa.table({"id": IDS, "name": [f"n{number % 7}" for number in range(ROWS)]})


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(sample_lake(tmp_path_factory.mktemp("bodies")), **LIMITS) as found:
        found.lake.create_table("wide", {f"c{number}": "DOUBLE" for number in range(300)})
        yield found


def ipc(rows: pa.Table, codec: str | None = None, *, file: bool = False) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def parquet(rows: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


def one(text: str) -> pa.Table:
    return pa.table({"id": pa.array([1], pa.int64()), "name": [text]})


def repeated(text: str) -> pa.Table:
    """Return rows that all have one text, which is there once."""
    names = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int16()), pa.array([text]))
    return pa.table({"id": IDS, "name": names})


def claimed() -> bytes:
    """Return a stream with a buffer that says it is 32 terabytes."""
    body, size = ipc(PLAIN, "zstd"), struct.pack("<q", 8 * ROWS)
    assert body.count(size) == 1
    return body.replace(size, struct.pack("<q", 1 << 45))


def viewed() -> pa.Table:
    """Return views that all show one text."""
    _, view, text = pa.array(["a" * 20_000], pa.string_view()).buffers()
    views = pa.Array.from_buffers(pa.string_view(), ROWS, [None, pa.py_buffer(view.to_pybytes() * ROWS), text])
    return pa.table({"id": IDS, "name": views})


def runs() -> pa.Table:
    return pa.table({"id": IDS, "name": pa.RunEndEncodedArray.from_arrays([ROWS], pa.array(["a" * 100_000]))})


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "gzip of blanks": (JSON, lambda: gzip.compress(b" " * 5_000_000)),
    "zstd of blanks": (CSV, lambda: zstandard.compress(b" " * 5_000_000)),
    "arrow, zstd buffers": (ARROW, lambda: ipc(one(LONG), "zstd")),
    "arrow, lz4 buffers": (ARROW, lambda: ipc(one(LONG), "lz4")),
    "arrow file, zstd buffers": (ARROW_FILE, lambda: ipc(one(LONG), "zstd", file=True)),
    "arrow, a buffer that claims terabytes": (ARROW, claimed),
    "arrow, a compressed dictionary": (ARROW, lambda: ipc(repeated(LONG).slice(0, 1), "zstd")),
    "arrow, one long text for all rows": (ARROW, lambda: ipc(repeated("a" * 100_000))),
    "arrow, views of one text": (ARROW, lambda: ipc(viewed())),
    "arrow, one run": (ARROW, lambda: ipc(runs())),
    "parquet, a long page": (PARQUET, lambda: parquet(one(LONG), compression="zstd", use_dictionary=False)),
    "parquet, one long text for all rows": (PARQUET, lambda: parquet(repeated("a" * 100_000), compression="zstd")),
    "parquet, many rows": (PARQUET, lambda: parquet(pa.table({"id": pa.nulls(1_000_000, pa.int64())}))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_and_changes_nothing(service: Served, name: str) -> None:
    type_, made = BOMBS[name]
    body = made()
    assert len(body) < LIMITS["max_body"]
    headers = {"Content-Type": type_, "Idempotency-Key": name}
    if " of blanks" in name:
        headers["Content-Encoding"] = name.partition(" ")[0]
    before = service.lake.current_snapshot()
    for route in ("rows", "merge?on=id"):
        answer = service.writer.post(f"/api/v1/tables/t/{route}", content=body, headers=headers)
        assert is_problem(answer, 413, "limit.result")["hint"] == "send it in parts"
    assert service.lake.current_snapshot() == before


@pytest.mark.parametrize(
    "name", ["arrow, zstd buffers", "arrow, a buffer that claims terabytes", "parquet, a long page"]
)
def test_a_bomb_is_refused_before_arrow_takes_memory(service: Served, name: str) -> None:
    type_, made = BOMBS[name]
    body, schema = made(), service.lake.table("t").info.schema
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), pool.max_memory()
    with pytest.raises(ResultTooLargeError):
        rows_of(body, type_, schema, ServiceSettings(**LIMITS))
    assert pool.max_memory() <= max(most, before + LIMITS["max_unpacked"])


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("file", [False, True])
def test_rows_that_are_compressed_within_the_limits_are_taken(service: Served, codec: str | None, file: bool) -> None:
    schema = service.lake.table("t").info.schema
    settings = ServiceSettings(**LIMITS)
    shared = pa.table({"id": IDS, "name": PLAIN["name"].dictionary_encode()})
    for rows in (PLAIN, shared):
        found = rows_of(ipc(rows, codec, file=file), ARROW_FILE if file else ARROW, schema, settings)
        assert found.to_pylist() == PLAIN.to_pylist()
    assert rows_of(parquet(PLAIN), PARQUET, schema, settings).to_pylist() == PLAIN.to_pylist()


def test_every_size_is_what_the_plain_rows_take() -> None:
    texts = pa.array(["x" * (number % 50) for number in range(1000)])
    lists = pa.array([[text] for text in texts.to_pylist()])
    for array in (texts.dictionary_encode(), texts.cast(pa.string_view()), lists):
        assert texts.nbytes * 0.9 <= unpacked_size(array) <= texts.nbytes * 2 + 17_000
    nested = pa.StructArray.from_arrays([texts.dictionary_encode()], ["a"])
    assert unpacked_size(nested) >= texts.nbytes * 0.9
    assert unpacked_size(pa.array([1, 2, 3])) == 24


def _packed(rng: random.Random, count: int, depth: int = 0, *, shared: bool = False) -> pa.Array:
    """Return a random array that says much with few bytes; one whose values are ``shared`` by many rows is simpler.

    Arrow ends the process when it shows values of dictionaries of dictionaries.
    """
    kinds = ["int", "text", "view", "null", *([] if shared else ["dictionary", "runs"])]
    kinds += ["struct", "list", "fixed", "listed", *([] if shared else ["extension", "union"])] if depth < 3 else []
    kind, more = rng.choice(kinds), depth + 1
    if kind == "int":
        return pa.array([rng.choice((None, 7)) for _ in range(count)], pa.int64())
    if kind in ("text", "view"):
        texts = [rng.choice((None, "", "short", "x" * rng.randrange(2000))) for _ in range(count)]
        return pa.array(texts, pa.large_string() if kind == "text" else pa.string_view())
    if kind == "null":
        return pa.nulls(count)
    if kind == "dictionary":
        values = _packed(rng, 5, depth=2, shared=True)
        indices = pa.array([rng.choice((None, 0, 1, 4)) for _ in range(count)], pa.int16())
        return pa.DictionaryArray.from_arrays(indices, values)
    if kind == "runs":
        ends = [*sorted(rng.sample(range(1, count), min(count - 1, rng.randrange(4)))), count] if count else []
        return pa.RunEndEncodedArray.from_arrays(
            pa.array(ends, pa.int32()), _packed(rng, len(ends), depth=2, shared=True)
        )
    if kind == "struct":
        return pa.StructArray.from_arrays([_packed(rng, count, more, shared=shared) for _ in range(2)], ["a", "b"])
    if kind == "union":
        codes = pa.array([rng.randrange(2) for _ in range(count)], pa.int8())
        parts = [_packed(rng, count, more, shared=shared) for _ in range(2)]
        if rng.random() < 0.5 or not count:
            return pa.UnionArray.from_sparse(codes, parts)
        return pa.UnionArray.from_dense(codes, pa.array([rng.randrange(count) for _ in codes], pa.int32()), parts)
    if kind == "extension":
        values = _packed(rng, count, more, shared=shared)
        is_plain = pa.types.is_null(values.type) or isinstance(values, pa.ExtensionArray)
        return values if is_plain else pa.ExtensionArray.from_storage(pa.opaque(values.type, "x", "y"), values)
    values = _packed(rng, 2 * count, more, shared=shared)
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(values, 2)
    places = [rng.randrange(2 * count + 1) for _ in range(count + 1)]
    if kind == "list":
        return pa.ListArray.from_arrays(pa.array(sorted(places), pa.int32()), values)
    sizes = [rng.randrange(2 * count + 1 - start) for start in places[:-1]]
    return pa.ListViewArray.from_arrays(pa.array(places[:-1], pa.int32()), pa.array(sizes, pa.int32()), values)


def _plain_bytes(value: object) -> int:
    """Return the least bytes that a value takes by itself."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_plain_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_plain_bytes, value))
    return 0 if value is None else 8


def test_no_array_takes_more_than_is_said_of_it() -> None:
    rng, names = seeds.chance("packed arrays"), Counter[str]()
    for _ in range(20_000 if seeds.LONG else 400):
        array = _packed(rng, rng.choice((1, 3, 40)))
        names.update(re.findall(r"[a-z_]+", str(array.type)))
        start = rng.randrange(len(array))
        for part in (array, array.slice(start, rng.randrange(len(array) - start + 1))):
            if "union" in str(array.type) or "run_end" in str(array.type):
                part = array  # their parts do not come from a stream
            size, least = unpacked_size(part), sum(map(_plain_bytes, part.to_pylist()))
            assert size >= least, (array.type, len(part), size, least)
    wanted = {"dictionary", "run_end_encoded", "string_view", "list_view", "struct", "extension", "dense_union", "null"}
    assert wanted <= set(names), wanted - set(names)


def test_what_is_shared_in_nested_values_is_unpacked_without_a_change() -> None:
    rng = seeds.chance("plain arrays")
    unions = 0
    for _ in range(10_000 if seeds.LONG else 300):
        batch = pa.record_batch({"a": _packed(rng, rng.choice((1, 3, 40)))})
        if "union" in str(batch.schema):
            unions += 1
            with pytest.raises(UnsupportedFeatureError):
                plain_schema(batch.schema)
            continue
        plain = plain_batch(batch, plain_schema(batch.schema))
        plain.validate(full=True)
        assert plain.to_pylist() == batch.to_pylist(), batch.schema
        kind = str(plain.schema.field("a").type)
        assert not re.search(
            r"<.*(dictionary|run_end|view)",
            re.sub(r"^(dictionary<values=|run_end_encoded<run_ends: int32, )", "", kind),
        ), kind
    assert unions > 0


_ENDING = """
import sys
from pathlib import Path
import pyarrow as pa
from pyarrow import flight
from tests.service.flight.calls import Calls, ingestion
from tests.service.flight.conftest import WRITER, options, serve
home = Path(sys.argv[1])
served = serve(home)
with served.client() as client:
    calls = Calls(client, options(WRITER))
    for body in sorted(home.glob("*.body")):
        rows = pa.ipc.open_stream(body.read_bytes()).read_all()
        calls.put(ingestion(f"t{body.stem}", 1, 1), rows)
        assert served.lake.table(f"t{body.stem}").count() == rows.num_rows
assert served.service.shutdown()
served.lake.close()
"""


def test_columns_that_end_duckdb_or_arrow_do_not_end_the_service(tmp_path: Path) -> None:
    arrays = [
        pa.FixedSizeListArray.from_arrays(pa.array([1, 2], pa.timestamp("ns")).dictionary_encode(), 2),
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[1, 2]])),
        pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([["a"]])),
        pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([True]).dictionary_encode()),
    ]
    for number, array in enumerate(arrays):
        (tmp_path / f"{number}.body").write_bytes(ipc(pa.table({"name": array})))
    done = subprocess.run([sys.executable, "-c", _ENDING, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


OFFSETS = struct.pack("<iii", 0, 4, 8)


@pytest.mark.parametrize("end", [1 << 30, -1, 3])
def test_offsets_that_point_elsewhere_are_refused(service: Served, end: int) -> None:
    body = ipc(pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["abcd", "efgh"]}))
    assert body.count(OFFSETS) == 1
    broken = body.replace(OFFSETS, struct.pack("<iii", 0, 4, end))
    before = service.lake.current_snapshot()
    answer = service.writer.post("/api/v1/tables/t/rows", content=broken, headers={"Content-Type": ARROW})
    is_problem(answer, 400, "input")
    assert service.lake.current_snapshot() == before


def test_a_key_for_every_object_is_a_mistake_and_not_a_square(service: Served) -> None:
    rows = [{f"k{number}": 1} for number in range(15_000)]
    answer = service.writer.post("/api/v1/tables/t/rows", json=rows)
    assert "unknown columns" in is_problem(answer, 422, "input.schema_mismatch")["detail"]
    twice = [{"id": 1}, {"ID": 1}, {"Id": 1}, {"iD": 1}]
    assert service.writer.post("/api/v1/tables/t/rows", json=twice).status_code == 422


@pytest.mark.parametrize("first", [{"c0": 1}, {f"c{number}": 1 for number in range(300)}])
def test_few_values_for_many_columns_do_not_become_a_large_table(service: Served, first: dict[str, int]) -> None:
    rows = [first, *({"c0": 2} for _ in range(15_000))]
    for type_, body in ((JSON, json.dumps(rows)), (NDJSON, "\n".join(map(json.dumps, rows)))):
        answer = service.writer.post("/api/v1/tables/wide/rows", content=body, headers={"Content-Type": type_})
        is_problem(answer, 413, "limit.result")
    assert service.lake.table("wide").count() == 0


def test_a_damaged_arrow_body_is_an_error_of_its_sender(service: Served) -> None:
    whole = ipc(PLAIN.slice(0, 20), "lz4")
    schema, refused = service.lake.table("t").info.schema, 0
    for place in range(0, len(whole), 5):
        body = bytearray(whole)
        body[place] ^= 0xFF
        try:
            assert rows_of(bytes(body), ARROW, schema, ServiceSettings(**LIMITS)).num_rows <= 20
        except (InputError, ResultTooLargeError):
            refused += 1
    assert refused > 10
