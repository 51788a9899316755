"""Computed nodes: what factories make, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from quacklake.errors import ConfigError, InputError, NotFoundError, ReadOnlyError
from quacklake.pond.factories import factories, register
from quacklake.pond.factories.registry import DirectoryFactory
from quacklake.pond.queries import everything, rows
from quacklake.pond.series import append_series
from tests.pond.conftest import Home, readings

pytestmark = pytest.mark.daily(0.25)


def fill(home: Home) -> None:
    def work(wd: Any) -> None:
        for number, name in enumerate(("dock", "buoy")):
            append_series(wd.fs, f"{wd.path}/{name}.series", readings(4, 4 * number))

    home.change(work)


def make(home: Home, name: str, factory: str, config: Mapping[str, Any], **more: Any) -> None:
    home.change_fs(lambda fs: fs.make_node(f"{home.path}/{name}", factory, config, **more))


def read(home: Home, name: str, sql: str | None = None) -> list[dict[str, Any]]:
    with rows(home.pond, f"{home.path}/{name}", sql) as found:
        result: list[dict[str, Any]] = found.read_all().to_pylist()
    return result


def test_the_factories_are_known_by_name() -> None:
    assert {"sql-derived-table", "sql-derived-series", "dynamic-dir", "column-rename"} <= {f.name for f in factories()}
    assert all(each.description for each in factories())


def test_a_derived_series_is_computed_from_what_its_patterns_name(home: Home) -> None:
    fill(home)
    config = {
        "patterns": {"all_of": f"{home.path}/*.series"},
        "query": "SELECT max(temp) AS m, count(*) AS n FROM all_of",
    }
    make(home, "d", "sql-derived-table", config)
    assert read(home, "d") == [{"m": 7.0, "n": 8}]
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/third.series", readings(1, 100)))
    assert read(home, "d", "SELECT n FROM source") == [{"n": 9}]


def test_several_patterns_join(home: Home) -> None:
    fill(home)
    patterns = {"a": f"{home.path}/dock.series", "b": f"{home.path}/buoy.series"}
    make(
        home,
        "j",
        "sql-derived-series",
        {
            "patterns": patterns,
            "query": "SELECT a.temp AS x, b.temp AS y FROM a JOIN b ON b.temp = a.temp + 4 ORDER BY x LIMIT 1",
        },
    )
    assert read(home, "j") == [{"x": 0.0, "y": 4.0}]


def test_a_computed_node_can_be_computed_from_another(home: Home) -> None:
    fill(home)
    make(
        home,
        "one",
        "sql-derived-series",
        {"patterns": {"source": f"{home.path}/dock.series"}, "query": "SELECT timestamp, temp * 2 AS temp FROM source"},
    )
    make(
        home,
        "two",
        "sql-derived-series",
        {"patterns": {"source": f"{home.path}/one"}, "query": "SELECT sum(temp) AS s FROM source"},
    )
    assert read(home, "two") == [{"s": 12.0}]
    with everything(home.pond) as relations:
        assert relations.query(f'SELECT s FROM "{home.path}/two"').read_all().to_pylist() == [{"s": 12.0}]


def test_nodes_that_are_computed_from_each_other_are_an_error(home: Home) -> None:
    make(home, "a", "sql-derived-table", {"patterns": {"source": f"{home.path}/b"}})
    make(home, "b", "sql-derived-table", {"patterns": {"source": f"{home.path}/a"}})
    with pytest.raises((ConfigError, NotFoundError)):
        read(home, "a")
    home.change_fs(lambda fs: (fs.remove(f"{home.path}/a"), fs.remove(f"{home.path}/b")))


def test_a_pattern_that_names_nothing_is_an_error_when_it_is_read(home: Home) -> None:
    make(home, "d", "sql-derived-table", {"patterns": {"source": f"{home.path}/*.series"}})
    with pytest.raises(NotFoundError, match="no table or series"):
        read(home, "d")
    home.change_fs(lambda fs: fs.remove(f"{home.path}/d"))


def test_a_query_that_is_wrong_names_its_node(home: Home) -> None:
    fill(home)
    make(
        home,
        "d",
        "sql-derived-table",
        {"patterns": {"source": f"{home.path}/*.series"}, "query": "SELECT nothing FROM source"},
    )
    with pytest.raises(InputError) as error:
        read(home, "d")
    assert f"{home.path}/d" in str(error.value)
    home.change_fs(lambda fs: fs.remove(f"{home.path}/d"))


@pytest.mark.parametrize(
    ("factory", "config", "words"),
    [
        ("sql-derived-table", {}, "no patterns"),
        ("sql-derived-table", {"patterns": {"s": "/x"}, "quary": "SELECT 1"}, "no option 'quary'"),
        ("sql-derived-table", {"patterns": {"s": 3}}, "is a text"),
        ("dynamic-dir", {"entries": [{"name": "x"}]}, "has no factory"),
        (
            "dynamic-dir",
            {"entries": [{"name": "x", "factory": "dynamic-dir"}, {"name": "x", "factory": "dynamic-dir"}]},
            "two entries",
        ),
        ("column-rename", {"in_pattern": "/x"}, "no rules"),
        (
            "column-rename",
            {"in_pattern": "/x", "rules": [{"type": "pattern", "pattern": "(", "replacement": ""}]},
            "regular",
        ),
        (
            "column-rename",
            {"in_pattern": "/x", "rules": [{"from": "a", "to": "b", "cast": "INT); DROP"}]},
            "not a type",
        ),
    ],
)
def test_wrong_options_are_refused_before_the_node_is_made(home: Home, factory: str, config: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(home, "n", factory, config)
    assert home.names() == []


def test_an_unknown_factory_comes_with_a_suggestion(home: Home) -> None:
    with pytest.raises(NotFoundError) as error:
        make(home, "n", "sql-derived-tabel", {})
    assert "sql-derived-table" in str(error.value.hint)


def test_a_dynamic_directory_has_its_entries_and_is_read_only(home: Home) -> None:
    fill(home)
    entry = {
        "name": "max",
        "factory": "sql-derived-table",
        "config": {"patterns": {"source": f"{home.path}/*.series"}, "query": "SELECT max(temp) AS m FROM source"},
    }
    make(
        home,
        "dir",
        "dynamic-dir",
        {"entries": [entry, {"name": "sub", "factory": "dynamic-dir", "config": {"entries": [entry]}}]},
    )
    assert home.names("dir/**") == ["dir/max", "dir/sub", "dir/sub/max"]
    assert read(home, "dir/max") == read(home, "dir/sub/max") == [{"m": 7.0}]
    with pytest.raises(ReadOnlyError):
        home.change(lambda wd: wd.write_file("dir/new", b""))
    with pytest.raises(ReadOnlyError):
        home.change_fs(lambda fs: fs.remove(f"{home.path}/dir/max"))


def test_columns_are_renamed_by_rules(home: Home) -> None:
    home.change(
        lambda wd: append_series(
            wd.fs,
            f"{wd.path}/s",
            [{"timestamp": r["timestamp"], "Temp (C)": r["temp"], "p1.x": 1} for r in readings(1)],
        )
    )
    rules = [
        {"type": "direct", "from": "Temp (C)", "to": "temperature", "cast": "FLOAT"},
        {"type": "pattern", "pattern": r"p(\d)\.(.*)", "replacement": r"\2_\1"},
    ]
    make(home, "r", "column-rename", {"in_pattern": f"{home.path}/s", "rules": rules})
    (row,) = read(home, "r")
    assert {k: v for k, v in row.items() if k != "timestamp"} == {"temperature": 0.0, "x_1": 1}


def test_new_options_make_a_new_version(home: Home) -> None:
    fill(home)
    config = {"patterns": {"source": f"{home.path}/*.series"}, "query": "SELECT 1 AS a FROM source LIMIT 1"}
    make(home, "n", "sql-derived-table", config)
    make(home, "n", "sql-derived-table", config, replace=True)
    assert home.wd.get("n").node.version == 1
    make(home, "n", "sql-derived-table", {**config, "query": "SELECT 2 AS a FROM source LIMIT 1"}, replace=True)
    assert (home.wd.get("n").node.version, read(home, "n")) == (2, [{"a": 2}])


def test_another_package_adds_a_factory(home: Home) -> None:
    @register
    class Twins(DirectoryFactory):
        name = "test-twins"
        description = "Two directories"

        def check(self, config: Mapping[str, Any]) -> None: ...

        def entries(self, config: Mapping[str, Any]) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
            return {name: ("dynamic-dir", {"entries": []}) for name in ("left", "right")}

    make(home, "t", "test-twins", {})
    assert home.names("t/*") == ["t/left", "t/right"]
    first = [each.node.node_id for each in home.wd.glob("t/*")]
    assert first == [each.node.node_id for each in home.wd.glob("t/*")]
