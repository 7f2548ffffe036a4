"""Spans of an alert: reserve, publish, record; a suppressed alert has a span that links to the published one."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ...service import tracing
from .model import Alert

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

# Characters of an alert's name in the purpose of its reservation, which has 200: the id takes 37 and the trace 56.
_NAME = 80
_TRACEPARENT = "00-"  # the prefix of a traceparent of version 00
_ID = re.compile(r"msg_[0-9a-f]{32}")


class Tracing:
    """Creates the spans of alerts; none without telemetry."""

    def __init__(self, spans: tracing.Tracing | None = None) -> None:
        self._spans = spans or tracing.Tracing()
        self.current = self._spans.current

    @classmethod
    def on(cls, provider: TracerProvider | None = None) -> Tracing:
        """Tracing through this provider, or through the one that OpenTelemetry's settings configure."""
        return cls(tracing.Tracing.on("solely.alerts", provider))

    def span(self, name: str, alert: Alert, link: str = "", **facts: str) -> AbstractContextManager[None]:
        """A span of this alert, linked to the trace of `link` if that is a valid traceparent."""
        attributes = {"solely.fingerprint": alert.fingerprint, "solely.severity": alert.severity, **facts}
        return self._spans.span(f"alerts.{name}", attributes, link)


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
