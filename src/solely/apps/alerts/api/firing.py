"""What fires now, over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ....kit import Body, PageSize, Route, list_route
from .. import acts
from ..runtime import AlertsRuntime
from ..suppression.matchers import MAX_MATCHER, MOST_MATCHERS
from ..suppression.open_alerts import OpenAlert
from .history import Anything

Matchers = Annotated[
    str, msgspec.Meta(max_length=(MAX_MATCHER + 2) * MOST_MATCHERS, description="one per line; all alerts if empty")
]


class FiringQuery(Body):
    """Alerts of this severity that match all matchers, which are written as those of a silence."""

    matchers: Matchers = ""
    severity: Anything = ""
    limit: PageSize = 100


def routes(app: AlertsRuntime) -> list[Route]:
    """The route below /api/alerts/."""

    async def firing(query: FiringQuery) -> list[OpenAlert]:
        matchers = [line.strip() for line in query.matchers.splitlines() if line.strip()]
        return await app.open_alerts.list(matchers=matchers, severity=query.severity, limit=query.limit)

    return [list_route(acts.FIRING, firing)]
