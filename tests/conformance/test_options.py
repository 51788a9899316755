"""Options that one client sets hold for the other."""

from __future__ import annotations

import duckdb
import pytest

from quacklake.core.format.options import OPTIONS, READ_ONLY_KEYS, Scope
from quacklake.errors import ConfigError
from tests.lake.test_options import VALUES

from .clients import LakeSite
from .conftest import MakeSite, kinds

pytestmark = pytest.mark.daily(0.45)

DATABASES = kinds("sqlite", "duckdb", "postgres")


APART = ("rewrite_delete_threshold", "require_commit_message", "update_mode")
"""Options written with six digits there, or that need messages from then on, or are ours alone."""


def stored(site: LakeSite) -> set[tuple[str, str, str | None, int | None]]:
    rows = site.metadata("SELECT key, value, scope, scope_id FROM {m}.ducklake_metadata")
    return {row for row in rows if row[0] not in READ_ONLY_KEYS}  # type: ignore[misc]


@pytest.mark.parametrize("kind", DATABASES)
def test_f11_1_both_clients_store_options_alike(kind: str, make_site: MakeSite) -> None:
    ours, theirs = make_site(kind), make_site(kind)
    for site in (ours, theirs):
        site.stock().execute("CREATE SCHEMA s; CREATE TABLE s.t(a INTEGER)")
    for name, (value, _, _) in VALUES.items():
        if name in APART:
            continue
        for scope in OPTIONS[name].scopes:
            where = {
                Scope.GLOBAL: "",
                Scope.SCHEMA: ", schema => 's'",
                Scope.TABLE: ", schema => 's', table_name => 't'",
            }
            given = f"'{value}'" if isinstance(value, str) else str(value).lower()
            theirs.stock().execute(f"CALL l.set_option('{name}', {given}{where[scope]})")
    for name, (value, _, _) in VALUES.items():
        if name in APART:
            continue
        for scope in OPTIONS[name].scopes:
            options = {Scope.GLOBAL: {}, Scope.SCHEMA: {"schema": "s"}, Scope.TABLE: {"table": "s.t"}}[scope]
            ours.lake().options.set(name, value, **options)
    assert stored(ours) == stored(theirs)
    lake = theirs.lake()
    for name, (_, _, meaning) in VALUES.items():
        if name not in APART:
            assert lake.options.get(name) == meaning, name
    ours.lake().options.set("update_mode", "copy_on_write", table="s.t")
    names = {
        row[0] for row in ours.stock().execute("SELECT option_name FROM l.options() WHERE scope = 'TABLE'").fetchall()
    }
    assert {"target_file_size", "auto_compact", "update_mode"} <= names, "one that stock has not does it no harm"


@pytest.mark.parametrize("kind", DATABASES)
def test_f6_3_both_clients_inline_by_the_same_limit(kind: str, make_site: MakeSite) -> None:
    site = make_site(kind, inlining=20)
    site.stock().execute(
        "CREATE SCHEMA s; CREATE TABLE s.t(a INTEGER); CREATE TABLE s.u(a INTEGER); CREATE TABLE v(a INTEGER)"
    )

    def check(expected: tuple[int, int, int]) -> None:
        """Five rows into each table: how many files came of it, for either client."""
        counts = []
        site.close_stock()  # it reads the options when it attaches
        for writer in ("ours", "stock"):
            before = files()
            for name in ("s.t", "s.u", "main.v"):
                if writer == "ours":
                    site.lake().table(name).append([{"a": i} for i in range(5)])
                else:
                    site.stock().execute(f"INSERT INTO {name} SELECT * FROM range(5)")
            counts.append(tuple(after - earlier for after, earlier in zip(files(), before, strict=True)))
        assert counts == [expected, expected]

    def files() -> list[int]:
        return [
            int(site.metadata("SELECT count(*) FROM {m}.ducklake_data_file WHERE table_id = ?", [id_])[0][0])
            for id_ in ids
        ]

    ids = [site.lake().table(name).info.id for name in ("s.t", "s.u", "main.v")]
    name = "data_inlining_row_limit"
    check((0, 0, 0))
    site.lake().options.set(name, 2, table="s.t")
    check((1, 0, 0))
    site.lake().options.set(name, 2)
    check((1, 1, 1))
    site.lake().options.set(name, 9, schema="s")
    check((1, 0, 1))
    site.lake().options.unset(name, table="s.t")
    check((0, 0, 1))


def test_f10_1_both_clients_require_a_commit_message(make_site: MakeSite) -> None:
    site = make_site("sqlite")
    site.stock().execute("CREATE TABLE t(a INTEGER); CALL l.set_option('require_commit_message', true)")
    words = "Commit Information for the snapshot is required but has not been provided"
    with pytest.raises(ConfigError, match=words):
        site.lake().table("t").append([{"a": 1}])
    site.lake().signed("ours", author="me").table("t").append([{"a": 1}])
    with pytest.raises(duckdb.Error, match=words):
        site.stock().execute("INSERT INTO t VALUES (2)")
    site.lake().options.unset("require_commit_message")
    site.stock().execute("INSERT INTO t VALUES (2)")
    assert site.lake().table("t").count() == 2
