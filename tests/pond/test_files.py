"""Files of bytes: small ones in the tree, large ones under their hash, streamed and verified."""

from __future__ import annotations

import filecmp
import hashlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

from quacklake import telemetry
from quacklake.core.storage import Store
from quacklake.errors import AlreadyExistsError, CorruptFileError, InputError, ResultTooLargeError
from quacklake.pond import Pond
from quacklake.pond.large_files import FOLDER, THRESHOLD, LargeFiles
from quacklake.pond.verifying import verify
from tests.pond.conftest import Home

pytestmark = pytest.mark.daily(0.25)


def large(tmp_path: Path) -> LargeFiles:
    return LargeFiles(Store.open(str(tmp_path)))


def stored(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def test_hybrid_writer_small(tmp_path: Path) -> None:
    content = large(tmp_path).write(io.BytesIO(b"hello"))
    assert (content.inline, content.size) == (b"hello", 5)
    assert content.sha256 == hashlib.sha256(b"hello").hexdigest()
    assert stored(tmp_path) == []


def test_hybrid_writer_large(tmp_path: Path) -> None:
    data = b"x" * (THRESHOLD + 1)
    content = large(tmp_path).write(io.BytesIO(data))
    assert content.inline is None
    assert stored(tmp_path) == [f"{FOLDER}/sha256={hashlib.sha256(data).hexdigest()}"]


@pytest.mark.parametrize(
    ("size", "inline"), [(0, True), (64 * 1024 - 1, True), (64 * 1024, True), (64 * 1024 + 1, False)]
)
def test_hybrid_writer_threshold_boundary(tmp_path: Path, size: int, inline: bool) -> None:
    assert (large(tmp_path).write(io.BytesIO(b"a" * size)).inline is not None) == inline


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step = io.BytesIO(data), step

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(self._step, size))


def test_hybrid_writer_incremental_hash(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    content = large(tmp_path).write(Trickle(data, 777))
    assert (content.sha256, content.size) == (hashlib.sha256(data).hexdigest(), len(data))


def test_hybrid_writer_spillover(tmp_path: Path) -> None:
    """Store contents whole that arrive in pieces around the threshold."""
    files, data = large(tmp_path), bytes(range(256)) * 257
    content = files.write(Trickle(data, THRESHOLD - 1))
    with files.open(content.sha256, content.size, "f") as file:
        assert file.read() == data


def test_hybrid_writer_deduplication(tmp_path: Path) -> None:
    files, data = large(tmp_path), b"z" * 100_000
    first, second = files.write(io.BytesIO(data)), files.write(io.BytesIO(data))
    assert first == second
    assert len(stored(tmp_path)) == 1


def test_more_than_a_hundred_files_go_into_folders_by_their_hash(tmp_path: Path) -> None:
    files = large(tmp_path)
    (tmp_path / FOLDER).mkdir()
    for number in range(100):
        (tmp_path / FOLDER / f"sha256={number:064x}").touch()
    content = files.write(io.BytesIO(b"q" * 70_000))
    path = f"{FOLDER}/sha256_16={content.sha256[:4]}/sha256={content.sha256}"
    assert path in stored(tmp_path)
    assert files.find(content.sha256) == path
    with files.open(content.sha256, content.size, "f") as file:
        assert file.read(3) == b"qqq"


def test_a_large_file_can_be_read_at_any_position(home: Home) -> None:
    data = bytes(range(256)) * 1024
    home.change(lambda wd: wd.write_file("big", data))
    with home.wd.fs.open(f"{home.path}/big") as file:
        file.seek(-256, 2)
        assert file.read(4) == b"\x00\x01\x02\x03"
        file.seek(1000)
        assert file.read(10) == data[1000:1010]


def test_small_and_large_file_boundary(home: Home) -> None:
    sizes = [0, 1, 65_535, 65_536, 65_537, 200_000]
    home.change(
        lambda wd: [wd.write_file(f"f{size}", b"\xff\x00" * (size // 2) + b"\x80" * (size % 2)) for size in sizes]
    )
    for size in sizes:
        assert home.wd.read(f"f{size}") == b"\xff\x00" * (size // 2) + b"\x80" * (size % 2)
        node = home.wd.get(f"f{size}").node
        assert bool(node.extended_attributes.get("external")) == (size > 65_536)


def test_an_overwritten_file_is_its_next_version_and_the_last_one_stays_readable(home: Home) -> None:
    home.change(lambda wd: wd.write_file("f", b"one"))
    before = home.pond.lake.current_snapshot()
    with pytest.raises(AlreadyExistsError):
        home.change(lambda wd: wd.write_file("f", b"two"))
    home.change(lambda wd: wd.write_file("f", b"t" * 70_000, replace=True))
    assert home.wd.get("f").node.version == 2
    assert home.wd.read("f") == b"t" * 70_000
    assert home.pond.fs(at=before).read(f"{home.path}/f") == b"one"


# P28
def test_a_large_file_is_not_read_at_once(tmp_path: Path) -> None:
    """P28: the error names the way to read a file of any size."""
    with Pond.create(tmp_path / "P", pond_read_bytes=100) as pond:
        pond.run(["test"], lambda fs: fs.write_file("/small", b"y" * 100))
        pond.run(["test"], lambda fs: fs.write_file("/middle", b"x" * 101))
        pond.run(["test"], lambda fs: fs.write_file("/large", b"x" * 200_000))
        fs = pond.fs()
        root = fs.root()
        assert fs.read("/small") == root.read("small") == b"y" * 100
        for name in ("middle", "large"):
            for read in (fs.read, root.read):
                with pytest.raises(ResultTooLargeError, match=f"/{name} has .* bytes, more than the 100") as caught:
                    read(name)
                assert f"fs.open('/{name}')" in str(caught.value.hint)
                assert "pond_read_bytes" in str(caught.value.hint)
        with root.open("large") as file:
            file.seek(199_999)
            assert file.read() == b"x"
    with Pond.open(tmp_path / "P") as pond:
        assert pond.fs().read("/large") == b"x" * 200_000


def test_the_same_bytes_again_make_no_version(home: Home) -> None:
    home.change(lambda wd: wd.write_file("f", b"one"))
    before = home.pond.lake.current_snapshot()
    home.change(lambda wd: wd.write_file("f", b"one", replace=True))
    assert home.wd.get("f").node.version == 1
    assert home.pond.lake.current_snapshot() == before


def test_a_directory_has_no_bytes(home: Home) -> None:
    home.change(lambda wd: wd.make_directory("d"))
    with pytest.raises(InputError, match="is a directory"):
        home.wd.read("d")


@pytest.mark.parametrize("damage", ["changed", "truncated", "missing"])
def test_a_damaged_large_file_is_found_and_never_served(home: Home, damage: str) -> None:
    data = damage.encode() + b"d" * 100_000
    home.change(lambda wd: wd.write_file("big", data))
    sha256 = home.wd.get("big").node.sha256
    assert sha256 is not None
    path = home.pond.large_files.find(sha256)
    file = Path(home.pond.lake.data_path) / str(path)
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if damage == "truncated" else b"X" + data[1:])
    with pytest.raises(CorruptFileError, match=f"{home.path}/big"):
        home.wd.read("big")
    home.change_fs(lambda fs: fs.remove(f"{home.path}/big"))


def test_verify_reads_equal_files_once_and_names_every_path_of_a_damaged_one(tmp_path: Path) -> None:
    data = b"e" * 100_000
    with Pond.create(tmp_path / "P") as pond:
        pond.run(["fill"], lambda fs: [fs.write_file(path, data) for path in ("/a", "/b")])
        whole = verify(pond)
        assert (whole.large_files, whole.large_bytes, whole.problems) == (1, len(data), ())
        file = pond.large_files.find(hashlib.sha256(data).hexdigest())
        Path(pond.lake.data_path, str(file)).write_bytes(b"E" + data[1:])
        assert [each.path for each in verify(pond).problems] == ["/a", "/b"]


def test_work_is_counted(home: Home) -> None:
    before = telemetry.snapshot().counters.get("pond.large_files.written", 0)
    home.change(lambda wd: wd.write_file("m", b"metric" * 20_000))
    assert telemetry.snapshot().counters["pond.large_files.written"] == before + 1
    assert telemetry.snapshot().counters["pond.nodes.written"] > 0


_COPY = """
import os, resource, sys
from pathlib import Path
from quacklake.cli.pond import main
from quacklake.cli.pond import copying
import quacklake.pond.copying, quacklake.pond.queries

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

assert main(["init"]) == 0
Path("small").write_bytes(b"s" * 70_000)
assert main(["copy", "small", "/small"]) == 0
assert main(["copy", "/small", "host:" + os.getcwd() + "/small.out"]) == 0
before = peak()
assert main(["copy", "big", "/big"]) == 0
assert main(["copy", "/big", "host:" + os.getcwd() + "/big.out"]) == 0
print("GREW", (peak() - before) // 1024)
"""


def test_a_file_much_larger_than_memory_goes_in_and_out_in_blocks(tmp_path: Path) -> None:
    """150 MB go through while the process grows by less than 24 MB."""
    block = bytes(range(256)) * 4096
    with (tmp_path / "big").open("wb") as file:
        for number in range(150):
            file.write(number.to_bytes(4, "big") + block[4:])
    done = subprocess.run(
        [sys.executable, "-c", _COPY],
        cwd=tmp_path,
        env={"POND": str(tmp_path / "P"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    grew = int(done.stdout.rpartition("GREW ")[2])
    assert grew < 24
    assert filecmp.cmp(tmp_path / "big", tmp_path / "big.out", shallow=False)


_STREAM = """
import hashlib, resource
from quacklake.errors import ResultTooLargeError
from quacklake.pond import Pond

class Zeros:
    def __init__(self, left):
        self.left = left

    def read(self, size):
        size = min(size, self.left)
        self.left -= size
        return bytes(size)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def write_and_read(pond, path, size):
    pond.run(["test"], lambda fs: fs.write_file(path, Zeros(size)))
    digest = hashlib.sha256()
    with pond.fs().open(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()

with Pond.create("P") as pond:
    write_and_read(pond, "/small", 3_000_000)
    before = peak()
    print(write_and_read(pond, "/big", 200_000_000))
    try:
        pond.fs().read("/big")
    except ResultTooLargeError as error:
        print(error.code)
    print((peak() - before) // 1024)
"""


# P28, P30
def test_a_file_is_read_as_a_stream_in_little_memory(tmp_path: Path) -> None:
    """P28: 200 MB are written and read while the process grows by less than 24 MB."""
    done = subprocess.run(
        [sys.executable, "-c", _STREAM], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    digest, code, grew = done.stdout.split()
    expected = hashlib.sha256()
    for _ in range(200):
        expected.update(bytes(1_000_000))
    assert (digest, code) == (expected.hexdigest(), "limit.result")
    assert int(grew) < 24
