"""Spans of an alert: reserve, publish, record; a suppressed alert has a span that links to the published one. Without
telemetry there are no spans, and OpenTelemetry is not imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .model import Alert

if TYPE_CHECKING:
    from opentelemetry import trace

# Characters of an alert's name in the purpose of its reservation, which has 200: the id takes 37 and the trace 56.
_NAME = 80
_TRACEPARENT = "00-"  # the prefix of a traceparent of version 00
_ID = re.compile(r"msg_[0-9a-f]{32}")


class Tracing:
    """Creates spans with this tracer; none without one."""

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = tracer

    @classmethod
    def on(cls, provider: trace.TracerProvider | None = None) -> Tracing:
        """Tracing through this provider, or through the one that OpenTelemetry's settings configure."""
        from opentelemetry import trace  # an extra

        return cls(trace.get_tracer("solely.alerts", tracer_provider=provider))

    @contextmanager
    def span(self, name: str, alert: Alert, link: str = "", **facts: str) -> Iterator[None]:
        """A span of this alert, linked to the trace of `link` if that is a valid traceparent."""
        if self._tracer is None:
            yield
            return
        attributes = {"solely.fingerprint": alert.fingerprint, "solely.severity": alert.severity, **facts}
        with self._tracer.start_as_current_span(f"alerts.{name}", attributes=attributes, links=_links(link)):
            yield

    def current(self) -> str:
        """The traceparent of the current span; "" without telemetry."""
        if self._tracer is None:
            return ""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return carrier.get("traceparent", "")


def purpose_of(alert: Alert, trace: str, id: str = "") -> str:
    """The purpose of this alert's reservation: the alert's name, the notification's id and the trace."""
    return " ".join(filter(None, (f"{alert.name:.{_NAME}}", id, trace)))


def trace_of(purpose: str) -> str:
    """The traceparent in the purpose of a reservation; "" if there is none."""
    last = purpose.rpartition(" ")[2]
    return last if last.startswith(_TRACEPARENT) else ""


def id_of(purpose: str) -> str:
    """The notification's id in the purpose of a reservation; "" if there is none."""
    id = purpose.removesuffix(trace_of(purpose)).rstrip().rpartition(" ")[2]
    return id if _ID.fullmatch(id) else ""


def _links(traceparent: str) -> list[trace.Link]:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
    original = trace.get_current_span(context).get_span_context() if context else None
    return [trace.Link(original)] if original is not None and original.is_valid else []
