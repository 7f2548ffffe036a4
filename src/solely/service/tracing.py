"""Spans of an application's own work, under the span of the request. Without telemetry there are none, and
OpenTelemetry is not imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry import trace


class Tracing:
    """Creates spans with this tracer; none without one."""

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = tracer

    @classmethod
    def on(cls, name: str, provider: trace.TracerProvider | None = None) -> Tracing:
        """Tracing under this name through the provider, or through the one that OpenTelemetry's settings configure."""
        from opentelemetry import trace  # an extra

        return cls(trace.get_tracer(name, tracer_provider=provider))

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, str] | None = None, link: str = "") -> Iterator[None]:
        """A span for as long as the context lasts, linked to the trace of `link` if that is a valid traceparent."""
        if self._tracer is None:
            yield
            return
        with self._tracer.start_as_current_span(name, attributes=attributes, links=_links(link)):
            yield

    def current(self) -> str:
        """The traceparent of the current span, to be kept with work that goes on elsewhere; "" without telemetry."""
        if self._tracer is None:
            return ""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return carrier.get("traceparent", "")


def _links(traceparent: str) -> list[trace.Link]:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
    original = trace.get_current_span(context).get_span_context() if context else None
    return [trace.Link(original)] if original is not None and original.is_valid else []
