"""Data paths: which are understood, and what is said about the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from quacklake.core.storage import S3Options, Store
from quacklake.errors import ConfigError

KEYS = S3Options(access_key="ann", secret_key="hunter2", region="us-east-1")


def test_a_local_root_is_absolute_and_ends_with_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("data", "data/", "./data", "data/../data//", str(tmp_path / "data"), f"file://{tmp_path}/data"):
        store = Store.open(text)
        assert store.root == f"{tmp_path}/data/"
        assert store.scheme == "file"
        assert store.is_local
        assert store.url("x") == f"{tmp_path}/data/x"
    assert Store.open("/").url("x") == "/x"
    assert Store.open(f"file://{tmp_path}/a%20b").root == f"{tmp_path}/a b/"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store.open("~/lake").root == f"{tmp_path}/lake/"


@pytest.mark.parametrize("text", ["s3://bucket/some/lake", "s3://bucket/some/lake/", "s3://bucket//some/lake//"])
def test_an_s3_root_is_a_url(text: str) -> None:
    store = Store.open(text, s3=KEYS)
    assert store.root == "s3://bucket/some/lake/"
    assert store.scheme == "s3"
    assert not store.is_local
    assert store.url("x") == "s3://bucket/some/lake/x"
    assert store.filesystem.type_name == "s3"


def test_a_bucket_alone_can_be_a_root() -> None:
    assert Store.open("s3://bucket", s3=KEYS).url("x") == "s3://bucket/x"


@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_google_roots_are_understood(scheme: str) -> None:
    store = Store.open(f"{scheme}://bucket/lake")
    assert store.url("x") == f"{scheme}://bucket/lake/x"
    assert store.filesystem.type_name == "gcs"


def test_azure_roots_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT", raising=False)
    store = Store.open("abfs://box@acme.dfs.core.windows.net/lake")
    assert store.url("x") == "abfs://box@acme.dfs.core.windows.net/lake/x"
    with pytest.raises(ConfigError, match="account"):
        Store.open("az://box/lake")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acme")
    assert Store.open("az://box/lake").url("x") == "az://box/lake/x"


@pytest.mark.parametrize(
    "text", ["", " ", "a\0b", "s3://", "s3:///x", "s3://ann:hunter2@bucket/x", "s3://b/x?secret=hunter2", "s3://b/../x"]
)
def test_what_cannot_be_a_root_is_refused_without_telling_secrets(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Store.open(text, s3=KEYS)
    assert "hunter2" not in str(caught.value)


def test_an_unknown_kind_of_store_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="ftp://") as caught:
        Store.open("ftp://host/lake")
    for scheme in ("s3://", "gs://", "az://", "abfs://", "file://"):
        assert scheme in str(caught.value.hint)


def test_a_file_cannot_be_a_root(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(ConfigError, match="is a file") as caught:
        Store.open(str(tmp_path / "f"))
    assert caught.value.hint


def test_opening_creates_nothing(tmp_path: Path) -> None:
    Store.open(str(tmp_path / "data"))
    assert list(tmp_path.iterdir()) == []


def test_s3_options_show_no_secret_and_read_the_endpoint() -> None:
    options = S3Options(
        endpoint="http://127.0.0.1:9000/", access_key="ann", secret_key="hunter2", session_token="hunter3"
    )
    assert "hunter" not in repr(options)
    assert (options.endpoint, options.secure) == ("127.0.0.1:9000", False)
    assert S3Options(endpoint="https://s3.test").secure
    assert S3Options(endpoint="127.0.0.1:9000", secure=False).endpoint == "127.0.0.1:9000"
    for wrong in ("ftp://x", "http://", "http://ann:pw@host", "http://host/path"):
        with pytest.raises(ConfigError):
            S3Options(endpoint=wrong)
    with pytest.raises(ConfigError):
        S3Options(access_key="ann")


@pytest.mark.parametrize("wrong", [{"max_retries": -1}, {"retry_wait": -0.1}])
def test_retries_cannot_be_negative(tmp_path: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Store.open(str(tmp_path), **wrong)  # type: ignore[arg-type]
