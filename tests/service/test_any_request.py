"""Requests made from the description of the API: whatever comes, no answer is an error of the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from quacklake.service.app import create_app
from quacklake.service.identity import TokenGate
from tests.service.serving import TOKENS, Served, sample_lake, served

EXAMPLES = 12


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    lake = sample_lake(tmp_path_factory.mktemp("any"))
    with served(lake, statement_seconds=2) as found:
        yield found


def _operations() -> list[str]:
    app = create_app(TokenGate(None, TOKENS))  # type: ignore[arg-type]  # nothing of it is used
    return [f"{method.upper()} {path}" for path, item in app.openapi()["paths"].items() for method in item]


@pytest.mark.parametrize("operation", _operations())
def test_no_request_of_the_description_is_answered_with_an_error_of_ours(service: Served, operation: str) -> None:
    description = schemathesis.openapi.from_dict(service.reader.get("/api/v1/openapi.json").json())
    description.config.update(base_url=service.url)
    method, path = operation.split(" ")
    strategy = description[path][method].as_strategy()
    answered: list[int] = []

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(case=strategy, token=st.sampled_from(["reader-token", "writer-token", "admin-token", None]))
    def ask(case: schemathesis.Case, token: str | None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if "events" in path:
            return
        answer = case.call(headers=headers, timeout=30)
        answered.append(answer.status_code)
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            assert answer.headers["content-type"][0] == "application/problem+json", answer.text

    ask()
    assert answered or "events" in path
