"""The page of the HTTP API: every operation is on it, with an example that runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.api import EXAMPLES, PAGE, Ran, page, run_all, running


@pytest.fixture(scope="module")
def ran() -> Iterator[tuple[dict[str, Any], dict[str, Ran]]]:
    with running() as client:
        description = client.get("/api/v1/openapi.json").json()
        yield description, run_all(client, description)


def test_the_page_is_what_the_service_answers_now(ran: tuple[dict[str, Any], dict[str, Ran]]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(*ran), "run python -m tests.docs.api"


def test_every_operation_has_one_example_and_it_succeeds(ran: tuple[dict[str, Any], dict[str, Ran]]) -> None:
    description, answers = ran
    operations = Counter(each["operationId"] for path in description["paths"].values() for each in path.values())
    assert operations == Counter(example.operation for example in EXAMPLES)
    refused = {name: answer.status for name, answer in answers.items() if answer.status >= 300}
    assert refused == {"cancel_statement": 404}


def test_the_description_asks_for_a_token_and_tells_of_errors(ran: tuple[dict[str, Any], dict[str, Ran]]) -> None:
    description, _ = ran
    assert description["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for methods in description["paths"].values():
        for operation in methods.values():
            is_open = operation["operationId"] in ("live", "ready")
            assert operation["security"] == ([] if is_open else [{"token": []}])
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            assert operation["summary"] and operation["description"]
