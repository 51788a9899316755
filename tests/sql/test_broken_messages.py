"""Errors of DuckDB whose text is not valid UTF-8, because the value in it is cut in the middle of a character."""

from __future__ import annotations

from pathlib import Path

import pytest

import quacklake
from quacklake.errors import PredicateError, QuacklakeError, SqlError


def test_they_are_errors_of_ours(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=f"{tmp_path}/data/") as lake:
        table = lake.create_table("t", [{"a": "é"}])
        with pytest.raises(SqlError, match="hex digit"):
            lake.sql("SELECT unhex('é')").fetchall()
        with pytest.raises(SqlError, match="hex digit"):
            lake.sql("DELETE FROM t WHERE unhex(a) IS NULL")
        with pytest.raises(PredicateError, match="hex digit"):
            table.count("unhex(a) IS NULL")
        with pytest.raises(QuacklakeError):
            table.to_arrow(where="unhex(a) IS NULL")
        assert table.count() == 1
