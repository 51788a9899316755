"""Tables, views, tags and consumers with any name are reached by every route that has names in its path."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from urllib.parse import quote, unquote

import pytest

from quacklake.core.format.names import quote as quoted
from quacklake.service.paths import divide, part_of
from tests.seeds import SEED
from tests.service.serving import Served, is_problem, sample_lake, served

_LETTERS = "aZ09_-./%?#&+;:=~!$'\"`\\|<>{}[]()*@^, \t\nüß日🦆\ue000\ue000sm\u2028"
_ODD = (
    "a/b",
    "..",
    "a%2Fb",
    "a%b",
    "x rows",
    "rows",
    "a/rows",
    "/",
    "%",
    'say "hi"',
    "\ue000s",
    "🦆/🦆",
    "a?b#c",
    "\n",
    "+ +",
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(sample_lake(tmp_path_factory.mktemp("names"))) as found:
        yield found


def _names(count: int) -> list[str]:
    rng = random.Random(SEED)
    made = {"".join(rng.choices(_LETTERS, k=rng.randint(1, 12))) for _ in range(count)}
    folded = {name.casefold(): name for name in sorted({*made, *_ODD})}
    return sorted(folded.values())


@pytest.mark.parametrize("number", range(50))
def test_a_path_is_divided_into_the_parts_that_were_sent(number: int) -> None:
    rng = random.Random(f"{SEED}-{number}")
    parts = ["".join(rng.choices(_LETTERS, k=rng.randint(1, 9))) for _ in range(rng.randint(1, 4))]
    sent = "/".join(quote(part, safe=rng.choice(["", "-_.~", ":@!$"])) for part in parts)
    scope = {"raw_path": sent.encode(), "path": unquote(sent)}
    divide(scope)
    assert [part_of(part) for part in str(scope["path"]).split("/")] == parts


def test_every_route_of_a_table_reaches_any_name(service: Served) -> None:
    names = random.Random(SEED).sample(_names(40), 8)
    names += [name for name in _ODD if name.casefold() not in {each.casefold() for each in names}]
    lake = service.lake
    lake.create_schema("od/d")
    with lake.transaction() as tx:
        for name in names:
            tx.create_table(f'"od/d".{quoted(name)}', {"ts": "TIMESTAMP", "n": "BIGINT"})
    for number, name in enumerate(names):
        path = "/api/v1/tables/" + quote(f'"od/d".{quoted(name)}', safe="")
        row = [{"ts": "2026-01-01T00:00:00", "n": number}]
        assert service.writer.post(f"{path}/rows", json=row).status_code == 201, name
        described = service.admin.get(path)
        assert (described.json()["name"], described.json()["rows"]) == (name, 1)
        assert service.admin.get(path, headers={"If-None-Match": described.headers["etag"]}).status_code == 304
        assert service.admin.get(f"{path}/rows").json()["rows"][0]["n"] == number
        routes = ("files", "history", "statistics", "partitions", "series", f"changes?since={lake.current_snapshot()}")
        for part in routes if number % 4 == 0 else routes[:1]:
            answer = service.admin.get(f"{path}/{part}")
            assert answer.status_code == 200, (name, part, answer.text)
        if number % 8 == 0:
            merged = service.writer.post(f"{path}/merge", params={"on": "n"}, json=row)
            assert merged.json()["updated"] == 1
    assert {name: lake.table(f'"od/d".{quoted(name)}').count() for name in names} == dict.fromkeys(names, 1)


def test_tags_and_consumers_have_any_name(service: Served) -> None:
    for name in ("a/b", "x y", "100%", "ü/🦆"):
        part = quote(name, safe="")
        claim = service.reader.post(f"/api/v1/consumers/{part}/claim", json={"table": "t", "since": 1})
        assert claim.status_code == 200
        lease = {"lease": claim.json()["lease"]}
        assert service.reader.get(f"/api/v1/consumers/{part}/changes", params=lease).status_code == 200
        assert service.reader.delete(f"/api/v1/consumers/{part}").status_code == 204
        is_problem(service.admin.get(f"/api/v1/pipelines/{part}"), 404, "not_found")
        is_problem(service.admin.get(f"/api/v1/materialized-views/{quote(quoted(name), safe='')}"), 404, "not_found")

    assert service.admin.post("/api/v1/tags", json={"name": "a/b", "version": 1}).status_code == 201
    assert service.admin.delete("/api/v1/tags/a%2Fb").status_code == 204


def test_an_encoded_slash_leads_to_no_other_route(service: Served) -> None:
    """A path that only looks like another after decoding is that of a table which is not there."""
    for path in ("t%2Frows", "t%2frows", "..%2Ftables%2Ft", "%2E%2E%2Flake", "t%2F..%2Frows"):
        answer = service.reader.get(f"/api/v1/tables/{path}")
        assert answer.status_code in (400, 404), (path, answer.text)
    assert service.reader.get("/api/v1%2Ftables/t").status_code == 404
    is_problem(service.anonymous.get("/api/v1/tables/a%2Fb"), 401, "unauthenticated")


def test_a_name_cannot_forge_a_line_of_the_log(service: Served, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("quacklake").propagate = True  # commands that ran before have turned it off
    with caplog.at_level(logging.INFO, "quacklake.service"):
        service.reader.get("/api/v1/tables/a%0A2026%20INFO%20forged%E2%80%A8x")
        service.reader.get("/api/v1/lake")  # the line of a request follows its answer
    lines = [record.getMessage() for record in caplog.records if record.name == "quacklake.service"]
    assert any("%0A2026" in line for line in lines)
    assert not any(line != line.splitlines()[0] for line in lines if line)
