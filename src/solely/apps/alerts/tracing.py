"""Spans of an alert: reserve, publish, record; a suppressed alert has a span that links to the published one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ...kit import Tracing as Spans
from .model import Alert

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


class Tracing:
    """Creates the spans of alerts; none without telemetry."""

    def __init__(self, spans: Spans | None = None) -> None:
        self._spans = spans or Spans()
        self.current = self._spans.current

    @classmethod
    def on(cls, provider: TracerProvider | None = None) -> Tracing:
        """Tracing through this provider, or through the one that OpenTelemetry's settings configure."""
        return cls(Spans.on("solely.alerts", provider))

    def span(self, name: str, alert: Alert, link: str = "", **facts: str) -> AbstractContextManager[None]:
        """A span of this alert, linked to the trace of `link` if that is a valid traceparent."""
        attributes = {"solely.fingerprint": alert.fingerprint, "solely.severity": alert.severity, **facts}
        return self._spans.span(f"alerts.{name}", attributes, link)
