"""Tokens: shown once, kept as hashes, refused when they are wrong, expired, revoked or cut."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import quacklake
from quacklake import Lake
from quacklake.core.access import Tokens
from quacklake.core.access import tokens as tokens_module
from quacklake.errors import AlreadyExistsError, InputError, NotFoundError, UnauthenticatedError
from tests.seeds import chance

pytest.importorskip("argon2")

from argon2 import PasswordHasher


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("tokens")
    with quacklake.connect(f"sqlite:///{folder / 'lake.db'}", data_path=str(folder / "data")) as found:
        for name in ("ann", "bob"):
            found.access.create_user(name)
        yield found


def test_a_token_is_known_again_and_kept_as_a_hash_only(lake: Lake) -> None:
    token = lake.access.tokens.create("ann")
    assert lake.access.tokens.verify(token) == "ann"
    secret = token.rsplit("_", 1)[-1] if token.count("_") == 2 else token[20:]
    stored = lake.access.tokens.list("ann")[-1]
    assert stored.hash.startswith("$argon2id$") and secret not in repr(stored)
    assert token not in Path(str(lake.url).removeprefix("sqlite:///")).read_bytes().decode("latin-1")


def test_a_user_is_created_together_with_a_token_or_not_at_all(lake: Lake) -> None:
    token = lake.access.create_user_with_token("Eve", ["reader"], "1 hour")
    assert lake.access.tokens.verify(token) == "eve" and "eve" in lake.access.roles()["reader"]
    assert lake.access.tokens.list("eve")[0].expires_ms is not None
    users, tokens = lake.access.users(), lake.access.tokens.list()
    for name, roles, expires, error in (
        ("eve", [], None, AlreadyExistsError),
        ("dan", ["nobodys"], None, NotFoundError),
        ("dan", [], "soon", InputError),
        ("", [], None, InputError),
    ):
        with pytest.raises(error):
            lake.access.create_user_with_token(name, roles, expires)
        assert (lake.access.users(), lake.access.tokens.list()) == (users, tokens), name
    lake.access.drop_user("eve")
    with pytest.raises(UnauthenticatedError):
        Tokens(lake._context.catalog).verify(token)


@pytest.mark.parametrize("form", ["costly", "wide", "no hash", "☃", ""])
def test_a_hash_that_somebody_else_wrote_costs_no_more_than_ours(tmp_path: Path, form: str) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.access.create_user("ann")
        token = lake.access.tokens.create("ann")
        secret = token.split("_", 2)[2]
        hashed = {
            # it fits the token, and would be good if its cost were
            "costly": PasswordHasher(time_cost=1, memory_cost=131_072, parallelism=1).hash(secret),
            "wide": PasswordHasher(time_cost=1, memory_cost=64, parallelism=1, hash_len=1024).hash(secret),
        }.get(form, form)
        with closing(sqlite3.connect(tmp_path / "lake.db")) as database, database:
            database.execute("UPDATE quacklake_tokens SET hash = ?", [hashed])
        with pytest.raises(UnauthenticatedError):
            Tokens(lake._context.catalog).verify(token)


def test_wrong_tokens_are_refused_without_a_reason(lake: Lake) -> None:
    token, other = lake.access.tokens.create("ann"), lake.access.tokens.create("bob")
    numbers = chance("tokens")
    wrong = ["", "qk", "qk__", token[:-1], token + "a", token.upper(), token.replace("qk_", "qx_"), "Bearer " + token]
    wrong += [
        token[:20] + other[20:],
        other[:20] + token[20:],
        "qk_" + "0" * 16 + token[19:],
        token + "\n",
        "\0",
        "ü" * 63,
    ]
    wrong += ["x" * 100_000]
    for _ in range(10):
        at = numbers.randrange(20, len(token))
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        wrong.append(changed)
    messages = set()
    for text in wrong:
        with pytest.raises(UnauthenticatedError) as failed:
            lake.access.tokens.verify(text)
        messages.add(str(failed.value))
    assert len(messages) == 1
    assert lake.access.tokens.verify(token) == "ann"


def test_a_token_ends_with_its_time_its_revocation_and_its_user(lake: Lake) -> None:
    checked = Tokens(lake.handle.context.catalog, cache_seconds=0)
    access = lake.access
    short = checked.create("ann", expires_in=0.001)
    with pytest.raises(UnauthenticatedError):
        while True:  # its time has come at the latest when a few tokens have been hashed
            checked.verify(short)
    with pytest.raises(InputError):
        checked.create("ann", expires_in=-1)
    token = checked.create("ann", expires_in="1h")
    access.disable_user("ann")
    with pytest.raises(UnauthenticatedError):
        checked.verify(token)
    access.enable_user("ann")
    assert checked.verify(token) == "ann"
    access.tokens.revoke(token)
    with pytest.raises(UnauthenticatedError):
        checked.verify(token)
    with pytest.raises(NotFoundError):
        access.tokens.revoke(token)
    access.create_user("cat")
    last = checked.create("cat")
    access.drop_user("cat")
    with pytest.raises(UnauthenticatedError):
        checked.verify(last)
    with pytest.raises(NotFoundError):
        checked.create("cat")


def test_a_token_is_hashed_once_in_a_while_and_a_revoked_one_is_known_no_longer_than_that(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, hashed = [1_000.0], []
    monkeypatch.setattr(tokens_module.time, "monotonic", lambda: now[0])
    real = tokens_module._matches
    monkeypatch.setattr(tokens_module, "_matches", lambda *given: hashed.append(1) or real(*given))
    mine, others = Tokens(lake.handle.context.catalog, 5), Tokens(lake.handle.context.catalog, 5)
    token = mine.create("bob")
    for _ in range(50):
        assert others.verify(token) == "bob"
    assert len(hashed) == 1
    mine.revoke(token)
    with pytest.raises(UnauthenticatedError):
        mine.verify(token)  # the one who has revoked it knows at once
    assert others.verify(token) == "bob"
    now[0] += 5.1
    with pytest.raises(UnauthenticatedError):
        others.verify(token)
