"""The REST catalog as programs use it: names, pages, tokens, errors, and what a hostile client may send."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from pyiceberg.catalog import load_catalog

import quacklake
from quacklake import Lake
from quacklake.errors import (
    CatalogError,
    CatalogUnavailableError,
    PathError,
    QuacklakeError,
    StorageUnavailableError,
)
from quacklake.service.iceberg import IcebergSettings
from quacklake.service.iceberg.failures import failure_of

from .serving import TOKEN, Service, pyiceberg_reader, rows_of


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{service.url}/", headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        yield client


def error_of(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    assert error["message"]
    return answer.status_code, error["type"]


def test_the_configuration_names_the_lake_and_what_can_be_asked(
    service: Service, lake: Lake, http: httpx.Client
) -> None:
    name = service.add(lake)
    config = http.get("v1/config", params={"warehouse": name}).json()
    assert config["overrides"] == {"prefix": name}
    assert all(endpoint.split()[0] in ("GET", "HEAD") for endpoint in config["endpoints"])
    assert error_of(http.get("v1/config", params={"warehouse": "no such lake"})) == (404, "NotFoundException")
    assert error_of(http.get("v1/config", params={"warehouse": "namespaces"})) == (400, "BadRequestException")


def test_schemas_and_tables_are_listed_and_looked_up(service: Service, lake: Lake, http: httpx.Client) -> None:
    lake.create_schema("sales")
    lake.create_table("sales.orders", {"id": "INTEGER"})
    lake.create_view("sales.v", "SELECT 1 AS x")
    name = service.add(lake)
    assert http.get(f"v1/{name}/namespaces").json()["namespaces"] == [["main"], ["sales"]]
    assert http.get(f"v1/{name}/namespaces/sales").json()["namespace"] == ["sales"]
    tables = http.get(f"v1/{name}/namespaces/sales/tables").json()["identifiers"]
    assert tables == [{"namespace": ["sales"], "name": "orders"}]
    assert http.head(f"v1/{name}/namespaces/sales").status_code == 204
    assert http.head(f"v1/{name}/namespaces/sales/tables/orders").status_code == 204
    assert http.head(f"v1/{name}/namespaces/sales/tables/v").status_code == 404
    assert http.head(f"v1/{name}/namespaces/other").status_code == 404
    for path, kind in (
        ("namespaces/other", "NoSuchNamespaceException"),
        ("namespaces/other/tables", "NoSuchNamespaceException"),
        ("namespaces/sales/tables/none", "NoSuchTableException"),
        ("namespaces/sales/tables/orders/more", "NotFoundException"),
        ("nothing", "NotFoundException"),
    ):
        assert error_of(http.get(f"v1/{name}/{path}")) == (404, kind), path


def test_lists_come_in_pages_when_asked_for(service: Service, lake: Lake, http: httpx.Client) -> None:
    names = sorted(f"t{number}" for number in range(7))
    with lake.transaction() as tx:
        for table in names:
            tx.create_table(table, {"id": "INTEGER"})
    lake_name = service.add(lake)
    path, found, token, pages = f"v1/{lake_name}/namespaces/main/tables", [], "", 0
    while token is not None:
        page = http.get(path, params={"pageToken": token, "pageSize": 3}).json()
        found += [each["name"] for each in page["identifiers"]]
        token, pages = page["next-page-token"], pages + 1
    assert (found, pages) == (names, 3)
    assert error_of(http.get(path, params={"pageToken": "", "pageSize": "0"})) == (400, "BadRequestException")
    assert error_of(http.get(path, params={"pageToken": "%%%"})) == (400, "BadRequestException")
    assert [table[1] for table in pyiceberg_reader(service, lake_name).list_tables("main")] == names


ODD = ("a b", "a/b", "a%2Fb", "..", "ünï", 'q"uote', "dot.dot", "#?&=", "'; DROP TABLE x; --", "tab\tle")


def test_odd_names_are_served_as_they_are(service: Service, lake: Lake, http: httpx.Client) -> None:
    for number, odd in enumerate(ODD):
        with lake.transaction() as tx:
            quoted = odd.replace('"', '""')
            tx.create_table(f'"{quoted}"', {"id": "INTEGER"})
            tx.table(f'"{quoted}"').append([{"id": number}])
    name = service.add(lake, "a lake: 100% ünï")
    prefix = http.get("v1/config", params={"warehouse": name}).json()["overrides"]["prefix"]
    for number, odd in enumerate(ODD):
        answer = http.get(f"v1/{prefix}/namespaces/main/tables/{quote(odd, safe='')}")
        assert answer.status_code == 200, (odd, answer.text)
        found = pyiceberg_reader(service, name).load_table(("main", odd)).scan().to_arrow() if odd.isalnum() else None
        assert found is None or rows_of(found) == [f"({number},)"]


def test_paths_cannot_leave_the_catalog(service: Service, lake: Lake, http: httpx.Client) -> None:
    name = service.add(lake)
    for path in ("%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "a" * 5000, "%1f", "main%1Fmain", "'"):
        for place in (
            f"v1/{name}/namespaces/{path}/tables/x",
            f"v1/{name}/namespaces/main/tables/{path}",
            f"v1/{path}/namespaces",
        ):
            answer = http.get(place)
            assert answer.status_code in (400, 404), (place, answer.status_code)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_every_write_is_refused_as_read_only(service: Service, lake: Lake, http: httpx.Client, method: str) -> None:
    lake.create_table("t", {"id": "INTEGER"})
    name = service.add(lake)
    before = lake.current_snapshot()
    for path in (
        "namespaces",
        "namespaces/main",
        "namespaces/main/tables",
        "namespaces/main/tables/t",
        "namespaces/main/tables/t/metrics",
    ):
        answer = http.request(method, f"v1/{name}/{path}", content=b"{" * 100_000)
        assert error_of(answer) == (406, "UnsupportedOperationException")
        assert "read-only" in answer.json()["error"]["message"]
    assert lake.current_snapshot() == before


def test_only_a_token_lets_anyone_in(service: Service, lake: Lake) -> None:
    lake.create_table("t", {"id": "INTEGER"})
    name = service.add(lake)
    paths = (
        "config",
        f"config?warehouse={name}",
        f"{name}/namespaces",
        f"{name}/namespaces/main",
        f"{name}/namespaces/main/tables/t",
        "namespaces",
        "x",
        "other/namespaces",
    )
    for token in (None, "Bearer None", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN} x"):
        headers = {} if token is None else {"Authorization": token}
        with httpx.Client(base_url=f"{service.url}/", headers=headers) as client:
            for path in paths:
                answer = client.get(f"v1/{path}")
                assert error_of(answer) == (401, "NotAuthorizedException"), (token, path)
                assert answer.headers["www-authenticate"] == "Bearer"
            assert client.delete(f"v1/{name}/namespaces/main/tables/t").status_code == 401


def test_client_credentials_give_the_token_back(service: Service, lake: Lake, http: httpx.Client) -> None:
    service.add(lake)
    form = {"grant_type": "client_credentials", "client_id": "me", "client_secret": TOKEN, "scope": "catalog"}
    assert http.post("v1/oauth/tokens", data=form).json()["access_token"] == TOKEN
    basic = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    answer = http.post(
        "v1/oauth/tokens", data={"grant_type": "client_credentials"}, headers={"Authorization": f"Basic {basic}"}
    )
    assert (answer.status_code, answer.json()["access_token"]) == (200, TOKEN)
    wrong = http.post("v1/oauth/tokens", data={**form, "client_secret": "wrong"})
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    assert http.post("v1/oauth/tokens", data={**form, "grant_type": "password"}).status_code == 400
    assert http.post("v1/oauth/tokens", content=b"x" * 100_000).status_code == 400


def test_pyiceberg_signs_in_with_client_credentials(service: Service, lake: Lake) -> None:
    lake.create_table("t", {"id": "INTEGER"})
    name = service.add(lake)
    uri = f"{service.url}/v1/oauth/tokens"
    properties = {"type": "rest", "uri": service.url, "warehouse": name}
    catalog = load_catalog(name, **properties, **{"credential": f"me:{TOKEN}", "oauth2-server-uri": uri})
    assert catalog.list_tables("main") == [("main", "t")]


def test_a_table_that_did_not_change_is_not_sent_again(service: Service, lake: Lake, http: httpx.Client) -> None:
    lake.create_table("t", {"id": "INTEGER"})
    path = f"v1/{service.add(lake)}/namespaces/main/tables/t"
    first = http.get(path)
    again = http.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    lake.table("t").append([{"id": 1}])
    changed = http.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200
    assert len(http.get(path, params={"snapshots": "refs"}).json()["metadata"]["snapshots"]) == 1
    assert len(changed.json()["metadata"]["snapshots"]) == 2


def test_lakes_do_not_see_each_other(service: Service, tmp_path: Path, http: httpx.Client) -> None:
    names = []
    for number in range(2):
        lake = quacklake.connect(f"sqlite:///{tmp_path}/{number}.db", tmp_path / f"data{number}", create=True)
        lake.create_table(f"own{number}", {"id": "INTEGER"})
        lake.table(f"own{number}").append([{"id": number}])
        names.append(service.add(lake))
    for number, name in enumerate(names):
        listed = http.get(f"v1/{name}/namespaces/main/tables").json()["identifiers"]
        assert [each["name"] for each in listed] == [f"own{number}"]
        text = http.get(f"v1/{name}/namespaces/main/tables/own{number}").text
        assert f"data{number}" in text and f"data{1 - number}" not in text
        assert http.get(f"v1/{name}/namespaces/main/tables/own{1 - number}").status_code == 404
        service.gate.lakes.pop(name).close()


def test_a_restricted_table_is_not_served(service: Service, lake: Lake, http: httpx.Client) -> None:
    for name in ("open", "hidden", "filtered", "masked"):
        lake.create_table(name, {"id": "INTEGER"})
    lake.access.create_user("ann")
    for name in ("open", "filtered", "masked"):
        lake.access.grant("SELECT", "ann", table=name)
    lake.access.create_policy("some", "filtered", "id > 3")
    lake.access.create_mask("masked", "id", "0")
    name = service.add(lake.as_principal("ann"))
    listed = http.get(f"v1/{name}/namespaces/main/tables").json()["identifiers"]
    assert [each["name"] for each in listed] == ["open"]
    for restricted in ("filtered", "masked"):
        assert error_of(http.get(f"v1/{name}/namespaces/main/tables/{restricted}")) == (403, "ForbiddenException")
        assert http.head(f"v1/{name}/namespaces/main/tables/{restricted}").status_code == 403
    assert http.get(f"v1/{name}/namespaces/main/tables/hidden").status_code == 404
    assert http.get(f"v1/{name}/namespaces/main/tables/open").status_code == 200


def test_a_table_whose_files_hold_hidden_columns_of_the_past_is_not_served(
    service: Service, lake: Lake, http: httpx.Client
) -> None:
    lake.access.create_user("ann")
    lake.access.create_user("rea", ["reader"])
    for name in ("some_columns", "masked", "replaced"):
        lake.create_table(name, {"id": "INTEGER", "secret": "VARCHAR"})
        lake.table(name).append([{"id": 1, "secret": "CANARY"}] * 20)
    lake.access.grant("SELECT", "ann", table="some_columns", columns=["id"])
    lake.access.create_mask("masked", "secret", "'…'")
    lake.access.create_policy("none", "replaced", "false")
    for name in ("some_columns", "masked"):
        lake.table(name).drop_column("secret")
    lake.rename_table("replaced", "renamed")
    lake.create_table("renamed", {"id": "INTEGER"}, replace=True)
    for user, tables in (("ann", ["some_columns"]), ("rea", ["masked", "renamed"])):
        name = service.add(lake.as_principal(user))
        listed = [each["name"] for each in http.get(f"v1/{name}/namespaces/main/tables").json()["identifiers"]]
        for table in tables:
            assert table not in listed
            answer = http.get(f"v1/{name}/namespaces/main/tables/{table}")
            assert error_of(answer) == (403, "ForbiddenException")
            assert "parquet" not in answer.text and "CANARY" not in answer.text


@pytest.mark.parametrize("error", [CatalogUnavailableError, StorageUnavailableError, PathError, CatalogError])
def test_an_error_inside_tells_no_place_and_no_secret(
    error: type[QuacklakeError], caplog: pytest.LogCaptureFixture
) -> None:
    failure = failure_of(error("postgresql://ann:hunter2@db.example/lake and /srv/lake/x failed", hint="/etc/lake"))
    assert failure.status in (500, 503)
    assert not any(word in failure.message for word in ("ann", "hunter2", "db.example", "/srv", "/etc"))
    assert error.code in failure.message
    assert "/srv/lake/x" in caplog.text and "hunter2" not in caplog.text


@pytest.mark.concurrency
def test_requests_at_once_make_each_file_once_and_agree(service: Service, lake: Lake, tmp_path: Path) -> None:
    lake.create_table("t", {"id": "INTEGER"})
    lake.table("t").append([{"id": number} for number in range(50)])
    lake.table("t").delete("id % 5 = 0")
    name = service.add(lake)
    answers: list[Any] = []

    def ask() -> None:
        with httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            answers.append(client.get(f"{service.url}/v1/{name}/namespaces/main/tables/t").json())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8 and all(answer == answers[0] for answer in answers)
    made = [path for path in (Path(lake.data_path, "iceberg.cache")).rglob("*") if path.suffix in (".avro", ".puffin")]
    used = {snapshot["manifest-list"] for snapshot in answers[0]["metadata"]["snapshots"]}
    assert used <= {str(path) for path in made}
    assert len(made) == len({path.read_bytes() for path in made})


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(quacklake.errors.ConfigError):
        IcebergSettings(format_version=1)
    with pytest.raises(quacklake.errors.ConfigError):
        IcebergSettings(cache_bytes=0)


def test_a_missing_package_is_one_sentence() -> None:
    program = "import sys; sys.modules['fastapi'] = None\nimport quacklake.service.iceberg"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "MissingExtraError: the Iceberg catalog needs the package fastapi" in ended.stderr
    assert "quacklake[service]" in ended.stderr
