"""A look at one path reads only the nodes that it needs, and finds what a look at the whole tree finds."""

from __future__ import annotations

import pytest

from quacklake.errors import NotFoundError, PathError, QuacklakeError
from quacklake.pond import FS
from quacklake.pond.series import append_series
from tests.pond.conftest import Home, readings


def fill(fs: FS, home: str) -> None:
    for name in ("a", "b", "a/b", "a/b/a"):
        fs.make_directory(f"{home}/{name}")
    fs.write_file(f"{home}/a/file", b"1")
    fs.write_file(f"{home}/a/b/file", b"2")
    append_series(fs, f"{home}/a/s.series", readings(3))
    fs.make_link(f"{home}/b/link", "../a/b")
    fs.make_link(f"{home}/b/loop", "loop")
    fs.make_link(f"{home}/b/nowhere", "nothing")


PATHS = (
    "a",
    "a/file",
    "a/b/file",
    "a/b/a",
    "b/link",
    "b/link/file",
    "a/s.series",
    "b/loop",
    "b/nowhere",
    "a/b/..",
    "x",
)
PATTERNS = ("*", "a/*", "a/*.series", "b/link/*", "b/*", "a/file", "**/file", "a/[fb]*", "x/*", "*/b/*")


def outcome(fs: FS, path: str, *, follow: bool) -> object:
    try:
        found = fs.get(path, follow=follow)
    except QuacklakeError as error:
        return type(error), error.message, error.hint
    return found.path, found.node, found.versions


def test_a_part_of_the_tree_tells_what_the_whole_tree_tells(home: Home) -> None:
    home.change_fs(lambda fs: fill(fs, home.path))
    home.change_fs(lambda fs: append_series(fs, f"{home.path}/a/s.series", readings(3, 3)))
    whole = home.pond.fs()
    assert len(whole.tree)
    for path in PATHS:
        for follow in (True, False):
            full = f"{home.path}/{path}"
            assert outcome(home.pond.fs(), full, follow=follow) == outcome(whole, full, follow=follow), path
    for pattern in PATTERNS:
        full = f"{home.path}/{pattern}"
        found, expected = home.pond.fs().glob(full), whole.glob(full)
        assert [(each.path, each.versions, each.captures) for each in found] == [
            (each.path, each.versions, each.captures) for each in expected
        ], pattern


def test_one_path_is_read_without_the_whole_tree(home: Home) -> None:
    home.change_fs(lambda fs: fill(fs, home.path))
    fs = home.pond.fs()
    assert fs.read(f"{home.path}/a/b/file") == b"2"
    assert [each.node.name for each in fs.glob(f"{home.path}/a/*")] == ["b", "file", "s.series"]
    assert "tree" not in fs.__dict__
    with pytest.raises(NotFoundError, match="there is no"):
        fs.get(f"{home.path}/nothing")
    with pytest.raises(PathError):
        home.pond.fs().get("/../x")


def test_the_last_commands_are_read_without_the_others(home: Home) -> None:
    for number in range(3):
        home.change_fs(lambda fs, n=number: fs.make_directory(f"{home.path}/d{n}"))
    log = home.pond.control
    everything = log.transactions()
    assert log.transactions(2) == everything[-2:]
    assert log.records(f"txn_seq > {everything[-1].txn_seq - 2}").column("txn_id").to_pylist() == [
        each.txn_id for each in everything[-2:]
    ]
