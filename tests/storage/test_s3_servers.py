"""The answers of S3 servers: a real one, and moto, which replaces it where it cannot run."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from quacklake.core.storage import S3Options, Store
from quacklake.errors import StorageError
from services import S3Server

_PART = 6 << 20
_NAMES = ("a b", "a+b", "100%", "a%20b", "a%2Fb", "#1", "why?", "[ab]*", "Zürich ☃ 鴨", 'it\'s "so"', "a&b=c;d@e:f,g~h")


@pytest.fixture(params=["s3", "moto"])
def server(request: pytest.FixtureRequest) -> S3Server:
    """Each server in turn; only moto if there is no real one."""
    server: S3Server = request.getfixturevalue(f"{request.param}_server")
    if request.param == "s3" and not server.is_real:
        pytest.skip("versitygw has not been built")
    return server


@pytest.fixture
def options(server: S3Server) -> S3Options:
    return S3Options(server.url, server.access_key, server.secret_key, region=server.region)


@pytest.fixture
def store(server: S3Server, options: S3Options) -> Store:
    return Store.open(f"{server.create_bucket(f't-{uuid.uuid4().hex}')}/lake", s3=options, retry_wait=0.001)


def test_a_listing_of_many_pages_is_whole(s3_server: S3Server, s3_store: Store) -> None:
    if not s3_server.is_real:
        pytest.skip("moto takes long for a thousand objects")
    names = [*(f"d/{number:04}" for number in range(1005)), "e/1"]
    with ThreadPoolExecutor(8) as pool:
        deque(pool.map(lambda name: s3_store.write(name, b""), names), maxlen=0)
    assert [entry.path for entry in s3_store.list()] == names
    assert sorted(entry.path for entry in s3_store.stream()) == names


def test_an_object_of_many_parts_arrives_whole(store: Store) -> None:
    block = uuid.uuid4().bytes * (_PART // 16)
    with store.open_output("big") as sink:
        for _ in range(3):
            sink.write(block)
    assert store.size("big") == 3 * len(block)
    assert store.read("big") == block * 3
    with store.open_input("big") as source:
        assert source.read_at(20, len(block) - 10) == (block * 2)[len(block) - 10 : len(block) + 10]


def test_every_name_is_a_key_of_its_own(store: Store) -> None:
    names = sorted([*(f"{name}.bin" for name in _NAMES), *(f"{name}/x" for name in _NAMES)])
    for name in names:
        store.write(name, name.encode())
    assert sorted(entry.path for entry in store.list()) == names
    assert [store.read(name).decode() for name in names] == names
    assert store.delete(names) == len(names)


def test_what_is_replaced_is_new_for_the_next_reader(store: Store) -> None:
    for number in range(5):
        store.write("f", b"x" * number)
        assert store.read("f") == b"x" * number
        assert store.size("f") == number


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.write("f", b"1"),
        lambda store: store.read("f"),
        lambda store: store.exists("f"),
        lambda store: store.delete(["f"]),
        lambda store: [*store.list()],
    ],
    ids=["write", "read", "exists", "delete", "list"],
)
@pytest.mark.parametrize("wrong", ["access_key", "secret_key"])
def test_a_wrong_key_is_denied_and_no_damage(
    s3_server: S3Server, s3_store: Store, s3_options: S3Options, wrong: str, call: Callable[[Store], object]
) -> None:
    if not s3_server.is_real:
        pytest.skip("moto lets everybody in")
    stranger = Store.open(s3_store.root, s3=replace(s3_options, **{wrong: "hunter2-hunter2"}), retry_wait=0.001)
    with pytest.raises(StorageError, match="no permission") as caught:
        call(stranger)
    assert type(caught.value) is StorageError
    assert caught.value.hint is not None and "credentials" in caught.value.hint
    assert wrong == "access_key" or "hunter2" not in str(caught.value)
