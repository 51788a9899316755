"""Catalog URLs: every spelling, hostile ones too, and no password ever shown."""

from __future__ import annotations

import string
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import quacklake
from quacklake.core.catalog import CatalogUrl, open_catalog, parse_url
from quacklake.errors import CatalogUnavailableError, ConfigError, QuacklakeError

SECRET = "hunter2"
words = st.text(string.ascii_letters + string.digits + "_-.", min_size=1, max_size=12)
anything = st.text(st.characters(blacklist_categories=("Cs",)), max_size=60)


@pytest.mark.parametrize(
    ("text", "database", "path"),
    [
        ("sqlite:///lake.db", "sqlite", "lake.db"),
        ("sqlite:////tmp/lake.db", "sqlite", "/tmp/lake.db"),
        ("sqlite:///with%20space.db", "sqlite", "with space.db"),
        ("duckdb:///lake.duckdb", "duckdb", "lake.duckdb"),
        ("ducklake:lake.duckdb", "duckdb", "lake.duckdb"),
        ("ducklake:sqlite:lake.db", "sqlite", "lake.db"),
        ("ducklake:sqlite:/tmp/a b.db", "sqlite", "/tmp/a b.db"),
        ("ducklake:C:/lakes/lake.db", "duckdb", "C:/lakes/lake.db"),
        ("SQLITE:///lake.db", "sqlite", "lake.db"),
    ],
)
def test_a_file_is_found_in_every_spelling(text: str, database: str, path: str) -> None:
    url = parse_url(text)
    assert (url.database, url.path) == (database, Path(path))


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:secret@db.example:5433/lakes",
        "postgres://me:secret@db.example:5433/lakes",
        "postgresql+psycopg://me:secret@db.example:5433/lakes",
        "postgresql+psycopg2://me:secret@db.example:5433/lakes",
        "ducklake:postgres:host=db.example port=5433 user=me password=secret dbname=lakes",
        "ducklake:postgres:dbname='lakes' host = db.example  port=5433 user='me' password='secret'",
        "ducklake:postgresql://me:secret@db.example:5433/lakes",
        "ducklake:postgres:postgresql://me:secret@db.example:5433/lakes",
    ],
)
def test_a_server_is_found_in_every_spelling(text: str) -> None:
    url = parse_url(text)
    assert url.database == "postgres"
    assert url.url.drivername == "postgresql+psycopg"
    found = (url.url.username, url.url.password, url.url.host, url.url.port, url.url.database)
    assert found == ("me", "secret", "db.example", 5433, "lakes")
    assert url.path is None


def test_a_mysql_connection_string_has_its_own_words() -> None:
    url = parse_url("ducklake:mysql:db=lakes host=h user=me passwd=secret port=3306").url
    assert (url.drivername, url.username, url.password, url.host, url.port, url.database) == (
        "mysql+pymysql",
        "me",
        "secret",
        "h",
        3306,
        "lakes",
    )


@pytest.mark.parametrize(("kind", "word"), [("postgres", "host"), ("mysql", "unix_socket")])
def test_a_socket_is_a_host_that_begins_with_a_slash(kind: str, word: str) -> None:
    url = parse_url(f"ducklake:{kind}:host=/run/db user=me").url
    assert url.host is None
    assert url.query == {word: "/run/db"}


def test_our_own_parameters_do_not_reach_the_driver() -> None:
    url = parse_url("postgresql://h/d?catalog=acme&metadata_schema=lake&data_path=s3://b/p/&sslmode=require")
    assert (url.catalog, url.metadata_schema, url.data_path) == ("acme", "lake", "s3://b/p/")
    assert url.url.query == {"sslmode": "require"}


def test_a_percent_sign_in_a_connection_string_means_itself() -> None:
    assert parse_url("ducklake:postgres:host=h password=100%25").url.password == "100%25"


def test_quoted_words_of_a_connection_string_may_hold_anything() -> None:
    url = parse_url(r"ducklake:postgres:host=h password='it\'s a \\ pass word' dbname='my db'").url
    assert (url.password, url.database) == (r"it's a \ pass word", "my db")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "lake.db",
        "oracle://h/d",
        "postgresql://h:port/d",
        "postgresql://me:p@ss@h/d",
        "ducklake:",
        "ducklake:sqlite:",
        "ducklake:postgres:nonsense",
        "ducklake:postgres:port=many",
        "ducklake:postgres:port=²",
        "sqlite://lake.db",
        "ducklake:" * 5000 + "sqlite:///lake.db",
        "postgresql://[::1/d",
    ],
)
def test_what_cannot_be_understood_is_a_config_error_with_a_hint(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url(text)
    assert "port" in text or caught.value.hint


@given(anything)
def test_any_text_is_a_url_or_a_config_error(text: str) -> None:
    for candidate in (
        text,
        f"ducklake:{text}",
        f"ducklake:postgres:{text}",
        f"sqlite:///{text}",
        f"postgresql://{text}",
    ):
        try:
            url = parse_url(candidate)
        except ConfigError:
            continue
        assert url.database in ("sqlite", "duckdb", "postgres", "mysql")
        assert isinstance(str(url), str)


@given(
    password=st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=6, max_size=20),
    scheme=st.sampled_from(["postgresql", "postgres", "mysql", "mariadb", "postgressql", "sqlite", "oracle"]),
    host=words,
    database=words,
    raw=st.booleans(),
)
def test_a_password_in_a_url_is_never_shown(password: str, scheme: str, host: str, database: str, raw: bool) -> None:
    secret = f"{SECRET}{password}{SECRET}"
    text = f"{scheme}://me:{secret if raw else quote(secret, safe='')}@{host}/{database}"
    _shows_no_secret(text)


@given(password=st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20), extra=anything)
def test_a_password_in_a_connection_string_is_never_shown(password: str, extra: str) -> None:
    escaped = f"{SECRET}{password}".replace("\\", "\\\\").replace("'", "\\'")
    for word in ("password", "passwd"):
        _shows_no_secret(f"ducklake:postgres:host=h {word}='{escaped}' {extra}")
        _shows_no_secret(f"ducklake:mysql:host=h {word}={SECRET} {extra}")


@pytest.mark.parametrize("name", ["password", "passwd", "sslpassword", "ssl_key_password", "PASSWORD"])
def test_a_password_in_a_parameter_is_never_shown(name: str) -> None:
    _shows_no_secret(f"postgresql://h/d?{name}={SECRET}&sslmode=require")
    _shows_no_secret(f"ducklake:postgres:host=h {name}={SECRET}")


def _shows_no_secret(text: str) -> None:
    try:
        url: CatalogUrl = parse_url(text)
    except ConfigError as error:
        shown = "".join(traceback.format_exception(error)) + repr(error)
        # the trace quotes this file, not what it was given
        assert SECRET not in shown.replace(f'SECRET = "{SECRET}"', "")
        return
    assert SECRET not in str(url)
    assert SECRET not in repr(url)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_server_that_cannot_be_reached_is_named_without_the_password(scheme: str) -> None:
    catalog = open_catalog(f"{scheme}://me:{SECRET}@127.0.0.1:1/lakes?connect_timeout=2")
    with pytest.raises(CatalogUnavailableError) as caught:
        catalog.connect()
    assert "127.0.0.1" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(catalog.url)


@pytest.mark.postgres
def test_a_wrong_password_is_not_shown(postgres_url: str) -> None:
    url = postgres_url.replace("quacklake@", f"nobody:{SECRET}@")
    with pytest.raises(QuacklakeError) as caught:
        quacklake.connect(url, data_path="data/")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.mysql
def test_a_wrong_password_is_a_lack_of_rights_on_mysql(mysql_url: str) -> None:
    url = mysql_url.replace("quacklake:quacklake@", f"quacklake:{SECRET}@")
    with pytest.raises(QuacklakeError) as caught:
        quacklake.connect(url, data_path="data/")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url", ["ducklake:md:lakes", "ducklake:md:", "DUCKLAKE:md:x".lower(), "md:lakes", "motherduck://x"]
)
def test_motherduck_is_refused_in_one_sentence(url: str) -> None:
    with pytest.raises(ConfigError, match="MotherDuck cannot hold the metadata") as caught:
        parse_url(url)
    assert "PostgreSQL" in (caught.value.hint or "")
    assert not Path("md").exists()
