"""OpenTelemetry, as an extra: a span per request, with the events of its work in it. Which exporter sends them where is
the business of OpenTelemetry's own settings."""

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
    """Makes spans. As a hook, it adds each event to the span in which it happened."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("solely.service", tracer_provider=provider)

    def __call__(self, event: Event, /) -> None:
        span = trace.get_current_span()
        if span.is_recording():
            kind, _, name = event.key.partition("/")
            span.add_event(f"solely.{word(type(event))}", {"solely.kind": kind, "solely.key": name})

    @contextmanager
    def span(self, scope: Mapping[str, Any]) -> Iterator[trace.Span]:
        """The span of a request, under the one that its headers name."""
        carrier = {str(name, "latin-1"): str(value, "latin-1") for name, value in scope["headers"]}
        with self._tracer.start_as_current_span(
            scope["method"],
            context=propagate.extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes={"http.request.method": scope["method"]},
        ) as span:
            yield span

    @staticmethod
    def answered(span: trace.Span, method: str, route: str, status: int) -> None:
        """The request was answered."""
        span.update_name(f"{method} {route}")
        span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= 500:
            span.set_status(trace.StatusCode.ERROR)
