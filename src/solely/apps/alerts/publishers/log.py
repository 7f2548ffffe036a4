"""The log as a publisher: a line per notification."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import structlog

from ..model import RESOLVED, Alert, Notification
from .settings import LogSettings

log = structlog.get_logger("solely.alerts")
_LEVELS = {"critical": logging.ERROR, "info": logging.INFO}  # other firing alerts are warnings


class LogPublisher:
    """Writes a line per notification; it cannot fail."""

    def __init__(self, settings: LogSettings) -> None:
        self.name = settings.name
        self._match = settings.match

    def wants(self, alert: Alert) -> bool:
        """True if its `match` selects this alert."""
        return self._match.fits(alert)

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

    async def close(self) -> None:
        """Does nothing: the log stays open."""
