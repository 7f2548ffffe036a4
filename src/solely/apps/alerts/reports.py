"""Reports: what becomes of alerts is in the metrics, the history, the log and the traces, and is said here alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

import structlog

from ...kit import Metrics, Tracing
from . import figures
from .decision import RESERVED, Decision
from .history import DEAD, OK, PUBLISHED, QUEUED, AlertHistory
from .model import Alert, Notification
from .publishers import PublishFailed

log = structlog.get_logger("solely.alerts")

Results = Mapping[str, PublishFailed | None]  # publisher → its failure; None: the receiver has the notification


class AlertReports:
    """Reports of one worker; its other figures are counted with `count` and `observe`."""

    def __init__(self, history: AlertHistory, metrics: Metrics, tracing: Tracing) -> None:
        self._history, self._tracing = history, tracing
        self.count, self.observe, self.trace = metrics.count, metrics.observe, tracing.current
        self.dropped = history.suppressed  # of what waited in the outbox

    def span(self, name: str, alert: Alert, link: str = "", **facts: str) -> AbstractContextManager[None]:
        """A span of this alert, linked to the trace of `link` if that is a valid traceparent."""
        attributes = {"solely.fingerprint": alert.fingerprint, "solely.severity": alert.severity, **facts}
        return self._tracing.span(f"alerts.{name}", attributes, link)

    def suppressed(self, alert: Alert, decision: Decision) -> None:
        """An alert that came in is not sent."""
        reason = decision.reason
        self.count(figures.SUPPRESSED, reason)
        self._history.suppressed(alert, reason)
        if reason == RESERVED:
            self.count(figures.COLLISIONS)
            log.debug("Alert suppressed due to active reservation", **alert.facts, seconds=f"{decision.left:.2f}")
        with self.span("suppressed", alert, link=decision.trace, **{"solely.reason": reason}):
            pass

    def published(self, notification: Notification, results: Results, seconds: float) -> None:
        """At least one publisher has it, after `seconds`, or none wants it. One that had failed has it now if the
        notification names it, which was counted before."""
        if not notification.publisher:
            self.count(figures.PUBLISHED)
        self._history.record(PUBLISHED, notification, _texts(results), seconds)

    def queued(self, notification: Notification, results: Results) -> None:
        """No publisher has it yet; it is sent later."""
        self.count(figures.QUEUED)
        self._history.record(QUEUED, notification, _texts(results))

    def dead(self, notification: Notification, publisher: str, failure: PublishFailed) -> None:
        """It became a dead letter of this publisher."""
        self.count(figures.DEAD_LETTERED, publisher)
        self._history.record(DEAD, notification, {publisher: f"dead letter: {failure}"})


def _texts(results: Results) -> dict[str, str]:
    return {name: OK if failure is None else str(failure) for name, failure in results.items()}
