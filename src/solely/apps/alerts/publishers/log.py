"""The log as a publisher: a line per notification."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import structlog

from ..model import RESOLVED, Alert, Notification
from .settings import LogSettings

log = structlog.get_logger("solely.alerts")
_LEVELS = {"critical": logging.ERROR, "info": logging.INFO}  # all else that fires is a warning


class LogPublisher:
    """Writes a line per notification; it has no way to fail."""

    def __init__(self, settings: LogSettings) -> None:
        self.name = settings.name
        self._match = settings.match

    def wants(self, alert: Alert) -> bool:
        """True if the settings send alerts like this one here."""
        return self._match.fits(alert)

    async def publish(self, notification: Notification) -> None:
        """Writes the line: an error if it is critical, a warning otherwise; that it is over is no more than news."""
        alert = notification.alert
        over = alert.status == RESOLVED
        log.log(
            logging.INFO if over else _LEVELS.get(alert.severity, logging.WARNING),
            "alert_resolved" if over else "alert_firing",
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
        """Nothing: the log stays open."""
