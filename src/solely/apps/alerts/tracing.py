"""Spans of an alert's way: reserve, publish, record; and of one that is suppressed, with a link to the one that is
told. Without telemetry there are none, and nothing is imported for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .model import Alert

if TYPE_CHECKING:
    from opentelemetry import trace

# Characters of an alert's name in the purpose of its reservation: it has 200, the id takes 37 and the trace 56.
_NAME = 80
_TRACEPARENT = "00-"  # what one of version 00 begins with
_ID = re.compile(r"msg_[0-9a-f]{32}")


class Tracing:
    """Makes spans by this tracer, or none at all."""

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = tracer

    @classmethod
    def on(cls, provider: trace.TracerProvider | None = None) -> Tracing:
        """Spans go where the provider sends them; without one, where OpenTelemetry's own settings say."""
        from opentelemetry import trace  # an extra

        return cls(trace.get_tracer("solely.alerts", tracer_provider=provider))

    @contextmanager
    def span(self, name: str, alert: Alert, link: str = "", **facts: str) -> Iterator[None]:
        """A span of this alert, linked to the trace of this traceparent, if that is one."""
        if self._tracer is None:
            yield
            return
        attributes = {"solely.fingerprint": alert.fingerprint, "solely.severity": alert.severity, **facts}
        with self._tracer.start_as_current_span(f"alerts.{name}", attributes=attributes, links=_links(link)):
            yield

    def current(self) -> str:
        """The traceparent of the span in which this is called; "" without telemetry."""
        if self._tracer is None:
            return ""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return carrier.get("traceparent", "")


def purpose_of(alert: Alert, trace: str, id: str = "") -> str:
    """What the reservation of this alert says it is for: the name, under which id, and in which trace it is told."""
    return " ".join(filter(None, (f"{alert.name:.{_NAME}}", id, trace)))


def trace_of(purpose: str) -> str:
    """The trace that stands in the purpose of a reservation; "" if there is none."""
    last = purpose.rpartition(" ")[2]
    return last if last.startswith(_TRACEPARENT) else ""


def id_of(purpose: str) -> str:
    """The id of the notification that stands in the purpose of a reservation; "" if there is none."""
    id = purpose.removesuffix(trace_of(purpose)).rstrip().rpartition(" ")[2]
    return id if _ID.fullmatch(id) else ""


def _links(traceparent: str) -> list[trace.Link]:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
    original = trace.get_current_span(context).get_span_context() if context else None
    return [trace.Link(original)] if original is not None and original.is_valid else []
