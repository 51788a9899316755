"""FS, WD and NodePath: the tree as a user of the library works with it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from quacklake.errors import (
    AlreadyExistsError,
    InputError,
    NotFoundError,
    PathError,
    ReadOnlyError,
)
from quacklake.pond import EntryType, Pond
from quacklake.pond.series import append_series
from tests.pond.conftest import Home, readings

pytestmark = pytest.mark.daily(0.25)


def test_hierarchical_directory_structure(home: Home) -> None:
    def work(wd):  # type: ignore[no-untyped-def]
        wd.make_directory("a/b/c", parents=True)
        wd.make_directory("a/d")
        wd.write_file("a/b/f.txt", b"deep")
        return wd.cd("a/b").path

    assert home.change(work) == f"{home.path}/a/b"
    assert home.names() == ["a", "a/b", "a/b/c", "a/b/f.txt", "a/d"]
    assert home.wd.cd("a").cd("../a/b").read("f.txt") == b"deep"
    assert [each.node.name for each in home.wd.cd("a").entries()] == ["b", "d"]


def test_a_node_path_knows_its_node_and_where_it_is(home: Home) -> None:
    home.change(lambda wd: wd.write_file("x_1.txt", b"abc"))
    (found,) = home.wd.glob("x_*.txt")
    assert (found.path, found.captures) == (f"{home.path}/x_1.txt", ("1",))
    assert (found.entry_type, found.size, found.is_directory) == (EntryType.DATA, 3, False)
    assert found.node.part_id == home.wd.place.node.node_id


def test_making_what_exists_is_refused(home: Home) -> None:
    home.change(lambda wd: wd.make_directory("d"))
    with pytest.raises(AlreadyExistsError):
        home.change(lambda wd: wd.make_directory("d"))
    home.change(lambda wd: wd.make_directory("d", parents=True))
    with pytest.raises(AlreadyExistsError):
        home.change(lambda wd: wd.write_file("d", b""))


def test_a_missing_directory_above_is_named(home: Home) -> None:
    with pytest.raises(NotFoundError, match=f"{home.path}/no") as error:
        home.change(lambda wd: wd.make_directory("no/such"))
    assert "-p" in str(error.value.hint)
    with pytest.raises(NotFoundError, match=f"no directory {home.path}/no"):
        home.change(lambda wd: wd.write_file("no/f", b""))


def test_what_is_missing_comes_with_a_suggestion(home: Home) -> None:
    home.change(lambda wd: wd.write_file("temperature.csv", b""))
    with pytest.raises(NotFoundError) as error:
        home.wd.get("temprature.csv")
    assert error.value.hint == 'did you mean "temperature.csv"?'
    home.change(lambda wd: wd.write_file("dock.series.txt", b""))
    for name, hint in (("dok.series.txt", 'did you mean "dock.series.txt"?'), ("buoy.txt", None), ("ph.csv", None)):
        with pytest.raises(NotFoundError) as error:
            home.wd.get(name)
        assert error.value.hint == (hint or "`pond list` shows what there is")  # an ending alone is not alike


def test_entry_types_are_kept(home: Home) -> None:
    """Directory, file:data, file:table, file:series, symlink and dynamic come back as what they were."""
    from quacklake.pond.series import write_table

    def work(wd):  # type: ignore[no-untyped-def]
        wd.make_directory("d")
        wd.write_file("f", b"x" * 70_000)
        wd.make_link("l", "d")
        write_table(wd.fs, f"{wd.path}/t", readings(2))
        append_series(wd.fs, f"{wd.path}/s", readings(2))
        wd.fs.make_node(f"{wd.path}/n", "sql-derived-table", {"patterns": {"source": f"{wd.path}/t"}})

    home.change(work)
    types = {each.node.name: str(each.node.file_type) for each in home.wd.entries()}
    assert types == {
        "d": "directory",
        "f": "file:data",
        "l": "symlink",
        "n": "dynamic",
        "s": "file:series",
        "t": "file:table",
    }


def test_links_lead_to_files_and_directories(home: Home) -> None:
    def work(wd):  # type: ignore[no-untyped-def]
        wd.make_directory("d")
        wd.write_file("d/f", b"here")
        wd.make_link("l", "d")
        wd.make_link("d/up", "../d/f")

    home.change(work)
    assert home.wd.read("l/f") == b"here"
    assert home.wd.read("l/up") == b"here"
    assert home.change_fs(lambda fs: fs.remove(f"{home.path}/l")) == 1
    assert home.wd.exists("d/f")


def test_a_link_loop_is_an_error_for_all_who_follow_it(home: Home) -> None:
    home.change(lambda wd: (wd.make_link("a", "b"), wd.make_link("b", "a")))
    for use in (
        lambda: home.wd.read("a"),
        lambda: home.wd.get("a/x"),
        lambda: home.change(lambda wd: wd.write_file("a/f", b"")),
    ):
        with pytest.raises(PathError, match="in a circle"):
            use()
    assert home.names() == ["a", "b"]


@pytest.mark.parametrize("path", ["../../x", "/../x", "d/../../../x"])
def test_a_path_that_escapes_changes_nothing(home: Home, path: str) -> None:
    for work in (lambda wd: wd.make_directory(path, parents=True), lambda wd: wd.write_file(path, b"")):
        with pytest.raises(PathError):
            home.change(work)
    with pytest.raises(PathError, match="out of the pond"):
        home.change(lambda wd: wd.make_link("l", "../../../etc/passwd"))
    assert home.names() == []


def test_a_directory_moves_with_all_below_it_and_its_series_keep_their_rows(home: Home) -> None:
    def work(wd):  # type: ignore[no-untyped-def]
        wd.make_directory("a/b", parents=True)
        append_series(wd.fs, f"{wd.path}/a/b/s.series", readings(3))

    home.change(work)
    node = home.wd.get("a/b/s.series").node
    home.change_fs(lambda fs: fs.move(f"{home.path}/a", f"{home.path}/z"))
    assert home.names() == ["z", "z/b", "z/b/s.series"]
    assert home.wd.get("z/b/s.series").node.node_id == node.node_id
    assert home.pond.lake.table(f'pond_data."{home.path}/z/b/s.series"').count() == 3
    assert f"pond_data.{home.path}/a/b/s.series" not in home.pond.lake.tables()


def test_a_node_moves_into_an_existing_directory(home: Home) -> None:
    home.change(lambda wd: (wd.make_directory("d"), wd.write_file("f", b"1"), wd.write_file("g", b"2")))
    home.change_fs(lambda fs: fs.move(f"{home.path}/f", f"{home.path}/d"))
    assert home.names() == ["d", "d/f", "g"]
    home.change_fs(lambda fs: fs.move(f"{home.path}/g", f"{home.path}/f"))
    with pytest.raises(AlreadyExistsError):
        home.change_fs(lambda fs: fs.move(f"{home.path}/f", f"{home.path}/d/"))


@pytest.mark.parametrize(("source", "target"), [("d", "d/e"), ("d", "d/e/f"), ("missing", "x"), ("d", "no/such/place")])
def test_an_impossible_move_is_refused(home: Home, source: str, target: str) -> None:
    home.change(lambda wd: wd.make_directory("d/e", parents=True))
    with pytest.raises((InputError, NotFoundError)):
        home.change_fs(lambda fs: fs.move(f"{home.path}/{source}", f"{home.path}/{target}"))
    assert home.names() == ["d", "d/e"]


def test_removing_takes_care(home: Home) -> None:
    def work(wd):  # type: ignore[no-untyped-def]
        wd.make_directory("d")
        append_series(wd.fs, f"{wd.path}/d/s", readings(3))

    home.change(work)
    before = home.pond.lake.current_snapshot()
    with pytest.raises(InputError, match="not empty"):
        home.change_fs(lambda fs: fs.remove(f"{home.path}/d"))
    assert home.change_fs(lambda fs: fs.remove(f"{home.path}/d", recursive=True)) == 2
    assert home.names() == []
    past = home.pond.fs(at=before)
    assert past.exists(f"{home.path}/d/s")
    assert past.backend.lake.table(f'pond_data."{home.path}/d/s"').count() == 3


def test_the_root_stays(home: Home) -> None:
    with pytest.raises(ReadOnlyError):
        home.change_fs(lambda fs: fs.remove("/", recursive=True))
    with pytest.raises(ReadOnlyError):
        home.change_fs(lambda fs: fs.move("/", f"{home.path}/x"))


def test_a_name_is_free_again_after_its_node_is_gone(home: Home) -> None:
    path = f"{home.path}/s"
    home.change_fs(lambda fs: append_series(fs, path, readings(3)))
    home.change_fs(lambda fs: (fs.remove(path), append_series(fs, path, readings(2, other=1))))
    assert home.wd.get("s").rows == 2
    assert home.pond.lake.table(f'pond_data."{path}"').columns == ["timestamp", "temp", "other"]


def test_a_state_that_is_read_cannot_be_changed(home: Home) -> None:
    with pytest.raises(ReadOnlyError):
        home.pond.fs().make_directory(f"{home.path}/x")


def test_memory_and_folder_ponds_are_the_same(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """One interface, the lake is injected."""

    def story(pond: Pond) -> list[tuple[str, str, int]]:
        with pond, pond.transaction(["story"]) as fs:
            fs.make_directory("/a")
            fs.write_file("/a/f", b"1")
            append_series(fs, "/a/s", readings(3))
        with pond if pond.lake.url.endswith(":memory:") else Pond.open(tmp_path / "P") as again:
            return [(each.path, str(each.node.file_type), each.node.version) for each in again.fs().glob("**/*")]

    def in_memory() -> list[tuple[str, str, int]]:
        with Pond.memory() as pond:
            with pond.transaction(["story"]) as fs:
                fs.make_directory("/a")
                fs.write_file("/a/f", b"1")
                append_series(fs, "/a/s", readings(3))
            return [(each.path, str(each.node.file_type), each.node.version) for each in pond.fs().glob("**/*")]

    assert story(Pond.create(tmp_path / "P")) == in_memory()


def test_threads_share_a_pond_in_memory() -> None:
    def work(number: int) -> list[str]:
        for turn in range(2):
            pond.run(["thread"], lambda fs, turn=turn: fs.make_directory(f"/{number}-{turn}"))
        return [each.path for each in pond.fs().glob("*")]

    with Pond.memory() as pond, ThreadPoolExecutor(3) as pool:
        seen = list(pool.map(work, range(3)))
        assert all({f"/{number}-0", f"/{number}-1"} <= set(paths) for number, paths in enumerate(seen))
        assert len(pond.fs().glob("*")) == 6
