"""Silences over HTTP.

Who may send alerts (WRITE) may not hide them from people: to make or end a silence takes ADMIN and a reason, which goes
into the audit log.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import msgspec

from ....errors import InvalidInput
from ....service.problems import UNKNOWN, Problem
from ....service.routes import ADMIN, READ, Answer, Body, Call, PageSize, Reason, Route
from ..suppression.matchers import MAX_MATCHER, MOST_MATCHERS
from ..suppression.silences import LONGEST, Silence

if TYPE_CHECKING:
    from ..app import App

Moment = Annotated[float, msgspec.Meta(ge=0.0, le=1e11, description="seconds of UTC")]
Matcher = Annotated[str, msgspec.Meta(min_length=2, max_length=MAX_MATCHER, description="e.g. severity=critical")]
Lasts = Annotated[float, msgspec.Meta(gt=0.0, le=LONGEST, description="seconds, from when it starts")]
SilenceId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class SilencesQuery(Body):
    """With `ended`, those that are over, for 30 days."""

    ended: bool = False
    limit: PageSize = 100


class ListedSilences(Answer):
    """Those that end first come first; of those that are over, the last one."""

    silences: list[Silence]


class AddSilence(Body):
    """Alerts that meet all `matchers` are suppressed for `lasts` seconds, or until `ends`; from now, or from `starts`.

    A matcher is name, severity, source, fingerprint or a label, then =, !=, =~ or !~, then a value or a pattern that
    must match all of it. A label that is named like one of these is written `labels.name`.
    """

    EITHER = ("lasts", "ends")
    matchers: Annotated[list[Matcher], msgspec.Meta(min_length=1, max_length=MOST_MATCHERS)]
    reason: Reason
    lasts: Lasts | msgspec.UnsetType = msgspec.UNSET
    ends: Moment | msgspec.UnsetType = msgspec.UNSET
    starts: Moment | None = None

    @property
    def key(self) -> str:
        """For the audit log."""
        return ", ".join(self.matchers)

    def end(self) -> float:
        """The moment at which it ends; InvalidInput unless it was said in one way."""
        if isinstance(self.lasts, float):
            if isinstance(self.ends, float):
                raise InvalidInput("give either lasts or ends, not both")
            return (time.time() if self.starts is None else self.starts) + self.lasts
        if isinstance(self.ends, float):
            return self.ends
        raise InvalidInput("say when it ends: give lasts or ends")


class ExpireSilence(Body):
    """This silence is to end now."""

    id: SilenceId
    reason: Reason

    @property
    def key(self) -> str:
        """For the audit log."""
        return self.id


class ExpiredSilence(Answer):
    """It is over."""

    expired: bool


class Silencing:
    """The handlers, of one worker's application."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def listed(self, call: Call[None, SilencesQuery]) -> ListedSilences:
        """What is silenced."""
        found = await self._app.silences.list(ended=call.query.ended, limit=call.query.limit)
        return ListedSilences(silences=found)

    async def add(self, call: Call[AddSilence, None]) -> Silence:
        """Silences what meets the matchers."""
        wanted = call.body
        made: Silence = await self._app.silences.add(
            wanted.matchers, starts=wanted.starts, ends=wanted.end(), by=call.principal.name, reason=wanted.reason
        )
        return made

    async def end(self, call: Call[ExpireSilence, None]) -> ExpiredSilence:
        """Ends a silence."""
        ended = await self._app.silences.expire(call.body.id, by=call.principal.name, reason=call.body.reason)
        if not ended:
            raise Problem(UNKNOWN, f"There is no silence {call.body.id!r} that holds: it may have ended.")
        return ExpiredSilence(expired=True)


def routes(app: App) -> list[Route]:
    """All of them, below /api/alerts/silences."""
    silencing = Silencing(app)
    return [
        Route(
            "GET",
            "/api/alerts/silences",
            READ,
            silencing.listed,
            "List silences",
            query=SilencesQuery,
            answer=ListedSilences,
        ),
        Route(
            "POST",
            "/api/alerts/silences",
            ADMIN,
            silencing.add,
            "Silence alerts for a while",
            body=AddSilence,
            answer=Silence,
            keyed=True,
            again="Adds another one, unless it comes with the same Idempotency-Key.",
        ),
        Route(
            "POST",
            "/api/alerts/silences/expire",
            ADMIN,
            silencing.end,
            "End a silence now",
            body=ExpireSilence,
            answer=ExpiredSilence,
            refusals=(UNKNOWN,),
            again="Refused: it is over.",
        ),
    ]
