"""Silences over HTTP.

The scope that sends alerts (WRITE) must not be able to hide them: making or ending a silence needs ADMIN and a reason,
which goes into the audit log.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated

import msgspec

from .... import InvalidInput
from ....kit import ADMIN, READ, UNKNOWN, Answer, Body, Call, PageSize, Problem, Reason, Route, duration
from ..runtime import AlertsRuntime, Handlers
from ..suppression.matchers import MAX_MATCHER, MOST_MATCHERS, checked
from ..suppression.open_alerts import OpenAlert
from ..suppression.silences import LONGEST, Silence

MOST_COUNTED = 10_000  # open alerts that a preview counts: more than anybody silences knowingly

Moment = Annotated[float, msgspec.Meta(ge=0.0, le=1e11, description="seconds of UTC")]
DateTime = Annotated[datetime, msgspec.Meta(tz=True, description="a time as in RFC 3339: 2027-01-31T22:00:00+01:00")]
Matcher = Annotated[str, msgspec.Meta(min_length=2, max_length=MAX_MATCHER, description="e.g. severity=critical")]
Matchers = Annotated[list[Matcher], msgspec.Meta(min_length=1, max_length=MOST_MATCHERS)]
Lines = Annotated[
    str, msgspec.Meta(min_length=2, max_length=(MAX_MATCHER + 2) * MOST_MATCHERS, description="one matcher per line")
]
Lasts = Annotated[float, msgspec.Meta(gt=0.0, le=LONGEST, description="seconds from its start")]
Duration = Annotated[str, msgspec.Meta(min_length=1, max_length=32, description='a duration such as "2h"')]
SilenceId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class SilencesQuery(Body):
    """Current and future silences; with `ended`, those that ended within 30 days."""

    ended: bool = False
    limit: PageSize = 100


class ListedSilences(Answer):
    """In the order in which they end; those that ended, the latest first."""

    silences: list[Silence]


class AddSilence(Body):
    """Suppresses alerts that match all `matchers`, for `lasts` or until `ends`, from now or from `starts`.

    A matcher is name, severity, source, fingerprint or a label, then =, !=, =~ or !~, then a value or a pattern, which
    must match the whole value. A label that is named like a field is written `labels.name`.
    """

    EITHER = ("lasts", "ends")
    matchers: Matchers | Lines
    reason: Reason
    lasts: Lasts | Duration | msgspec.UnsetType = msgspec.UNSET
    ends: Moment | DateTime | msgspec.UnsetType = msgspec.UNSET
    starts: Moment | DateTime | None = None

    @property
    def key(self) -> str:
        """For the audit log."""
        return ", ".join(self.texts())

    def texts(self) -> list[str]:
        """The matchers, one by one."""
        if isinstance(self.matchers, list):
            return self.matchers
        return [line.strip() for line in self.matchers.splitlines() if line.strip()]

    def start(self) -> float | None:
        """The moment at which it starts; None: now."""
        return self.starts.timestamp() if isinstance(self.starts, datetime) else self.starts

    def end(self, starts: float | None = None) -> float:
        """The moment at which it ends; InvalidInput unless exactly one of `lasts` and `ends` is given. `lasts` counts
        from `starts`, or from now."""
        if not isinstance(self.lasts, msgspec.UnsetType):
            if not isinstance(self.ends, msgspec.UnsetType):
                raise InvalidInput("give either lasts or ends, not both")
            lasts = duration(self.lasts) if isinstance(self.lasts, str) else self.lasts
            return (time.time() if starts is None else starts) + lasts
        if isinstance(self.ends, msgspec.UnsetType):
            raise InvalidInput("give lasts or ends, so that the silence has an end")
        return self.ends.timestamp() if isinstance(self.ends, datetime) else self.ends


class EditSilence(AddSilence, kw_only=True):
    """Replaces the matchers, the reason and the end of this silence; its start only if one is given and it has not
    begun."""

    id: SilenceId

    @property
    def key(self) -> str:
        """For the audit log."""
        return self.id


class PreviewQuery(Body):
    """The matchers of a silence."""

    matcher: Matchers
    limit: PageSize = 100


class SilencePreview(Answer):
    """How many open alerts the silence would match, and the worst and newest of them."""

    count: int
    alerts: list[OpenAlert]


class ExpireSilence(Body):
    """Ends this silence now."""

    id: SilenceId
    reason: Reason

    @property
    def key(self) -> str:
        """For the audit log."""
        return self.id


class ExpiredSilence(Answer):
    """The silence was ended."""

    expired: bool


class Silencing(Handlers):
    """The handlers."""

    async def listed(self, call: Call[None, SilencesQuery]) -> ListedSilences:
        """Lists silences."""
        found = await self._app.silences.list(ended=call.query.ended, limit=call.query.limit)
        return ListedSilences(silences=found)

    async def add(self, call: Call[AddSilence, None]) -> Silence:
        """Adds a silence."""
        return await add_silence(self._app, call.body, by=call.principal.name)

    async def edit(self, call: Call[EditSilence, None]) -> Silence:
        """Edits a silence."""
        edited = await edit_silence(self._app, call.body, by=call.principal.name)
        if edited is None:
            raise Problem(UNKNOWN, f"No current or future silence has the id {call.body.id!r}: it may have ended.")
        return edited

    async def preview(self, call: Call[None, PreviewQuery]) -> SilencePreview:
        """Lists the open alerts that these matchers match."""
        checked(call.query.matcher)
        found = await self._app.open_alerts.list(matchers=call.query.matcher, limit=MOST_COUNTED)
        return SilencePreview(count=len(found), alerts=found[: call.query.limit])

    async def end(self, call: Call[ExpireSilence, None]) -> ExpiredSilence:
        """Ends a silence."""
        ended = await self._app.silences.expire(call.body.id, by=call.principal.name, reason=call.body.reason)
        if not ended:
            raise Problem(UNKNOWN, f"No current or future silence has the id {call.body.id!r}: it may have ended.")
        return ExpiredSilence(expired=True)


async def add_silence(app: AlertsRuntime, wanted: AddSilence, *, by: str) -> Silence:
    """Adds a silence; InvalidInput if it is invalid."""
    starts = wanted.start()
    return await app.silences.add(wanted.texts(), starts=starts, ends=wanted.end(starts), by=by, reason=wanted.reason)


async def edit_silence(app: AlertsRuntime, wanted: EditSilence, *, by: str) -> Silence | None:
    """Edits a silence, which keeps its start unless another is given; None if no current or future silence has this id.
    InvalidInput if it is invalid."""
    old = await app.silences.read(wanted.id)
    if old is None:
        return None
    starts = wanted.start() or max(old.starts, time.time())
    given = {"starts": starts, "ends": wanted.end(starts)}
    return await app.silences.edit(wanted.id, wanted.texts(), **given, by=by, reason=wanted.reason)


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes below /api/alerts/silences."""
    silencing = Silencing(app)
    return [
        Route("GET", "/api/alerts/silences", READ, silencing.listed, "List silences"),
        Route(
            "POST",
            "/api/alerts/silences",
            ADMIN,
            silencing.add,
            "Silence alerts for a while",
            keyed=True,
            again="Adds another one, unless it comes with the same Idempotency-Key.",
        ),
        Route("GET", "/api/alerts/silences/preview", READ, silencing.preview, "List what a silence would match now"),
        Route(
            "POST",
            "/api/alerts/silences/edit",
            ADMIN,
            silencing.edit,
            "Edit a silence that has not ended",
            refusals=(UNKNOWN,),
            again="Edits it again.",
        ),
        Route(
            "POST",
            "/api/alerts/silences/expire",
            ADMIN,
            silencing.end,
            "End a silence now",
            refusals=(UNKNOWN,),
            again="Refused: it has ended.",
        ),
    ]
