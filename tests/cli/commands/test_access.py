"""``quacklake access``: users and tokens, for people and for programs."""

from __future__ import annotations

from pathlib import Path

import pytest

import quacklake
from quacklake.errors import UnauthenticatedError
from tests.cli.conftest import Run


def test_users_and_tokens_are_made_listed_and_removed(run: Run, tmp_path: Path) -> None:
    assert run("init").code == 0
    run("sql", "CREATE TABLE t AS SELECT 1 AS a")
    assert run("access", "create", "ann", "--role", "reader", "--role", "writer").code == 0
    users = run("access", "users", "--output", "json").json
    assert users == [{"user": "ann", "state": "enabled", "roles": ["reader", "writer"]}]
    token = run("access", "token", "ann", "--expires-in", "90d", "--output", "json").json["token"]
    (listed,) = run("access", "tokens", "ann", "--output", "json").json
    assert listed["id"] in token and listed["user"] == "ann" and listed["expires"] is not None
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as lake:
        assert lake.access.tokens.verify(token) == "ann"
        assert run("access", "revoke-token", listed["id"]).code == 0
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as lake, pytest.raises(UnauthenticatedError):
        lake.access.tokens.verify(token)
    assert run("sql", "GRANT SELECT ON TABLE t TO ann").code == 0
    assert [row["object"] for row in run("access", "grants", "--output", "json").json] == ["main.t"]
    assert run("access", "drop", "ann").code == 0
    assert run("access", "users", "--output", "json").json == []


@pytest.mark.parametrize(
    "words",
    [
        ("create", "a b"),
        ("create", "ann", "--role", "nobody"),
        ("token", "nobody"),
        ("drop", "nobody"),
        ("revoke-token", "nothing"),
    ],
)
def test_what_is_not_there_is_an_error_and_changes_nothing(run: Run, words: tuple[str, ...]) -> None:
    run("init")
    answer = run("access", *words)
    assert answer.code == 1
    assert answer.err.startswith("error: ")
    assert run("access", "users", "--output", "json").json == []
