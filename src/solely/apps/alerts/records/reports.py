"""Reports: what becomes of alerts is in the metrics, the history, the log and the traces, and is said here alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

import structlog

from ....kit import Metrics, Tracing
from ..decision import RESERVED
from ..figures import COLLISIONS, DEAD_LETTERED, PUBLISHED, QUEUED, SUPPRESSED
from ..model import Alert, Notification
from ..publishers import PublishFailed
from .history import OK, AlertHistory

log = structlog.get_logger("solely.alerts")

Results = Mapping[str, PublishFailed | None]  # publisher → its failure; None: the receiver has the notification


class AlertReports:
    """Reports of one worker; its other figures are counted with `count` and `observe`."""

    def __init__(self, history: AlertHistory, metrics: Metrics, tracing: Tracing) -> None:
        self._history, self._tracing = history, tracing
        self.count, self.observe, self.trace = metrics.count, metrics.observe, tracing.current

    def span(self, name: str, alert: Alert, link: str = "", **facts: str) -> AbstractContextManager[None]:
        """A span of this alert, linked to the trace of `link` if that is a valid traceparent."""
        attributes = {"solely.fingerprint": alert.fingerprint, "solely.severity": alert.severity, **facts}
        return self._tracing.span(f"alerts.{name}", attributes, link)

    def suppressed(self, alert: Alert, reason: str, left: float, trace: str) -> None:
        """An alert that came in is not sent, for `left` seconds; `trace` is that of the alert that was."""
        self.count(SUPPRESSED, reason)
        self._history.suppressed(alert, reason)
        if reason == RESERVED:
            self.count(COLLISIONS)
            log.debug("Alert suppressed due to active reservation", **alert.facts, seconds=f"{left:.2f}")
        with self.span("suppressed", alert, link=trace, **{"solely.reason": reason}):
            pass

    def dropped(self, alert: Alert, reason: str) -> None:
        """A notification that waited in the outbox is not sent any more."""
        self._history.suppressed(alert, reason)

    def published(self, notification: Notification, results: Results, seconds: float) -> None:
        """At least one publisher has it, after `seconds`, or none wants it."""
        self.count(PUBLISHED)
        self._history.published(notification, _texts(results), seconds)

    def queued(self, notification: Notification, results: Results) -> None:
        """No publisher has it yet; it is sent later."""
        self.count(QUEUED)
        self._history.queued(notification, _texts(results))

    def retried(self, notification: Notification, publisher: str, seconds: float) -> None:
        """A publisher that had failed has it now."""
        self._history.published(notification, {publisher: OK}, seconds)

    def dead(self, notification: Notification, publisher: str, failure: PublishFailed) -> None:
        """It became a dead letter of this publisher."""
        self.count(DEAD_LETTERED, publisher)
        self._history.dead(notification, publisher, str(failure))


def _texts(results: Results) -> dict[str, str]:
    return {name: OK if failure is None else str(failure) for name, failure in results.items()}
