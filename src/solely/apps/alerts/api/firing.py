"""What fires now, over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ....kit import READ, Answer, Body, Call, PageSize, Route
from ..model import MAX_FINGERPRINT
from ..runtime import AlertsRuntime, Handlers
from ..suppression.matchers import MAX_MATCHER, MOST_MATCHERS
from ..suppression.open_alerts import OpenAlert

Matchers = Annotated[
    str, msgspec.Meta(max_length=(MAX_MATCHER + 2) * MOST_MATCHERS, description="one per line; all alerts if empty")
]
Severity = Annotated[str, msgspec.Meta(max_length=MAX_FINGERPRINT, description="all severities if empty")]


class FiringQuery(Body):
    """Alerts of this severity that match all matchers, which are written as those of a silence."""

    matchers: Matchers = ""
    severity: Severity = ""
    limit: PageSize = 100


class FiringAlerts(Answer):
    """The worst first, and of one severity the newest first."""

    firing: list[OpenAlert]


class Firing(Handlers):
    """The handler."""

    async def firing(self, call: Call[None, FiringQuery]) -> FiringAlerts:
        """Lists the alerts that fire now."""
        matchers = [line.strip() for line in call.query.matchers.splitlines() if line.strip()]
        found = await self._app.open_alerts.list(
            matchers=matchers, severity=call.query.severity, limit=call.query.limit
        )
        return FiringAlerts(firing=found)


def routes(app: AlertsRuntime) -> list[Route]:
    """The route below /api/alerts/."""
    return [Route("GET", "/api/alerts/firing", READ, Firing(app).firing, "List the alerts that fire now")]
