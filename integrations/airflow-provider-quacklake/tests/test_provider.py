"""The provider in the real Airflow: the example, the hook, the operators and the assets. See tests/schedulers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.connection import Connection
from airflow.providers_manager import ProvidersManager
from airflow.sdk import Asset
from airflow_provider_quacklake import get_provider_info
from airflow_provider_quacklake.assets import table_asset
from airflow_provider_quacklake.hooks import QuacklakeHook
from airflow_provider_quacklake.operators import QuacklakeMaintainOperator, QuacklakeSqlOperator

import quacklake


@pytest.fixture(scope="session", autouse=True)
def _database() -> None:
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[quacklake.Lake]:
    facts = {"host": f"sqlite:///{tmp_path}/lake.db", "extra": {"data_path": f"{tmp_path}/data"}}
    connect(monkeypatch, "quacklake_default", **facts)
    with quacklake.connect(facts["host"], data_path=tmp_path / "data") as made:
        yield made


def connect(monkeypatch: pytest.MonkeyPatch, name: str, **facts: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "quacklake", **facts}))


def test_the_example_runs_and_a_try_after_a_lost_answer_adds_nothing(lake: quacklake.Lake) -> None:
    command = [sys.executable, str(Path(__file__).with_name("run_orders.py"))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    done = json.loads(ended.stdout.splitlines()[-1])
    assert done["state"] == "success"
    assert done["tries"] == {"tables": 2, "journal": 2}
    assert done["states"] == dict.fromkeys(("tables", "load", "journal", "revenue", "maintain"), "success")
    assert lake.sql("SELECT count(*), sum(price) FROM orders").fetchall() == [(100, 1237.5)]
    assert lake.sql("SELECT count(*) FROM loads").fetchall() == [(1,)]
    assert f"airflow orders journal {done['run']} -1" in lake.snapshots()["commit_message"].to_pylist()
    snapshots = dict(done["events"])
    assert set(snapshots) == {_uri("orders"), _uri("loads")}
    assert snapshots[_uri("loads")] > 0


def _uri(table: str) -> str:
    return f"quacklake://quacklake_default/main/{table}"


def test_airflow_finds_the_connection_type_and_its_hook() -> None:
    manager = ProvidersManager()
    assert "airflow-provider-quacklake" in manager.providers
    found = manager.hooks["quacklake"]
    assert found is not None
    assert found.hook_name == "Quacklake"
    assert manager.field_behaviours["quacklake"]["relabeling"]["host"] == "URL of the lake"
    assert "quacklake" in manager.asset_uri_handlers
    assert get_provider_info()["package-name"] == "airflow-provider-quacklake"
    hook = Connection(conn_id="x", conn_type="quacklake", host="sqlite:///lake.db").get_hook()
    assert isinstance(hook, QuacklakeHook)


def test_the_hook_reads_and_writes(lake: quacklake.Lake) -> None:
    hook = QuacklakeHook()
    assert hook.test_connection() == (True, "Connection successfully tested")
    hook.run(["CREATE TABLE t (id BIGINT, name VARCHAR)", "INSERT INTO t VALUES (0, 'zero')"])
    hook.insert_rows("t", [(1, "it's"), (2, None)], target_fields=["id", "name"], executemany=True)
    assert hook.get_records("SELECT * FROM t WHERE id >= ? ORDER BY id", parameters=[1]) == [(1, "it's"), (2, None)]
    assert hook.get_first("SELECT count(*) FROM t") == (3,)
    assert hook.get_df("SELECT id FROM t ORDER BY id")["id"].tolist() == [0, 1, 2]
    before = lake.current_snapshot()
    with pytest.raises(Exception, match="missing"):
        hook.run(["DELETE FROM t", "DELETE FROM missing"])
    assert (lake.table("t").count(), lake.current_snapshot()) == (3, before)
    with hook.lake() as opened:
        assert opened.tables() == ["main.t"]
    assert [column["name"] for column in hook.inspector.get_columns("t")] == ["id", "name"]


def test_connections_become_urls_and_secrets_stay_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "pg", host="postgresql://db/lakes", login="ann", password="s/ecret", extra={"catalog": "acme"})
    hook = QuacklakeHook("pg")
    assert hook.arguments() == ("postgresql://ann:s%2Fecret@db/lakes", {"catalog": "acme"})
    assert hook.get_uri() == "quacklake+postgresql://ann:s%2Fecret@db/lakes?catalog=acme"
    assert "ecret" not in repr(hook.sqlalchemy_url)
    assert not hook.is_service
    connect(monkeypatch, "web", host="https://lake.example/at", password="token")
    hook = QuacklakeHook("web")
    assert hook.arguments() == ("https://lake.example/at", {"token": "token"})
    assert hook.is_service
    assert hook.get_uri() == "quacklake+https://token:token@lake.example/at"
    connect(monkeypatch, "empty")
    with pytest.raises(ValueError, match="needs the URL of a lake"):
        QuacklakeHook("empty").arguments()


def test_a_service_runs_statements_and_has_no_transactions(
    lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quacklake.service.app import create_app
    from quacklake.service.identity import Role, TokenGate
    from quacklake.service.serving import BackgroundService

    lake.create_table("t", {"id": "BIGINT"})
    with BackgroundService(create_app(TokenGate(lake, {"token": Role.WRITER}))) as url:
        connect(monkeypatch, "web", host=url, password="token")
        hook = QuacklakeHook("web")
        hook.run("INSERT INTO t VALUES (1)")
        assert hook.get_records("SELECT id FROM t") == [(1,)]
        insert = QuacklakeSqlOperator(
            task_id="a", sql="INSERT INTO t VALUES (?)", parameters=[2], quacklake_conn_id="web"
        )
        assert insert.execute({}) == lake.current_snapshot()  # type: ignore[typeddict-item]
        assert lake.table("t").count() == 2
        once = QuacklakeSqlOperator(task_id="b", sql="DELETE FROM t", quacklake_conn_id="web", once=True)
        for refused in (once, QuacklakeMaintainOperator(task_id="c", quacklake_conn_id="web")):
            with pytest.raises(ValueError, match="service"):
                refused.execute({})  # type: ignore[typeddict-item]
        assert hook.get_first("SELECT count(*) FROM t") == (2,)


def test_values_of_templates_are_values_and_never_statements(lake: quacklake.Lake) -> None:
    lake.create_table("t", {"name": "VARCHAR"})
    hostile = "x'); DROP TABLE t; --"
    insert = QuacklakeSqlOperator(task_id="a", sql="INSERT INTO t VALUES (?)", parameters=["{{ name }}"])
    insert.render_template_fields({"name": hostile})  # type: ignore[typeddict-item]
    insert.execute(run_of("r"))
    assert lake.table("t").to_pylist() == [{"name": hostile}]


def run_of(run: str, map_index: int = -1) -> Any:
    """Return as much of a context as the operators use."""
    return {"ti": SimpleNamespace(dag_id="d", task_id="t", run_id=run, map_index=map_index)}


def test_a_run_commits_once_and_an_earlier_try_that_lives_on_never(
    lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("t", {"id": "BIGINT"})
    insert = QuacklakeSqlOperator(task_id="t", sql="INSERT INTO t VALUES (1)", once=True)
    for run in (run_of("r"), run_of("r"), run_of("r", 0), run_of("r", 0), run_of("é" * 250), run_of("é" * 250)):
        insert.execute(run)
    assert lake.table("t").count() == 3
    failing = QuacklakeSqlOperator(task_id="t", sql=["INSERT INTO t VALUES (2)", "SELECT * FROM missing"], once=True)
    with pytest.raises(quacklake.QuacklakeError):
        failing.execute(run_of("s"))
    assert lake.table("t").count() == 3
    insert.execute(run_of("s"))
    assert lake.table("t").count() == 4

    taken_over: list[int] = []
    sql = quacklake.LakeTransaction.sql

    def late(self: quacklake.LakeTransaction, *words: Any) -> Any:
        if not taken_over:
            taken_over.append(1)
            insert.execute(run_of("u"))
        return sql(self, *words)

    monkeypatch.setattr(quacklake.LakeTransaction, "sql", late)
    with pytest.raises(quacklake.errors.StreamError):
        insert.execute(run_of("u"))
    assert (taken_over, lake.table("t").count()) == ([1], 5)


@pytest.mark.parametrize(
    "uri",
    [
        "quacklake://c",
        "quacklake://c/t",
        "quacklake:///s/t",
        "quacklake://c/s/t/u",
        "quacklake://c/s/t?x=1",
        "quacklake://c//t",
    ],
)
def test_assets_name_a_connection_a_schema_and_a_table(uri: str) -> None:
    assert table_asset('"odd name"."a/b"', "conn").uri == "quacklake://conn/odd%20name/a%2Fb"
    assert table_asset("t").uri == _uri("t")
    with pytest.raises(ValueError, match="quacklake://connection/schema/table"):
        Asset(uri)
