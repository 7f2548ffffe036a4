"""OpenTelemetry, an optional extra: a span per request, with the library's events in it. The exporter is configured by
OpenTelemetry's own settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..errors import missing_extra
from ..events import Event
from .feed import word

try:
    from opentelemetry import propagate, trace
except ImportError as error:  # pragma: no cover - the tests install it
    raise missing_extra("telemetry", error.name, "otel") from error


class Telemetry:
    """Creates spans. As a hook, it adds each event to the current span."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("solely.service", tracer_provider=provider)

    def __call__(self, event: Event, /) -> None:
        span = trace.get_current_span()
        if span.is_recording():
            kind, _, name = event.key.partition("/")
            span.add_event(f"solely.{word(type(event))}", {"solely.kind": kind, "solely.key": name})

    @contextmanager
    def span(self, scope: Mapping[str, Any]) -> Iterator[trace.Span]:
        """The span of a request; its parent is the one that the headers name."""
        carrier = {str(name, "latin-1"): str(value, "latin-1") for name, value in scope["headers"]}
        with self._tracer.start_as_current_span(
            scope["method"],
            context=propagate.extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes={"http.request.method": scope["method"]},
        ) as span:
            yield span

    @staticmethod
    def handled(span: trace.Span, method: str, route: str, status: int) -> None:
        """Adds the route and the status to the span of a request."""
        span.update_name(f"{method} {route}")
        span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= 500:
            span.set_status(trace.StatusCode.ERROR)
