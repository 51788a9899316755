"""Public methods raise our own errors alone, whatever goes wrong inside or is passed in."""

from __future__ import annotations

import inspect
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import quacklake
from quacklake import Lake, Table
from quacklake.errors import (
    ClosedError,
    CorruptFileError,
    InputError,
    QuacklakeError,
    StorageError,
    StorageUnavailableError,
)
from services import S3Server
from tests.seeds import some

_DEEP = 400
#: Without arguments they end the lake, or begin what others end.
_LEFT_OUT = {"close", "interrupt", "spark", "maintain", "show"}
_JUNK: tuple[Any, ...] = (None, 5, -1.5, "\ud800", "no such thing", b"\xff", [], [object()], {"x": object()}, object())


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")  # a wrong argument may be the name of a folder
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.create_table("t", pa.table({"id": range(50), "s": ["x"] * 50}))
        yield lake


def _methods(thing: object) -> list[str]:
    found = inspect.getmembers(type(thing), inspect.isfunction)
    return [name for name, _ in found if not name.startswith("_") and name not in _LEFT_OUT]


def _required(method: Callable[..., Any]) -> int:
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(method).parameters.values()
    return sum(parameter.default is inspect.Parameter.empty and parameter.kind in plain for parameter in found)


def _foreign(thing: object, name: str, junk: Any) -> str | None:
    """Return the error with which a method refused a wrong argument, or None if it is one of ours."""
    method = getattr(thing, name)
    try:
        method(*[junk] * max(1, _required(method)))
    except QuacklakeError:
        return None
    except TypeError as error:
        if error.__traceback__ is not None and "argument" in str(error) and "()" in str(error):
            return None  # Python's own, of a call with too many or too few of them
        return f"{name}({junk!r}): {error!r}"
    except Exception as error:
        return f"{name}({junk!r}): {error!r}"
    return None


@pytest.mark.parametrize("kind", ["lake", "table"])
def test_a_wrong_argument_is_an_error_of_ours(lake: Lake, kind: str) -> None:
    thing: Lake | Table = lake if kind == "lake" else lake.table("t")
    cases = [(name, junk) for name in _methods(thing) for junk in range(len(_JUNK))]
    foreign = [_foreign(thing, name, _JUNK[junk]) for name, junk in some(cases, 60, "junk", kind)]
    assert [told for told in foreign if told is not None] == []


def _nested_type(levels: int) -> pa.DataType:
    found: pa.DataType = pa.int64()
    for _ in range(levels):
        found = pa.list_(found)
    return found


def _nested_value(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def _itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "call",
    [
        lambda lake: lake.sql("SELECT * FROM " + "(SELECT * FROM " * 300 + "t" + ")" * 300).fetchall(),
        lambda lake: lake.create_table("deep", pa.schema([("x", _nested_type(1500))])),
        lambda lake: lake.create_table("deep", [{"x": _nested_value(_DEEP)}]),
        lambda lake: lake.create_table("deep", [{"x": _itself()}]),
        lambda lake: lake.table("t").count("(" * 2000 + "id" + ")" * 2000 + " > 0"),
    ],
    ids=["SQL", "type", "value", "value that holds itself", "filter"],
)
def test_what_is_nested_too_deeply_is_an_error_of_ours(lake: Lake, call: Callable[[Lake], object]) -> None:
    with pytest.raises(InputError):
        call(lake)
    assert lake.tables() == ["main.t"]


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.append(pl.LazyFrame({"id": [1], "s": ["a"]}).select("nope")),
        lambda table: table.append(pl.LazyFrame({"id": ["x"], "s": ["a"]}).with_columns(pl.col("id").cast(pl.Int64))),
        lambda table: table.update({"id": object()}),
        lambda table: table.scan(columns=[5]).to_arrow(),
        lambda table: table.scan(limit="many").to_arrow(),
        lambda table: table.append([{"id": 1, "s": "\ud800"}]),
    ],
    ids=["polars column", "polars cast", "duckdb value", "column name", "limit", "surrogate"],
)
def test_an_error_of_another_library_is_told_as_ours(lake: Lake, call: Callable[[Table], object]) -> None:
    with pytest.raises(InputError) as caught:
        call(lake.table("t"))
    assert caught.value.__cause__ is not None
    assert lake.table("t").count() == 50


def test_a_lake_that_is_closed_says_so(tmp_path: Path) -> None:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")
    table = lake.create_table("t", pa.table({"id": range(50)}))
    lake.close()
    calls: list[Callable[[], object]] = [
        lambda: table.count("id > 3"),
        lambda: table.to_arrow(),
        lambda: table.append(pa.table({"id": range(50)})),
        lambda: table.delete("id = 3"),
        lambda: lake.tables(),
        lambda: lake.sql("SELECT 1"),
    ]
    for call in calls:
        with pytest.raises(ClosedError, match="the lake is closed"):
            call()
    assert repr(lake) == f"<Lake {lake.url}, closed>"


# -- outages -----------------------------------------------------------------------------------------------------------


def test_a_data_disk_without_room_is_no_damage(lake: Lake) -> None:
    rows = pa.table({"id": np.random.default_rng(1).integers(0, 1 << 62, 200_000), "s": ["x"] * 200_000})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, before[1]))
    try:
        with pytest.raises(StorageError, match="no space left") as caught:
            lake.table("t").append(rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not isinstance(caught.value, CorruptFileError)
    assert lake.table("t").count() == 50


def _closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _settings(server: S3Server, **more: Any) -> dict[str, Any]:
    keys = {"s3_access_key": server.access_key, "s3_secret_key": server.secret_key, "s3_region": server.region}
    return {"s3_endpoint": server.host, "s3_secure": False, "storage_max_retries": 0, **keys, **more}


@pytest.mark.s3
def test_a_store_that_is_down_is_unavailable_and_no_damage(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=f"{s3_bucket}/lake/", **_settings(s3_server)) as lake:
        lake.create_table("t", pa.table({"id": range(50)}))
    down = _settings(s3_server, s3_endpoint=f"127.0.0.1:{_closed_port()}")
    with quacklake.connect(url, **down) as lake:
        table = lake.table("t")
        calls: list[Callable[[], object]] = [
            lambda: table.count("id > 3"),
            lambda: table.to_arrow(),
            lambda: table.append(pa.table({"id": range(50)})),
            lambda: table.delete("id = 3"),
            lambda: lake.sql("SELECT sum(id) FROM t").fetchall(),
        ]
        for call in calls:
            with pytest.raises(StorageUnavailableError) as caught:
                call()
            assert caught.value.transient
