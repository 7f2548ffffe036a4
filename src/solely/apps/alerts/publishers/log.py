"""The log as a publisher: a line per notification."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import structlog

from ..model import RESOLVED, Notification
from .publisher import MatchingPublisher
from .settings import LogSettings

log = structlog.get_logger("solely.alerts")
_LEVELS = {"critical": logging.ERROR, "info": logging.INFO}  # other firing alerts are warnings


class LogPublisher(MatchingPublisher[LogSettings]):
    """Writes a line per notification; it cannot fail."""

    async def publish(self, notification: Notification) -> None:
        """Writes the line, at a level by severity; a resolved alert is logged as info."""
        alert = notification.alert
        resolved = alert.status == RESOLVED
        log.log(
            logging.INFO if resolved else _LEVELS.get(alert.severity, logging.WARNING),
            "alert_resolved" if resolved else "alert_firing",
            publisher=self.name,
            id=notification.id,
            name=alert.name,
            severity=alert.severity,
            source=alert.source,
            fingerprint=alert.fingerprint,
            labels=alert.labels,
            annotations=alert.annotations,
            at=datetime.fromtimestamp(notification.at, UTC).isoformat(),
            **({"remarks": notification.remarks} if notification.remarks else {}),
        )
