"""``quacklake init`` and ``config``: from nothing to a lake."""

from __future__ import annotations

import io
import sys
import tomllib
from pathlib import Path

import pytest

from quacklake.cli.commands.config import set_value, unset_value
from quacklake.errors import ConfigError
from tests.cli.conftest import Run


def test_a_lake_is_made_where_commands_find_it(run: Run) -> None:
    made = run("init")
    assert made.code == 0
    assert made.out.startswith("created a lake at sqlite:///lake.db, files in ")
    assert Path("quacklake.toml").read_text() == 'url = "sqlite:///lake.db"\n'
    assert run("tables", "-o", "json").json == []
    again = run("init", "-o", "json")
    assert again.json["created"] is False


def test_a_lake_is_made_at_a_url(run: Run) -> None:
    made = run("init", "--lake", "duckdb:///other.db", "--data-path", "files", "--no-config", "-o", "json").json
    assert made["url"] == "duckdb:///other.db"
    assert not Path("quacklake.toml").exists()
    assert run("info", "--lake", "duckdb:///other.db", "-o", "json").json["snapshot"] == 0


@pytest.mark.parametrize("words", [("--lake", "sqlite:///y.db", "init"), ("init", "--lake", "sqlite:///y.db")])
def test_the_files_of_a_named_lake_go_where_those_of_any_go(words: tuple[str, ...], run: Run, elsewhere: Path) -> None:
    assert run(*words, "-o", "json").json["data_path"] == f"{elsewhere}/data/"
    Path("sub").mkdir()
    made = run("init", "--lake", "sqlite:///sub/lake.db", "-o", "json").json
    assert made["data_path"] == f"{elsewhere}/sub/data/"
    assert run("init", "--lake", "duckdb:///d.db", "-o", "json").json["data_path"] == f"{elsewhere}/d.db.files/"


def test_a_lake_is_not_made_among_the_files_of_another(run: Run) -> None:
    assert run("init", "--lake", "sqlite:///a.db").code == 0
    rows = "x\n" + "1\n" * 100
    Path("x.csv").write_text(rows)
    assert run("append", "x", "x.csv", "--create", "--lake", "sqlite:///a.db").code == 0
    for words in (("init",), ("append", "x", "x.csv", "--create")):
        refused = run(*words, "--lake", "sqlite:///b.db")
        assert refused.code == 1
        assert "data has files of another lake" in refused.err
        assert "--data-path" in refused.err
    assert run("init", "--lake", "sqlite:///a.db", "-o", "json").json["created"] is False


def test_a_setting_is_written_read_and_taken_out(run: Run) -> None:
    assert run("config", "set", "pool_size", "7").code == 0
    assert run("config", "get", "pool_size").out == "7\n"
    assert run("config", "get", "pool_size", "-o", "json").json["source"] == "file quacklake.toml"
    assert run("config", "unset", "pool_size").code == 0
    assert run("config", "get", "pool_size").out == "5\n"
    assert "was not set" in run("config", "unset", "pool_size").out


def test_a_bad_setting_changes_nothing(run: Run) -> None:
    Path("quacklake.toml").write_text("pool_size = 7\n")
    for words in (("pool_size", "many"), ("pool_sze", "7"), ("log_format", "xml")):
        assert run("config", "set", *words).code == 1
    assert 'did you mean "pool_size"' in run("config", "get", "pool_sze").err
    assert Path("quacklake.toml").read_text() == "pool_size = 7\n"


def test_a_stronger_place_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUACKLAKE_POOL_SIZE", "9")
    assert "environment QUACKLAKE_POOL_SIZE has another value" in run("config", "set", "pool_size", "7").out


def test_a_secret_is_not_shown_and_kept_from_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("geheim\n"))
    answer = run("config", "set", "s3_secret_key")
    assert answer.code == 0
    assert "geheim" not in answer.out + answer.err
    assert Path("quacklake.toml").stat().st_mode & 0o077 == 0
    assert tomllib.loads(Path("quacklake.toml").read_text()) == {"s3_secret_key": "geheim"}
    assert run("config", "get", "s3_secret_key").out == "***\n"


def test_everything_else_in_the_file_stays() -> None:
    path = Path("quacklake.toml")
    path.write_text('# mine\nurl = "sqlite:///a.db"  # the lake\n\n[s3]\nendpoint = "http://old"\n# region = "x"\n')
    set_value(path, "s3_endpoint", "http://new")
    set_value(path, "pool_size", "3")
    set_value(path, "foreign_paths", "a,b")
    assert path.read_text() == (
        '# mine\nurl = "sqlite:///a.db"  # the lake\npool_size = 3\nforeign_paths = "a,b"\n\n'
        '[s3]\nendpoint = "http://new"\n# region = "x"\n'
    )
    assert unset_value(path, "url")
    assert "url" not in path.read_text()
    assert not unset_value(path, "s3_region")


@pytest.mark.parametrize(
    ("text", "name", "value", "expected"),
    [
        ('foreign_paths = [\n  "a",\n]  # mine\npool_size = 2\n', "foreign_paths", "b", 'foreign_paths = "b"  # mine\npool_size = 2\n'),
        ('s3.endpoint = "old"\n', "s3_endpoint", "new", 's3.endpoint = "new"\n'),
        ("pool_size = 2 # few\n", "pool_size", "0_07", "pool_size = 7 # few\n"),
        ("", "s3_secure", "yes", "s3_secure = true\n"),
        ("", "catalog", 'a"\x7f', 'catalog = "a\\"\\u007f"\n'),
    ],
)  # fmt: skip
def test_a_setting_is_written_as_toml_wherever_it_stands(text: str, name: str, value: str, expected: str) -> None:
    path = Path("quacklake.toml")
    path.write_text(text)
    set_value(path, name, value)
    assert path.read_text() == expected
    assert unset_value(path, name)
    assert name not in path.read_text()


def test_a_file_that_is_no_toml_is_left_alone() -> None:
    path = Path("quacklake.toml")
    path.write_text("pool_size = \n")
    for change in (lambda: set_value(path, "pool_size", "2"), lambda: unset_value(path, "pool_size")):
        with pytest.raises(ConfigError, match="not valid TOML"):
            change()
    assert path.read_text() == "pool_size = \n"
