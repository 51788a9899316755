"""Schemas, tables, snapshots, pages of rows and changes over HTTP."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quacklake.service.encoding import ARROW, CSV, PARQUET
from tests.service.serving import Served, is_problem, sample_lake, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    lake = sample_lake(tmp_path_factory.mktemp("catalog"))
    lake.create_schema("s")
    lake.create_table(
        "s.odd name", {"Ä b": "INTEGER NOT NULL", "d": "DECIMAL(9,2)"}, primary_key="Ä b", partition_by=["Ä b"]
    )
    lake.create_view("v", "SELECT 1 AS one")
    lake.table("t").set_comment("numbers")
    with served(lake) as found:
        yield found


def get(service: Served, path: str, **params: object) -> dict[str, object]:
    answer = service.reader.get(f"/api/v1{path}", params=params)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_the_lake_and_the_principal_are_described(service: Served) -> None:
    found = get(service, "/lake")
    assert (found["role"], found["format_version"], found["snapshot"]) == (
        "reader",
        "1.0",
        service.lake.current_snapshot(),
    )


def test_schemas_tables_and_views_are_those_of_the_lake(service: Served) -> None:
    assert get(service, "/schemas")["schemas"] == service.lake.schemas()
    found = get(service, "/tables")
    assert (found["tables"], found["views"]) == (service.lake.tables(), ["main.v"])
    assert get(service, "/tables", schema="s")["tables"] == ["s.odd name"]
    assert get(service, "/tables", version=1)["tables"] == ["main.t"]
    assert get(service, "/tables", version=0)["tables"] == []


def test_a_table_is_described_with_its_columns_and_size(service: Served) -> None:
    found = get(service, "/tables/main.t")
    assert (found["rows"], found["comment"], found["name"]) == (90, "numbers", "t")
    assert [(c["name"], c["type"]) for c in found["columns"]] == [("id", "BIGINT"), ("name", "VARCHAR")]  # type: ignore[attr-defined]
    assert get(service, "/tables/t", version=2)["rows"] == 100
    odd = get(service, "/tables/s.odd name")
    assert odd["partitioned_by"] == ['"Ä b"'] or odd["partitioned_by"] == ["Ä b"]
    assert odd["columns"][0] | {"comment": None} == {  # type: ignore[index]
        "name": "Ä b", "type": "INTEGER", "nullable": False, "default": None, "primary_key": True, "comment": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "/tables/no",
        "/tables/no/rows",
        "/tables/no/history",
        "/tables/no/changes?since=0",
        "/snapshots/999",
        "/tables?version=999",
    ],
)
def test_what_is_not_there_is_not_found(service: Served, path: str) -> None:
    is_problem(service.reader.get(f"/api/v1{path}"), 404, "not_found")


def test_files_show_no_place_and_are_for_writers(service: Served) -> None:
    is_problem(service.reader.get("/api/v1/tables/t/files"), 403, "not_permitted")
    answer = service.writer.get("/api/v1/tables/t/files")
    [file] = answer.json()["files"]
    assert file["record_count"] == 100
    assert service.lake.data_path not in answer.text and not file["path"].startswith("/")


def test_files_are_for_writers_also_with_a_tag(service: Served) -> None:
    """A tag of another answer, and one of the time when the token had another role, open nothing."""
    path = "/api/v1/tables/t/files"
    other = service.reader.get("/api/v1/tables/t").headers["etag"]
    own = service.writer.get(path).headers["etag"]
    assert other != own
    for tag in (other, own, "*", f"{other}, {own}"):
        is_problem(service.reader.get(path, headers={"If-None-Match": tag}), 403, "not_permitted")
        is_problem(service.anonymous.get(path, headers={"If-None-Match": tag}), 401, "unauthenticated")
    is_problem(service.reader.get("/api/v1/tables/no", headers={"If-None-Match": other}), 404, "not_found")
    assert service.writer.get(path, headers={"If-None-Match": own}).status_code == 304


def test_a_list_of_snapshots_is_sent_again_when_some_have_expired(tmp_path: Path) -> None:
    lake = sample_lake(tmp_path)
    with served(lake) as found:
        for path in ("/api/v1/snapshots", "/api/v1/tables/t/history", "/api/v1/snapshots/3"):
            answer = found.reader.get(path)
            headers = {"If-None-Match": answer.headers["etag"]}
            assert found.reader.get(path, headers=headers).status_code == 304
            lake.expire_snapshots(versions=[int(lake.snapshots().column("snapshot_id")[0].as_py())])
            again = found.reader.get(path, headers=headers)
            assert (again.status_code, again.headers["etag"] == headers["If-None-Match"]) == (200, False), path


def test_history_and_snapshots_come_in_pages(service: Served) -> None:
    assert [row["snapshot_id"] for row in get(service, "/tables/t/history")["history"]][-3:] == [3, 2, 1]  # type: ignore[attr-defined]
    found, before = [], None
    while True:
        page = get(service, "/snapshots", limit=3, **({} if before is None else {"before": before}))
        found += [row["snapshot_id"] for row in page["snapshots"]]  # type: ignore[attr-defined]
        before = page["next"]
        if before is None:
            break
    assert found == sorted(service.lake.snapshots().column("snapshot_id").to_pylist(), reverse=True)
    one = get(service, "/snapshots/3")
    assert (one["operation"], one["tables"]) == ("DELETE", ["main.t"])


@pytest.mark.parametrize("limit", [13, 90, 1000])
def test_pages_have_every_row_of_one_snapshot_once(tmp_path: Path, limit: int) -> None:
    with served(sample_lake(tmp_path)) as found:
        rows, cursor = [], None
        while True:
            page = get(found, "/tables/t/rows", limit=limit, **({} if cursor is None else {"cursor": cursor}))
            rows += page["rows"]  # type: ignore[operator]
            if len(rows) in (limit, 2 * limit):
                found.lake.table("t").delete(f"id % 13 = {len(rows) % 13}")
                found.lake.table("t").append([{"id": 1000 + len(rows), "name": "late"}])
            cursor = page["next"]
            if cursor is None or len(rows) > 200:
                break
        assert sorted(row["id"] for row in rows) == list(range(90))


def test_pages_of_chosen_columns_in_other_formats(service: Served) -> None:
    answer = service.reader.get(
        "/api/v1/tables/t/rows", params={"columns": "name", "limit": 2}, headers={"Accept": ARROW}
    )
    assert pa.ipc.open_stream(answer.content).read_all().to_pydict() == {"name": ["n0", "n1"]}
    following = service.reader.get(
        "/api/v1/tables/t/rows",
        params={"cursor": answer.headers["X-Quacklake-Next"], "limit": 1},
        headers={"Accept": PARQUET},
    )
    assert pq.read_table(io.BytesIO(following.content)).to_pylist() == [{"id": 2, "name": "n2"}]
    text = service.reader.get(
        "/api/v1/tables/t/rows", params={"limit": 1, "columns": ["name", "id"]}, headers={"Accept": CSV}
    ).text
    assert text == '"name","id"\n"n0",0\n'


@pytest.mark.parametrize("cursor", ["x", "AAAA", "W10=", "WzEsMl0", "WyJhIiwxXQ==", "Wy0xLDBd", "é" * 10])
def test_a_cursor_that_was_made_up_is_refused(service: Served, cursor: str) -> None:
    answer = service.reader.get("/api/v1/tables/t/rows", params={"cursor": cursor})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "params",
    [
        {"limit": 0},
        {"limit": -1},
        {"columns": "nope"},
        {"columns": ["id", "ID"]},
        {"version": -1},
        {"version": 10**30},
        {"columns": "id; DROP TABLE t"},
    ],
)
def test_wrong_pages_are_refused(service: Served, params: dict[str, object]) -> None:
    assert 400 <= service.reader.get("/api/v1/tables/t/rows", params=params).status_code < 500  # type: ignore[arg-type]


def test_changes_are_those_of_the_lake(service: Served) -> None:
    answer = service.reader.get("/api/v1/tables/t/changes", params={"since": 3, "until": 3})
    assert answer.headers["X-Quacklake-Snapshot"] == "3"
    assert sorted(row["id"] for row in answer.json()["rows"]) == list(range(90, 100))
    assert {row["change_type"] for row in answer.json()["rows"]} == {"delete"}
    everything = service.reader.get("/api/v1/tables/t/changes", params={"since": 0}).json()
    assert everything["row_count"] == service.lake.table("t").changes(0).count()
    nothing = service.reader.get("/api/v1/tables/t/changes", params={"since": 10_000})
    assert nothing.json()["rows"] == []
    assert service.reader.get("/api/v1/tables/t/changes", params={"since": 3, "until": 1}).status_code == 400


@pytest.mark.parametrize("path", ["/tables", "/tables/t", "/tables/t/rows", "/snapshots", "/tables/t/changes?since=0"])
def test_an_answer_that_the_client_has_is_not_sent_again(tmp_path: Path, path: str) -> None:
    with served(sample_lake(tmp_path)) as found:
        first = found.reader.get(f"/api/v1{path}")
        tag = {"If-None-Match": f'"other", {first.headers["etag"]}'}
        assert found.reader.get(f"/api/v1{path}", headers=tag).status_code == 304
        assert found.writer.get(f"/api/v1{path}", headers=tag).status_code == 200, (
            "another principal may see other rows"
        )
        found.lake.table("t").append([{"id": 1, "name": "new"}])
        again = found.reader.get(f"/api/v1{path}", headers=tag)
        assert again.status_code == 200 and again.headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize("path", ["/lake", "/schemas", "/tables", "/tables/t", "/tables/t/files", "/tables/t/rows", "/tables/t/history",
                                  "/tables/t/changes?since=0", "/snapshots", "/snapshots/1", "/sql"])  # fmt: skip
def test_nothing_is_told_without_a_token(service: Served, path: str) -> None:
    is_problem(service.anonymous.get(f"/api/v1{path}"), 401, "unauthenticated")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/api/v1/tables/t?versoin=1", 'did you mean "version"?'),
        ("/api/v1/tables/t/rows?colums=id", 'did you mean "columns"?'),
        ("/api/v1/pond/series?path=/a&widht=3", 'did you mean "width"?'),
        ("/api/v1/snapshots?qqq=1", "this route takes: before, lake, limit"),
        ("/api/transactions/?netwroks=x", 'did you mean "networks"?'),
        ("/api/v1/lake?Lake=lake", 'did you mean "lake"?'),
    ],
)
def test_a_parameter_that_a_route_does_not_have_is_refused(service: Served, path: str, hint: str) -> None:
    answer = service.reader.get(path)
    assert answer.status_code == 400, answer.text
    assert answer.json()["detail"].startswith('there is no parameter "') and answer.json()["hint"] == hint


def test_every_route_of_the_api_refuses_unknown_parameters(service: Served) -> None:
    paths = service.reader.get("/api/v1/openapi.json").json()["paths"]
    asked = 0
    for path, operations in paths.items():
        if path.startswith("/health") or path == "/metrics":
            continue
        for method in operations:
            answer = service.admin.request(method, re.sub(r"\{\w+\}", "1", path), params={"no_such_parameter": 1})
            assert answer.status_code in (400, 422), (method, path, answer.status_code)
            asked += 1
    assert asked > 70
