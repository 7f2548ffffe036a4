"""Silences over HTTP and on the pages.

The scope that sends alerts (WRITE) must not be able to hide them: making or ending a silence needs ADMIN and a reason,
which goes into the audit log.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec

from .... import InvalidInput
from ....kit import (
    MAX_MATCHER,
    MOST_MATCHERS,
    READ,
    Affected,
    Answer,
    AnyDuration,
    AnyMoment,
    Body,
    Call,
    PageSize,
    Reason,
    Route,
    act_routes,
    at,
    duration_of,
    moment_of,
)
from .. import acts
from ..runtime import AlertsRuntime, Handlers
from ..suppression.matchers import checked, lines
from ..suppression.open_alerts import OpenAlert
from ..suppression.silences import Silence

MOST_COUNTED = 10_000  # open alerts that a preview counts: more than anybody silences knowingly
NAMED = 5  # of those that match: one line

MatcherText = Annotated[str, msgspec.Meta(min_length=2, max_length=MAX_MATCHER, description="e.g. severity=critical")]
Matchers = Annotated[list[MatcherText], msgspec.Meta(min_length=1, max_length=MOST_MATCHERS)]
Lines = Annotated[
    str, msgspec.Meta(min_length=2, max_length=(MAX_MATCHER + 2) * MOST_MATCHERS, description="one matcher per line")
]
SilenceId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class AddSilence(Body):
    """Suppresses alerts that match all `matchers`, for `lasts` or until `ends`, from now or from `starts`.

    A matcher is name, severity, source, fingerprint or a label, then =, !=, =~ or !~, then a value or a pattern, which
    must match the whole value. A label that is named like a field is written `labels.name`.
    """

    EITHER = ("lasts", "ends")
    matchers: Matchers | Lines
    reason: Reason
    lasts: AnyDuration | msgspec.UnsetType = msgspec.UNSET
    ends: AnyMoment | msgspec.UnsetType = msgspec.UNSET
    starts: AnyMoment | None = None

    def texts(self) -> list[str]:
        """The matchers, one by one."""
        if isinstance(self.matchers, list):
            return self.matchers
        return lines(self.matchers or "")  # not given yet, on a form

    def terms(self, by: str, default_start: float | None = None) -> dict[str, Any]:
        """From when, until when, by whom and why; InvalidInput unless exactly one of `lasts` and `ends` is given.
        `lasts` counts from the start, or from now."""
        starts = default_start if self.starts is None else moment_of(self.starts)
        if not isinstance(self.lasts, msgspec.UnsetType):
            if not isinstance(self.ends, msgspec.UnsetType):
                raise InvalidInput("give either lasts or ends, not both")
            ends = (time.time() if starts is None else starts) + duration_of(self.lasts)
        elif isinstance(self.ends, msgspec.UnsetType):
            raise InvalidInput("give lasts or ends, so that the silence has an end")
        else:
            ends = moment_of(self.ends)
        return {"starts": starts, "ends": ends, "by": by, "reason": self.reason}


class EditSilence(AddSilence, kw_only=True):
    """Replaces the matchers, the reason and the end of this silence; its start only if one is given and it has not
    begun."""

    id: SilenceId

    @property
    def key(self) -> str:
        """For the audit log."""
        return self.id


class ExpireSilence(Body):
    """Ends this silence now."""

    id: SilenceId


class PreviewQuery(Body):
    """The matchers of a silence."""

    matcher: Matchers
    limit: PageSize = 100


class SilencePreview(Answer):
    """How many open alerts the silence would match, and the worst and newest of them."""

    count: int
    alerts: list[OpenAlert]


class Silencing(Handlers):
    """Makes, edits and ends silences."""

    async def add(self, call: Call[AddSilence, None]) -> Silence:
        """Adds a silence; InvalidInput if it is invalid."""
        return await self._app.silences.add(call.body.texts(), **call.body.terms(call.principal.name))

    async def to_add(self, call: Call[Any, Any], wanted: AddSilence) -> Affected:
        """The alerts that it would silence now, once it is known which."""
        if not wanted.texts():
            return Affected("alerts", values={"lasts": "1h"})
        what = f"alerts that match {', '.join(map(str, checked(wanted.texts())))}"
        found = await self._app.open_alerts.list(matchers=wanted.texts(), limit=MOST_COUNTED)
        return Affected(what, {"Matches now": _counted(found)}, {"lasts": "1h"})

    async def edit(self, call: Call[EditSilence, None]) -> Silence | None:
        """Edits a silence, which keeps its start unless another is given; None if no current or future silence has
        this id."""
        wanted, old = call.body, await self._app.silences.read(call.body.id)
        if old is None:
            return None
        terms = wanted.terms(call.principal.name, max(old.starts, time.time()))
        return await self._app.silences.edit(wanted.id, wanted.texts(), **terms)

    async def to_edit(self, call: Call[Any, Any], wanted: EditSilence) -> Affected | None:
        """The silence, if it has not ended, with its terms to start from."""
        silence = await self._current(wanted.id)
        if silence is None:
            return None
        preview = (await self.to_add(call, wanted)).facts if wanted.texts() else {}
        values = {"matchers": "\n".join(silence.matchers), "reason": silence.reason}
        return Affected(f"the silence of {', '.join(silence.matchers)}", {**_facts(silence), **preview}, values)

    async def end(self, call: Call[ExpireSilence, None]) -> bool | None:
        """Ends a silence."""
        return await self._app.silences.expire(call.body.id, by=call.principal.name, reason=call.reason) or None

    async def to_end(self, call: Call[Any, Any], wanted: ExpireSilence) -> Affected | None:
        """The silence, if it has not ended."""
        silence = await self._current(wanted.id)
        if silence is None:
            return None
        matchers = ", ".join(silence.matchers)
        return Affected(f"the silence of {matchers}", {"Matchers": matchers} | _facts(silence))

    async def preview(self, call: Call[None, PreviewQuery]) -> SilencePreview:
        """Lists the open alerts that these matchers match."""
        checked(call.query.matcher)
        found = await self._app.open_alerts.list(matchers=call.query.matcher, limit=MOST_COUNTED)
        return SilencePreview(count=len(found), alerts=found[: call.query.limit])

    async def _current(self, id: str) -> Silence | None:
        silence = await self._app.silences.read(id)
        return None if silence is None or silence.ends <= time.time() else silence


def _facts(silence: Silence) -> dict[str, str]:
    return {"Until": at(silence.ends), "Made by": silence.made_by, "Why": silence.reason}


def _counted(found: list[OpenAlert]) -> str:
    """How many alerts there are, and the first of them by name."""
    if not found:
        return "no alert that fires"
    names = ", ".join(f"{each.alert.name} ({each.alert.severity})" for each in found[:NAMED])
    more = f", and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"{len(found)}: {names}{more}"


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of silences."""
    silencing = Silencing(app)
    checks = {"matchers": lambda text: checked(lines(text))}
    return [
        Route("GET", "/api/alerts/silences/preview", READ, silencing.preview, "List what a silence would match now"),
        *act_routes(acts.SILENCE, silencing.add, silencing.to_add, checks=checks),
        *act_routes(acts.EDIT_SILENCE, silencing.edit, silencing.to_edit, checks=checks),
        *act_routes(acts.END_SILENCE, silencing.end, silencing.to_end),
    ]
