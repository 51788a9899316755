"""No path leaves the data root: not by its text, not through a link."""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.storage import Store
from quacklake.errors import ConfigError, PathError

ROOT = "/lake/data/"
STORES = [Store.open(ROOT), Store.open("s3://bucket/lake/data")]

ESCAPES = [
    "",
    ".",
    "..",
    "../x",
    "a/../../x",
    "a/./b",
    "a//b",
    "/etc/passwd",
    "//host/share",
    "C:/x",
    "c:x",
    "a\\..\\..\\x",
    "\\\\host\\share",
    "a\0b",
    "a\nb",
    "%2e%2e/x",
    "%2E%2E%2Fx",
    "a/%2e%2e/%2e%2e/x",
    "%252e%252e/x",
    "%2fetc/passwd",
    "%5c%5chost",
    "file:///etc/passwd",
    "s3://other/x",
    "http://127.0.0.1/x",
]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("store", STORES, ids=lambda store: store.scheme)
def test_a_path_that_would_leave_is_refused_everywhere(store: Store, path: str) -> None:
    calls = [
        lambda: store.url(path),
        lambda: store.urls(["fine", path]),
        lambda: store.resolve(path, True, "main/t/"),
        lambda: store.read(path),
        lambda: store.open_input(path),
        lambda: store.exists(path),
        lambda: store.size(path),
        lambda: store.write(path, b""),
        lambda: store.open_output(path).__enter__(),
        lambda: store.make_parent(path),
        lambda: store.delete([path]),
        lambda: list(store.list(path)) if path else store.url(path),
    ]
    for call in calls:
        with pytest.raises(PathError):
            call()


segments = st.sampled_from(
    ["..", ".", "", "a", "b.parquet", "k=v", "~", "%2e%2e", "%2E.", "%2f", "\\", "C:", "\0", " ", "...", "é", "k=%2F.."]
)
odd_paths = st.one_of(st.lists(segments, max_size=6).map("/".join), st.text(max_size=30))


@given(odd_paths)
def test_whatever_is_accepted_stays_under_the_root(path: str) -> None:
    try:
        url = STORES[0].url(path)
    except PathError:
        return
    assert url == ROOT + path
    assert os.path.normpath(url).startswith(ROOT)
    assert STORES[0].urls([path]) == [url]
    assert STORES[0].resolve(path, True) == path
    assert STORES[1].url(path) == f"s3://bucket/lake/data/{path}"


@given(st.text(min_size=1, max_size=20))
def test_any_value_of_a_partition_can_be_in_a_path(value: str) -> None:
    path = f"main/t/region={quote(value, safe='', errors='replace')}/ducklake-1.parquet"
    for store in STORES:
        assert store.url(path) == store.root + path


@given(odd_paths, odd_paths)
def test_a_base_does_not_let_a_path_out(base: str, path: str) -> None:
    try:
        resolved = STORES[0].resolve(path, True, base)
    except PathError:
        return
    assert os.path.normpath(ROOT + resolved).startswith(ROOT + base.strip("/").partition("/")[0])


def test_the_catalog_s_paths_become_paths_under_the_root() -> None:
    store = STORES[0]
    assert store.resolve("f.parquet", True, "main/t/") == "main/t/f.parquet"
    assert store.resolve("f.parquet", True, "main/t") == "main/t/f.parquet"
    assert store.resolve("/lake/data/main/f.parquet", False) == "main/f.parquet"
    assert store.resolve("file:///lake/data/a%20b/f.parquet", False) == "a b/f.parquet"
    assert store.resolve("f.parquet", True, "/lake/data/main/t/") == "main/t/f.parquet"
    assert STORES[1].resolve("s3://bucket/lake/data/x", False) == "x"
    for outside in ("/lake/data2/x", "/lake/data/../x", "/etc/passwd", "s3://bucket/lake/data/x", "x"):
        with pytest.raises(PathError):
            store.resolve(outside, False)
    with pytest.raises(PathError):
        store.resolve("x", True, "/etc/")
    with pytest.raises(PathError, match="foreign_paths"):
        STORES[1].resolve("s3://bucket/elsewhere/x", False)


def test_a_root_behind_a_link_is_known_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = Store.open(str(tmp_path / "link"))
    store.write("f", b"1")
    assert store.resolve(f"{tmp_path}/real/f", False) == "f"
    assert store.resolve(f"{tmp_path}/link/f", False) == "f"
    assert store.read("f") == b"1"


def test_external_files_can_be_read_but_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    outside = folder / "file.bin"
    outside.write_bytes(b"there")
    store = Store.open(str(tmp_path / "root"), external=[str(folder), "s3://other/"])
    for spelling in (str(outside), f"file://{outside}"):
        path = store.resolve(spelling, False)
        assert path == str(outside)
        assert store.url(path) == str(outside)
        assert store.urls([path]) == [str(outside)]
        assert store.read(path) == b"there"
    for call in (lambda: store.write(path, b""), lambda: store.delete([path]), lambda: store.make_parent(path)):
        with pytest.raises(PathError):
            call()
    for hostile in ("/a/../b", "/etc/passwd", f"{folder}/../x", f"{folder}2/x", str(folder), "etc/passwd", "s3://o/x"):
        with pytest.raises(PathError):
            store.resolve(hostile, False)
        with pytest.raises(PathError):
            store.read(hostile if hostile.startswith(("/", "s3:")) else f"/{hostile}")
    assert store.url(store.resolve("s3://other/x", False)) == "s3://other/x"
    with pytest.raises(PathError, match="another kind of store"):
        store.read("s3://other/x")
    assert outside.read_bytes() == b"there"


@pytest.fixture
def linked(tmp_path: Path) -> tuple[Store, Path]:
    """A store with links inside that lead outside, and the folder they lead to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "sibling").symlink_to(f"{root}-2")
    return Store.open(str(root)), outside


def test_links_that_lead_outside_are_refused(linked: tuple[Store, Path]) -> None:
    store, outside = linked
    for call in (
        lambda: store.read("folder/secret"),
        lambda: store.read("file"),
        lambda: store.open_input("file"),
        lambda: store.exists("folder/secret"),
        lambda: store.size("file"),
        lambda: store.write("folder/new", b""),
        lambda: store.write("folder/deep/new", b""),
        lambda: store.write("sibling/new", b""),
        lambda: store.open_output("folder/new").__enter__(),
        lambda: store.make_parent("folder/deep/new"),
        lambda: store.delete(["folder/secret"]),
        lambda: list(store.list("folder")),
    ):
        with pytest.raises(PathError, match="symbolic link"):
            call()
    assert [each.name for each in outside.iterdir()] == ["secret"]


def test_a_link_is_neither_listed_nor_followed_when_deleted(linked: tuple[Store, Path]) -> None:
    store, outside = linked
    assert list(store.list()) == []
    assert store.delete(["file"]) == 1
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_link_in_the_place_of_a_file_is_replaced(linked: tuple[Store, Path]) -> None:
    store, outside = linked
    store.write("file", b"mine")
    assert store.read("file") == b"mine"
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_link_that_stays_inside_is_fine(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    store.write("real/f", b"1")
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    assert store.read("alias/f") == b"1"


def test_very_many_urls_are_made_without_looking_at_files() -> None:
    paths = [f"main/t/day=2024-01-{n % 28:02}/ducklake-{n:032x}.parquet" for n in range(100_000)]
    start = time.process_time()
    urls = STORES[0].urls(paths)
    assert time.process_time() - start < 1
    assert urls[-1] == ROOT + paths[-1]


@pytest.mark.parametrize("others", [0, 3_000], ids=["alone", "among many"])
@pytest.mark.parametrize("link", ["here", "day=1/there"])
def test_a_link_outside_is_found_among_many_files(tmp_path: Path, link: str, others: int) -> None:
    root = tmp_path / "root"
    (root / "day=1").mkdir(parents=True)
    paths = [f"{folder}f{number}" for folder in ("", "day=1/") for number in range(200)]
    for path in [*paths, *(f"other{number}" for number in range(others))]:
        (root / path).touch()
    store = Store.open(str(root))
    (root / "within").symlink_to(root / "f1")
    assert store.readable_urls([*paths, "within"]) == [f"{root}/{path}" for path in [*paths, "within"]]
    assert store.readable_urls([*paths, "day=2/missing"])[-1] == f"{root}/day=2/missing"
    (tmp_path / "secret").touch()
    (root / link).symlink_to(tmp_path / "secret")
    with pytest.raises(PathError, match="symbolic link"):
        store.readable_urls([*paths, link])


@pytest.mark.parametrize("others", [0, 300], ids=["alone", "among many"])
@pytest.mark.parametrize(
    "path", ["/f0", "//f0", "day=1//f0", "../f0", "day=1/../f0", "day=1/.", "", "/", "day=1/", "%2e"]
)
def test_a_path_that_is_no_plain_one_is_as_good_as_alone(tmp_path: Path, path: str, others: int) -> None:
    root = tmp_path / "root"
    (root / "day=1").mkdir(parents=True)
    paths = [f"{folder}f{number}" for folder in ("", "day=1/") for number in range(others)]
    for each in paths:
        (root / each).touch()
    store = Store.open(str(root))
    try:
        alone = [store.url(path)]
    except PathError:
        with pytest.raises(PathError):
            store.readable_urls([*paths, path])
    else:
        assert store.readable_urls([*paths, path])[-1:] == alone


def test_a_link_in_an_external_folder_leads_nowhere_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"secret")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "link.bin").symlink_to(secret)
    store = Store.open(str(tmp_path / "root"), external=[str(folder)])
    with pytest.raises(PathError, match="symbolic link"):
        store.read(store.resolve(f"{folder}/link.bin", False))


@pytest.mark.parametrize("folder", ["../x\0", "s3://bucket/../x", ""])
def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path, folder: str) -> None:
    if folder:
        with pytest.raises(ConfigError, match="foreign_paths"):
            Store.open(str(tmp_path), external=[folder])
    else:
        with pytest.raises(PathError):
            Store.open(str(tmp_path), external=[]).resolve("/etc/passwd", False)
