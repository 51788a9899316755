"""The tree in memory, and a random history of it beside a model of ten lines."""

from __future__ import annotations

import random
from typing import Any

import pytest

from quacklake.errors import InputError, PathError, QuacklakeError
from quacklake.pond import FS, Pond
from quacklake.pond.nodes import SCHEMA, TARGET, EntryType, Node, from_arrow, new_id, root, to_arrow
from quacklake.pond.patterns import compile_pattern
from quacklake.pond.tree import Place, Tree, matches, walk
from tests.seeds import SEED


def grow(*paths: str) -> Tree:
    """A tree with these paths: directories end with a slash, ``a -> b`` is a link."""
    tree = Tree([root()])
    for path in paths:
        name, _, target = path.partition(" -> ")
        parent = tree.root
        *above, last = name.strip("/").split("/")
        for each in above:
            found = tree.child(parent.node_id, each)
            parent = found if found is not None else _put(tree, parent, each, EntryType.DIRECTORY)
        kind = EntryType.SYMLINK if target else EntryType.DIRECTORY if path.endswith("/") else EntryType.DATA
        _put(tree, parent, last, kind, {TARGET: target} if target else {})
    return tree


def _put(tree: Tree, parent: Node, name: str, kind: EntryType, attributes: dict[str, Any] | None = None) -> Node:
    node = Node(new_id(), parent.node_id, name, kind, extended_attributes=attributes or {})
    tree.put(node)
    return node


def children(tree: Tree) -> Any:
    return lambda node: tree.children(node.node_id) if node.file_type is EntryType.DIRECTORY else None


def at(tree: Tree, path: str, *, follow: bool = True) -> Place:
    return walk(path, Place((tree.root,)), children(tree), follow=follow)


def glob(tree: Tree, pattern: str) -> dict[str, tuple[str, ...]]:
    found = matches(
        compile_pattern(pattern),
        Place((tree.root,)),
        children(tree),
        lambda place, name: walk(name, place, children(tree)),
    )
    return {place.path: captures for place, captures in found}


def test_a_path_leads_to_its_node_and_says_what_is_missing() -> None:
    tree = grow("/a/b/c.txt")
    assert at(tree, "/a/b/c.txt").missing == ()
    assert at(tree, "a/./b/../b/c.txt").path == "/a/b/c.txt"
    assert at(tree, "/a/x/y").missing == ("x", "y")
    assert at(tree, "/").node.is_root


@pytest.mark.parametrize("path", ["..", "/..", "/a/../../b", "a/../.."])
def test_a_path_that_escapes_is_refused(path: str) -> None:
    with pytest.raises(PathError, match="out of the pond"):
        at(grow("/a/b"), path)


def test_a_path_through_a_file_is_refused() -> None:
    with pytest.raises(InputError, match="/a/f is not a directory"):
        at(grow("/a/f"), "/a/f/x")


def test_links_are_followed_on_the_way_and_at_the_end_if_asked() -> None:
    tree = grow("/a/b/c.txt", "/l -> a/b", "/a/up -> ../l", "/abs -> /a/b/c.txt")
    assert at(tree, "/l/c.txt").path == "/a/b/c.txt"
    assert at(tree, "/a/up/c.txt").path == "/a/b/c.txt"
    assert at(tree, "/abs").path == "/a/b/c.txt"
    assert at(tree, "/abs", follow=False).path == "/abs"
    assert at(tree, "/l/", follow=False).path == "/a/b"


@pytest.mark.parametrize(
    "links", [("/a -> a",), ("/a -> b", "/b -> a"), ("/a -> a/x",), ("/d/a -> ../d/b", "/d/b -> /d/a/c")]
)
def test_a_loop_of_links_is_an_error(links: tuple[str, ...]) -> None:
    tree = grow(*links)
    with pytest.raises(PathError, match="in a circle"):
        at(tree, links[0].partition(" -> ")[0])


def test_a_link_that_leads_out_is_an_error() -> None:
    with pytest.raises(PathError, match="out of the pond"):
        at(grow("/a/l -> ../../etc"), "/a/l")


def test_a_link_to_nothing_is_missing() -> None:
    assert at(grow("/l -> nowhere/x"), "/l").missing == ("nowhere", "x")


def test_complex_multipartition_wildcard_patterns() -> None:
    tree = grow("/a/1/x.csv", "/a/2/x.csv", "/a/2/y.txt", "/b/1/x.csv", "/b/1/deep/er/x.csv", "/x.csv")
    assert glob(tree, "/a/*/x.csv") == {"/a/1/x.csv": ("1",), "/a/2/x.csv": ("2",)}
    assert glob(tree, "/*/1/*.csv") == {"/a/1/x.csv": ("a", "x"), "/b/1/x.csv": ("b", "x")}
    assert set(glob(tree, "**/x.csv")) == {"/a/1/x.csv", "/a/2/x.csv", "/b/1/x.csv", "/b/1/deep/er/x.csv", "/x.csv"}
    assert glob(tree, "/b/**/x.csv") == {"/b/1/x.csv": ("1",), "/b/1/deep/er/x.csv": ("1/deep/er",)}
    assert set(glob(tree, "/b/**")) == {"/b/1", "/b/1/x.csv", "/b/1/deep", "/b/1/deep/er", "/b/1/deep/er/x.csv"}
    assert glob(tree, "/x.csv") == {"/x.csv": ()}
    assert glob(tree, "/nothing/*") == {}


def test_stars_do_not_go_through_links_and_names_do() -> None:
    tree = grow("/a/x", "/l -> a", "/a/back -> ..")
    assert set(glob(tree, "**/*")) == {"/a", "/a/x", "/a/back", "/l"}
    assert set(glob(tree, "/l/*")) == {"/a/x", "/a/back"}


def test_nodes_come_back_from_rows_as_they_were() -> None:
    nodes = [*grow("/a/b", "/l -> a"), Node("n", "p", "s", EntryType.SERIES, 7, size=3, extended_attributes={"k": [1]})]
    table = to_arrow(nodes)
    assert table.schema == SCHEMA
    assert list(from_arrow(table)) == nodes


def test_ids_are_of_version_7_and_sort_by_time() -> None:
    ids = [new_id() for _ in range(100)]
    assert ids == sorted(ids) and all(each[14] == "7" for each in ids)


# -- a random history ----------------------------------------------------------------------------------------------------

_NAMES = ("a", "b", "c")


class Model:
    """Paths and what is there: None for a directory, bytes for a file."""

    def __init__(self) -> None:
        self.paths: dict[str, bytes | None] = {"/": None}

    def below(self, path: str) -> list[str]:
        return [each for each in self.paths if each == path or each.startswith(path.rstrip("/") + "/")]

    def add(self, path: str, content: bytes | None) -> None:
        assert path not in self.paths and self.paths.get(path.rpartition("/")[0] or "/", b"") is None
        self.paths[path] = content

    def remove(self, path: str) -> None:
        assert path != "/" and path in self.paths
        for each in self.below(path):
            del self.paths[each]

    def move(self, path: str, target: str) -> None:
        assert path != "/" and path in self.paths
        if target in self.paths and self.paths[target] is None:
            target = f"{target.rstrip('/')}/{path.rpartition('/')[2]}"
        assert target not in self.paths and target not in self.below(path)
        assert self.paths.get(target.rpartition("/")[0] or "/", b"") is None
        assert not target.startswith(path + "/")
        for each in self.below(path):
            self.paths[target + each[len(path) :]] = self.paths.pop(each)


def _step(chance: random.Random, fs: FS, model: Model) -> None:
    path, other = ("/" + "/".join(chance.choices(_NAMES, k=chance.randint(1, 3))) for _ in "12")
    content = chance.randbytes(chance.choice((0, 5, 70_000)))
    what = chance.choice(("mkdir", "mkdir", "write", "write", "rm", "mv"))
    call = {
        "mkdir": (lambda: fs.make_directory(path), lambda: model.add(path, None)),
        "write": (lambda: fs.write_file(path, content), lambda: model.add(path, content)),
        "rm": (lambda: fs.remove(path, recursive=True), lambda: model.remove(path)),
        "mv": (lambda: fs.move(path, other), lambda: model.move(path, other)),
    }[what]
    try:
        call[0]()
        worked = True
    except QuacklakeError:
        worked = False
    try:
        call[1]()  # type: ignore[no-untyped-call]
        expected = True
    except AssertionError:
        expected = False
    assert worked == expected, f"{what} {path} {other}"


@pytest.mark.parametrize("number", range(2))
def test_a_random_history_is_that_of_a_model(number: int) -> None:
    chance, model = random.Random(f"{SEED}.{number}"), Model()
    with Pond.memory() as pond:
        states: list[tuple[int, dict[str, bytes | None]]] = []
        for _ in range(4):
            with pond.transaction(["step"]) as fs:
                for _ in range(12):
                    _step(chance, fs, model)
            states.append((pond.lake.current_snapshot(), dict(model.paths)))
        for snapshot, paths in states:
            fs = pond.fs(at=snapshot)
            found = {each.path: None if each.is_directory else fs.read(each.path) for each in fs.glob("**/*")}
            assert {"/": None, **found} == paths
        assert pond.recover().was_needed is False
