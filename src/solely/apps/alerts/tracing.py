"""Spans of an alert: reserve, publish, record; a suppressed alert has a span that links to the published one."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ...kit import Tracing
from .model import Alert


class AlertTracing:
    """Creates the spans of alerts; none without telemetry."""

    def __init__(self, spans: Tracing | None = None) -> None:
        self._spans = spans or Tracing()
        self.current = self._spans.current

    def span(self, name: str, alert: Alert, link: str = "", **facts: str) -> AbstractContextManager[None]:
        """A span of this alert, linked to the trace of `link` if that is a valid traceparent."""
        attributes = {"solely.fingerprint": alert.fingerprint, "solely.severity": alert.severity, **facts}
        return self._spans.span(f"alerts.{name}", attributes, link)
