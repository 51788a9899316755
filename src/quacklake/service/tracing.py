"""Traces of the service by OpenTelemetry: requests, statements, commits and maintenance. Off unless it is configured.

Spans have the route of a request, never its path, its query or a header, and never the text of a statement.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from starlette.types import Scope

from quacklake import telemetry
from quacklake.errors import MissingExtraError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["Tracing", "configured"]

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_STEPS = ("sql", "commit", "lake.open", "materialized.refresh")
"""The steps that are spans, besides those of maintenance. Steps that end in another thread cannot be any."""


class Tracing:
    """Makes spans of requests and of what is done for them. ``close`` sends those that are left."""

    def __init__(self, provider: TracerProvider, close: Callable[[], object] = lambda: None) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("quacklake")
        self._callers = TraceContextTextMapPropagator()
        self._close = close
        telemetry.trace(self.step)

    def step(self, name: str) -> AbstractContextManager[object]:
        """Return the span of a step, or nothing for one that is not traced."""
        if name in _STEPS or name.startswith("maintenance."):
            return self._tracer.start_as_current_span(name)
        return nullcontext()

    @contextmanager
    def request(self, scope: Scope, told: Callable[[], dict[str, Any]]) -> Iterator[None]:
        """Open the span of a request for a block. ``told`` says in the end what is known of it."""
        from opentelemetry.trace import SpanKind

        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"] if name in _CALLER}
        caller = self._callers.extract(given)
        method = scope["method"]
        with self._tracer.start_as_current_span(method, context=caller, kind=SpanKind.SERVER) as span:
            try:
                yield
            finally:
                known = told()
                span.update_name(f"{method} {known['route']}")
                attributes = {
                    "http.request.method": method,
                    "http.route": known["route"],
                    "http.response.status_code": known["status"],
                    "quacklake.request_id": known["request_id"],
                    "enduser.id": known["principal"],
                }
                span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def close(self) -> None:
        """End tracing, and send the spans that are left."""
        telemetry.trace(None)
        self._close()


_CALLER = (b"traceparent", b"tracestate")


def configured() -> Tracing | None:
    """Return the tracing that the environment asks for, by the variables of OpenTelemetry; None for none.

    Raise ``MissingExtraError`` when its packages are missing.
    """
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"tracing needs the package {error.name}", hint="pip install 'quacklake[otel]'"
        ) from None
    provider = TracerProvider(
        resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "quacklake")})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider, provider.shutdown)
