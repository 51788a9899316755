"""A statement that holds a password or key does not get it into errors, logs or what the shell remembers."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest

import quacklake
from quacklake.cli.shell import History
from quacklake.config import redact_message, redact_statement
from quacklake.errors import QuacklakeError

S = "hunter2-XYZ"
BROKEN = [
    f"ATTACH 'ducklake:postgres:password={S}' AS (",
    f"ATTACH 'postgres://u:{S}@h/db' AS (",
    f"ATTACH 'ducklake:postgres:dbname=x password=''{S} x''' AS (",
    f"ATTACH 'ducklake:postgres:host=h password={S} dbname=d' AS l (DATA_PATH",
    f"/* a lake */ -- of ours\nATTACH 'ducklake:postgres:password={S}' AS (",
    f"ATTACH 'x.db' AS y (ENCRYPTION_KEY '{S}', FOO",
    f"ATTACH 'x.db' AS y (ENCRYPTION_KEY '{S}', FOO 1)",
    f"CREATE SECRET s (TYPE s3, KEY_ID 'k', SECRET '{S}'",
    f"CREATE SECRET s (TYPE s3 KEY_ID 'k' SECRET '{S}')",
    f"CREATE SECRET s (TYPE s3, SECRETT '{S}')",
    f"CREATE OR REPLACE TEMPORARY SECRET s (TYPE s3, SECRET := '{S}')",
    f"CREATE SECRET s (TYPE postgres, PASSWORD $${S}$$, HOST)",
    f"CREATE SECRET (TYPE http, EXTRA_HTTP_HEADERS MAP {{'Authorization': 'Bearer {S}'}} x)",
    f"CREATE SECRET (TYPE azure, CONNECTION_STRING 'AccountName=a;AccountKey={S};X', Z)",
    f"SET s3_secret_access_key = '{S}",
    f"SET s3_secret_access_key == '{S}'",
    f"SET s3_secret_access_key TO '{S}' x",
    f"SETT s3_secret_access_key = '{S}'",
    f"PRAGMA add_parquet_key('k', '{S}') x",
    f"ALTER ROLE x PASSWORD '{S}'",
    f"SELECT 1; SET s3_secret_access_key == '{S}'",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> quacklake.Lake:
    home = tmp_path_factory.mktemp("secrets")
    return quacklake.connect(f"sqlite:///{home}/lake.db", data_path=home / "files")


@pytest.mark.parametrize("statement", BROKEN)
def test_a_broken_statement_does_not_show_its_secret(
    lake: quacklake.Lake, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "quacklake"), pytest.raises(QuacklakeError) as caught:
        lake.sql(statement)
    error: BaseException | None = caught.value
    while error is not None:
        assert S not in f"{error} {error!r} {error.args} {getattr(error, 'hint', '')}"
        error = error.__cause__ or error.__context__
    shown = traceback.TracebackException.from_exception(caught.value)
    assert S not in "".join(shown.format_exception_only())
    assert S not in caplog.text


def test_an_error_of_another_statement_still_shows_its_place(lake: quacklake.Lake) -> None:
    with pytest.raises(QuacklakeError, match="LINE 1: SELECT 'hunter2' FRM"):
        lake.sql("SELECT 'hunter2' FRM t")


def test_a_part_of_a_secret_in_a_shortened_place_is_not_shown() -> None:
    message = 'Parser Error: syntax error at or near "("\n\nLINE 1: ...er2-XYZ\' AS (\n                ^'
    shown = redact_message(message, f"ATTACH 'ducklake:postgres:password={S}' AS (")
    assert shown == 'Parser Error: syntax error at or near "("'


@pytest.mark.parametrize(
    ("sql", "message", "shown"),
    [
        (
            f"CREATE SINK trades_new WITH (type='new', token='{S}', 'table.path'='trades')",
            f"trades_new: there is no type 'new' for trades ({S})",
            "trades_new: there is no type 'new' for trades (***)",
        ),
        (f"CREATE SOURCE s WITH ('api.key'='{S}', stream='orders')", f"orders {S}", "orders ***"),
        (f"CREATE SOURCE s WITH (url='nats://u:{S}@h', stream='orders')", f"orders nats://u:{S}@h", "orders ***"),
        (f"ATTACH 'pg:{S}' AS x (CATALOG 'nope')", f"no 'nope' at pg:{S}", "no 'nope' at ***"),
        (f"ATTACH 'x.db' (CATALOG 'nope', PASSWORD /* p */ '{S}')", f"no 'nope', {S}", "no 'nope', ***"),
        (f"SET s3_secrets = ['{S}a', '{S}b']", f"{S}a {S}b", "*** ***"),
        ("SET search_path = 'nope'", "no schema 'nope'", "no schema 'nope'"),
        (f"PRAGMA anything('{S}')", S, "***"),
        (f"CREATE SECRET s (SCOPE 'scope', KIND '{S}')", f"scope {S}", "*** ***"),
        (f"SELECT 'plain'; ALTER ROLE x PASSWORD $t${S}$t$", f"plain {S}", "plain ***"),
    ],
)
def test_names_and_values_that_are_no_secret_are_shown(sql: str, message: str, shown: str) -> None:
    assert redact_message(message, sql) == shown


def test_an_attachment_names_the_catalog_that_is_missing(lake: quacklake.Lake, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    quacklake.connect(url, data_path=tmp_path / "d", catalog="first").close()
    with pytest.raises(QuacklakeError, match="nope") as caught:
        lake.sql(f"ATTACH 'ducklake:{url}' AS x (CATALOG 'nope', CREATE_IF_NOT_EXISTS false)")
    assert "***" not in caught.value.message


def test_a_statement_is_logged_without_what_it_quotes_where_that_may_be_a_secret() -> None:
    assert redact_statement(f"ATTACH '{S}' AS x") == "ATTACH '***' AS x"
    assert redact_statement("SELECT 'x'") == "SELECT 'x'"


def test_the_shell_forgets_statements_about_secrets(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    for statement in BROKEN:
        history.store_string(statement)
    history.store_string("ATTACH 'ducklake:other.db' AS other")
    text = (tmp_path / "history").read_text()
    assert "other.db" in text
    assert S not in text
