from __future__ import annotations

from pathlib import Path

import pytest

import quacklake
from quacklake.errors import NotFoundError, NotPermittedError, UnauthenticatedError
from quacklake.service.identity import Role, TokenGate


@pytest.fixture
def gate(tmp_path: Path) -> TokenGate:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", tmp_path / "data", create=True)
    return TokenGate(lake, {"secret-1": Role.READER, "secret-2": Role.ADMIN})


def test_a_token_gives_its_role(gate: TokenGate) -> None:
    assert gate.enter("secret-1").role is Role.READER
    assert gate.enter("secret-2", "lake").role is Role.ADMIN
    gate.close()


@pytest.mark.parametrize("token", [None, "", "secret", "secret-11", "SECRET-1", "None"])
def test_a_wrong_token_is_refused_and_not_repeated(gate: TokenGate, token: str | None) -> None:
    with pytest.raises(UnauthenticatedError) as raised:
        gate.enter(token)
    assert not token or token not in str(raised.value).split("Bearer")[0]
    gate.close()


def test_an_unknown_lake_is_not_found_and_only_with_a_token(gate: TokenGate) -> None:
    with pytest.raises(NotFoundError):
        gate.enter("secret-1", "other")
    with pytest.raises(UnauthenticatedError):
        gate.enter(None, "other")
    gate.close()


def test_a_role_covers_the_roles_below_it(gate: TokenGate) -> None:
    gate.enter("secret-2").require(Role.WRITER)
    with pytest.raises(NotPermittedError, match="role writer"):
        gate.enter("secret-1").require(Role.WRITER)
    gate.close()
