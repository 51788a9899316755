"""Statistics, partitions, files, differences, tags, materialized views and care over HTTP."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from quacklake.core.duckdb_versions import first_row
from tests.seeds import SEED
from tests.service.serving import Served, is_problem, sample_lake, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    lake = sample_lake(tmp_path_factory.mktemp("layout"))
    lake.create_table("p", {"k": "INTEGER", "day": "DATE", "x": "DOUBLE"}, partition_by=["k", "month(day)"])
    lake.sql(
        "INSERT INTO p SELECT CASE WHEN i % 4 = 3 THEN NULL ELSE i % 4 END, DATE '2026-01-01' + (i % 60)::INTEGER, i / 2"
        " FROM range(400) r(i)"
    )
    lake.table("p").append([{"k": 9, "day": None, "x": 1000.5}])  # inlined
    lake.create_materialized_view("totals", "SELECT k, count(*) AS n FROM p GROUP BY k")
    lake.table("p").append([{"k": 10, "day": None, "x": None}])
    with served(lake) as found:
        yield found


def get(service: Served, path: str, /, **params: Any) -> Any:
    answer = service.admin.get(f"/api/v1{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def job(service: Served, path: str, **params: Any) -> dict[str, Any]:
    answer = service.admin.post(f"/api/v1{path}", params=params)
    assert answer.status_code == 202, answer.text
    until = time.monotonic() + 30
    while True:
        found: dict[str, Any] = get(service, f"/jobs/{answer.json()['id']}")
        if found["state"] in ("done", "failed"):
            return found
        assert time.monotonic() < until


def test_statistics_are_those_of_the_rows(service: Served) -> None:
    found = {column["name"]: column for column in get(service, "/tables/p/statistics")["columns"]}
    rows = service.lake.table("p").to_arrow()
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        for name, shown in (("k", int), ("day", str), ("x", float)):
            row = first_row(connection, f"SELECT min({name}), max({name}), count(*) - count({name}) FROM rows")
            assert row is not None
            known = found[name]
            assert (known["min"], known["max"], known["nulls"]) == (shown(row[0]), shown(row[1]), row[2])
    assert found["k"]["exact"] and not found["x"]["exact"]
    assert rows.num_rows == get(service, "/tables/p/statistics")["rows"]


def test_statistics_of_a_past_snapshot_and_of_deleted_rows_are_bounds(service: Served) -> None:
    then = {column["name"]: column for column in get(service, "/tables/t/statistics", version=2)["columns"]}
    assert (then["id"]["min"], then["id"]["max"], then["id"]["exact"]) == (0, 99, True)
    now = {column["name"]: column for column in get(service, "/tables/t/statistics")["columns"]}
    assert now["id"]["max"] >= 89 and not now["id"]["exact"]


def test_partitions_have_every_file_once_and_come_in_pages(service: Served) -> None:
    found, cursor = [], None
    while True:
        page = get(service, "/tables/p/partitions", limit=2, **({} if cursor is None else {"cursor": cursor}))
        assert page["keys"] == ["k", "month(day)"]
        found += page["partitions"]
        cursor = page["next"]
        if cursor is None:
            break
    expected = service.lake.sql(
        "SELECT k::VARCHAR, month(day)::VARCHAR, count(*) FROM p WHERE k IS DISTINCT FROM 9 AND k IS DISTINCT FROM 10 GROUP BY ALL"
    ).fetchall()
    assert sorted(((*each["values"], each["rows"]) for each in found), key=str) == sorted(expected, key=str)
    assert sum(each["files"] for each in found) == len(service.admin.get("/api/v1/tables/p/files").json()["files"])
    assert len({tuple(each["values"]) for each in found}) == len(found)


@pytest.mark.parametrize("cursor", ["x", "e30=", "WzFd", "W251bGxd", "é"])
def test_a_cursor_of_partitions_that_was_made_up_is_refused(service: Served, cursor: str) -> None:
    is_problem(service.reader.get("/api/v1/tables/p/partitions", params={"cursor": cursor}), 400, "input")


def test_files_have_their_deletes_partitions_and_times(service: Served) -> None:
    [file] = get(service, "/tables/t/files")["files"]
    assert (file["record_count"], file["deleted_rows"], file["partition"]) == (100, 10, [])
    added = service.lake.snapshots().filter(pc_equal("snapshot_id", file["begin_snapshot"])).column("snapshot_time")[0]
    assert file["added"] == str(added.as_py())
    first = get(service, "/tables/p/files", limit=3)
    rest = get(service, "/tables/p/files", after=first["next"])
    assert first["keys"] == ["k", "month(day)"] and rest["next"] is None
    ids = [each["data_file_id"] for each in first["files"] + rest["files"]]
    assert ids == sorted(set(ids)) and len(ids) == service.lake.table("p").files().num_rows


def pc_equal(name: str, value: Any) -> Any:
    import pyarrow.compute as pc

    return pc.equal(pc.field(name), value)


def test_the_difference_of_two_snapshots_is_what_was_done_between_them(tmp_path: Path) -> None:
    lake = sample_lake(tmp_path)
    rng = random.Random(SEED)
    with served(lake) as found:
        first = lake.current_snapshot()
        expected = {"inserted": 0, "updated": 0, "deleted": 0}
        for number in range(6):
            kind = rng.choice(sorted(expected))
            if kind == "inserted":
                amount = lake.table("t").append([{"id": 1000 + number, "name": "x"}] * rng.randint(1, 5))
            elif kind == "updated":
                amount = lake.table("t").update({"name": f"u{number}"}, f"id % 7 = {number}")
            else:
                amount = lake.table("t").delete(f"id = {80 + number}") or 0
            expected[kind] += amount
        lake.table("t").add_column("more", "INTEGER", 7)
        lake.table("t").rename_column("name", "title")
        lake.create_table("fresh", {"a": "INTEGER"})
        lake.table("fresh").append([{"a": 1}, {"a": 2}])
        lake.create_view("v", "SELECT 1 AS one")
        answer = found.reader.get("/api/v1/diff", params={"from": first}).json()
        assert answer["complete"] and answer["views"] == {"created": ["main.v"], "dropped": []}
        by_name = {table["table"]: table for table in answer["tables"]}
        assert by_name["main.t"]["rows"] == expected
        assert by_name["main.t"]["columns"] == [
            {"column": "title", "change": "altered", "name": ["name", "title"]},
            {"column": "more", "change": "added", "type": "INTEGER"},
        ]
        assert by_name["main.fresh"] == {
            "table": "main.fresh", "change": "created", "columns": [],
            "rows": {"inserted": 2, "updated": 0, "deleted": 0},
        }  # fmt: skip
        one = found.reader.get("/api/v1/snapshots/3/changes").json()
        assert [(t["table"], t["rows"]["deleted"]) for t in one["tables"]] == [("main.t", 10)]
        same = found.reader.get("/api/v1/diff", params={"from": 3, "to": 3}).json()
        assert same["tables"] == []
        lake.drop_table("fresh")
        gone = found.reader.get("/api/v1/diff", params={"from": lake.current_snapshot() - 1}).json()
        assert [(t["table"], t["change"]) for t in gone["tables"]] == [("main.fresh", "dropped")]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/diff", 422),
        ("/diff?from=3&to=2", 400),
        ("/diff?from=999", 400),
        ("/diff?from=1&to=999", 404),
        ("/snapshots/999/changes", 404),
        ("/tables/no/statistics", 404),
        ("/tables/no/partitions", 404),
        ("/tables/no/files", 404),
        ("/materialized-views/p", 404),
        ("/materialized-views/totals?version=999", 404),
    ],
)
def test_what_cannot_be_answered_is_told(service: Served, path: str, status: int) -> None:
    assert service.admin.get(f"/api/v1{path}").status_code == status


def test_counting_stops_at_its_limit_and_says_so(tmp_path: Path) -> None:
    lake = sample_lake(tmp_path)
    lake.create_table("u", {"a": "INTEGER"})
    lake.table("u").append([{"a": 1}])
    with served(lake, max_counted_tables=1) as found:
        answer = found.reader.get("/api/v1/diff", params={"from": 0}).json()
    assert not answer["complete"] and [table["rows"] is None for table in answer["tables"]] == [False, True]


def test_tags_are_set_by_administrators_and_read_by_all(service: Served) -> None:
    body = {"name": "before", "version": 2}
    is_problem(service.writer.post("/api/v1/tags", json=body), 403, "not_permitted")
    assert service.admin.post("/api/v1/tags", json=body).json() == {"tag": "before", "snapshot": 2}
    is_problem(service.admin.post("/api/v1/tags", json=body), 409, "already_exists")
    assert [(tag["tag"], tag["snapshot_id"]) for tag in get(service, "/tags")["tags"]] == [("before", 2)]
    assert service.admin.delete("/api/v1/tags/before").status_code == 204
    assert get(service, "/tags")["tags"] == []
    is_problem(service.admin.delete("/api/v1/tags/before"), 404, "not_found")


def test_a_materialized_view_tells_its_lag_and_is_refreshed_and_proved_by_jobs(service: Served) -> None:
    [listed] = get(service, "/materialized-views")["materialized_views"]
    assert (listed["name"], listed["bases"], listed["lag"] > 0) == ("main.totals", ["main.p"], True)
    described = get(service, "/materialized-views/totals")
    assert (described["lag_rows"], "FROM main.p" in described["query"], described["way"]) == (1, True, "groups")
    is_problem(service.writer.post("/api/v1/materialized-views/totals/refresh"), 403, "not_permitted")
    is_problem(service.admin.post("/api/v1/materialized-views/none/refresh"), 404, "not_found")
    before = service.lake.current_snapshot()
    assert job(service, "/materialized-views/totals/refresh", dry_run=True)["result"]["way"] != "none"
    assert service.lake.current_snapshot() == before
    assert job(service, "/materialized-views/totals/refresh")["state"] == "done"
    assert get(service, "/materialized-views/totals")["lag_rows"] == 0
    proof = job(service, "/materialized-views/totals/verify")["result"]
    assert (proof["ok"], proof["missing"], proof["unexpected"]) == (True, 0, 0)
    assert get(service, "/materialized-views/totals", version=before)["snapshot"] < before


def test_care_tells_what_is_due_and_jobs_do_it(tmp_path: Path) -> None:
    lake = sample_lake(tmp_path)
    for number in range(3):
        lake.table("t").append([{"id": number, "name": "n"}])
    with served(lake) as found:
        [table] = found.reader.get("/api/v1/care").json()["tables"]
        assert (table["table"], table["inlined_rows"], table["files"]) == ("main.t", 3, 1)
        answer = found.admin.post("/api/v1/jobs", json={"kind": "flush", "arguments": {"table": "t"}})
        until = time.monotonic() + 30
        while found.admin.get(f"/api/v1/jobs/{answer.json()['id']}").json()["state"] != "done":
            assert time.monotonic() < until
        [table] = found.reader.get("/api/v1/care").json()["tables"]
        assert (table["inlined_rows"], table["small_files"]) == (0, 2)


def test_care_tells_by_how_much_the_files_have_grown(tmp_path: Path) -> None:
    lake = sample_lake(tmp_path)
    with served(lake) as found:

        def grown() -> int:
            growth = found.reader.get("/api/v1/care").json()["growth"]
            assert 0 <= growth["seconds"] < 600, "the lake is younger than a day"
            return int(growth["bytes"])

        def stored() -> int:
            return sum(sum(lake.table(each).files().column("file_size_bytes").to_pylist()) for each in lake.tables())

        assert grown() == stored() > 0, "all of a new lake is growth"
        lake.sql("CREATE TABLE more AS SELECT range AS id FROM range(5000)")
        assert grown() == stored()
        lake.sql("DROP TABLE more")
        assert grown() == stored()
        lake.expire_snapshots(keep_last=1)
        assert grown() == 0, "there is nothing left to compare with"


def test_care_counts_inlined_rows_that_are_there(tmp_path: Path) -> None:
    lake = sample_lake(tmp_path)
    lake.create_table("few", {"id": "BIGINT"})
    rng, expected = random.Random(SEED), set[int]()
    with served(lake) as found:
        for number in range(8):
            lake.table("few").append([{"id": number}])
            expected.add(number)
            if rng.random() < 0.5:
                gone = rng.choice(sorted(expected))
                lake.table("few").delete(f"id = {gone}")
                expected.remove(gone)
            if rng.random() < 0.3:
                lake.table("few").update({"id": 100 + number}, f"id = {number}")
                expected = {100 + number if each == number else each for each in expected}
            [table] = [
                each for each in found.reader.get("/api/v1/care").json()["tables"] if each["table"] == "main.few"
            ]
            assert table["inlined_rows"] == len(expected) == lake.table("few").count()


def test_lakes_are_those_of_the_token(service: Served) -> None:
    [lake] = get(service, "/lakes")["lakes"]
    assert (lake["name"], lake["role"], lake["tenant"]) == ("lake", "admin", None)
    is_problem(service.admin.get("/api/v1/lakes?lake=other"), 404, "not_found")
    is_problem(service.anonymous.get("/api/v1/lakes"), 401, "unauthenticated")
