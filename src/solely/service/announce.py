"""Announcements: an application raises or resolves an alert without knowing the application that sends it.

An application that can notify people registers as the announcer when it starts (the alert receiver does). Without one,
an announcement is a line in the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
import structlog

from ..errors import SolelyError
from .figures import Figure
from .metrics import Metrics

log = structlog.get_logger("solely.service")

ANNOUNCED = Figure("solely_announced", "Announcements of applications, by result", ("result",))
DELIVERED, LOGGED, FAILED = "delivered", "logged", "failed"  # the results


class Announcement(msgspec.Struct, frozen=True):
    """An alert of an application. Announcements with the same fingerprint are about the same alert: firing until one
    with the status `resolved` follows."""

    name: str
    severity: str
    source: str
    fingerprint: str
    summary: str = ""
    labels: dict[str, str] = {}
    status: Literal["firing", "resolved"] = "firing"


Announcer = Callable[[Announcement], Awaitable[object]]


class Announcements:
    """`await service.announce(announcement)`: passes it to the announcer, or logs it."""

    def __init__(self, metrics: Metrics) -> None:
        metrics.add((ANNOUNCED,))
        self._metrics = metrics
        self._announcer: Announcer | None = None

    def register(self, announcer: Announcer | None) -> None:
        """Sets the function that delivers announcements; None, when it stops, to log them again."""
        self._announcer = announcer

    async def __call__(self, announcement: Announcement) -> None:
        """Delivers the announcement. Never raises if that fails: it is logged as an error, in full, and counted."""
        result = DELIVERED if self._announcer is not None else LOGGED
        try:
            if self._announcer is not None:
                await self._announcer(announcement)
            else:
                _log(announcement)
        except Exception as error:  # whatever it is, the application's own work goes on
            result = FAILED
            expected = isinstance(error, SolelyError)  # such as an unavailable store: the message is enough
            log.error("announcement_failed", error=str(error), exc_info=not expected, **_fields(announcement))
        self._metrics.count(ANNOUNCED, result)


def _log(announcement: Announcement) -> None:
    level = log.warning if announcement.status == "firing" else log.info
    level("announced", **_fields(announcement))


def _fields(announcement: Announcement) -> dict[str, object]:
    return msgspec.structs.asdict(announcement)
