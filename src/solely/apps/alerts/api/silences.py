"""Silences over HTTP and on the pages.

The scope that sends alerts (WRITE) must not be able to hide them: making or ending a silence needs ADMIN and a reason,
which goes into the audit log.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec

from .... import InvalidInput
from ....kit import READ, Affected, Answer, Body, Call, PageSize, Reason, Route, act_routes, at, duration
from .. import acts
from ..model import Alert
from ..runtime import AlertsRuntime, Handlers
from ..suppression.matchers import FIELDS, LABEL, MAX_MATCHER, MOST_MATCHERS, checked, parse
from ..suppression.matchers import Matcher as MatcherParts
from ..suppression.silences import LONGEST, MOST, Silence

MOST_COUNTED = 10_000  # open alerts that a preview counts: more than anybody silences knowingly
MAX_SUGGESTED = 200  # characters of a matcher that a form starts with: it is part of an address
NAMED = 5  # of those that match: one line

Moment = Annotated[float, msgspec.Meta(ge=0.0, le=1e11, description="seconds of UTC")]
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
    ends: Moment | msgspec.UnsetType = msgspec.UNSET
    starts: Moment | None = None

    def texts(self) -> list[str]:
        """The matchers, one by one."""
        if isinstance(self.matchers, list):
            return self.matchers
        return _lines(self.matchers or "")  # not given yet, on a form

    def end(self) -> float:
        """The moment at which it ends; InvalidInput unless exactly one of `lasts` and `ends` is given."""
        if not isinstance(self.lasts, msgspec.UnsetType):
            if isinstance(self.ends, float):
                raise InvalidInput("give either lasts or ends, not both")
            lasts = duration(self.lasts) if isinstance(self.lasts, str) else self.lasts
            return (time.time() if self.starts is None else self.starts) + lasts
        if isinstance(self.ends, float):
            return self.ends
        raise InvalidInput("give lasts or ends, so that the silence has an end")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


class ExpireSilence(Body):
    """Ends this silence now."""

    id: SilenceId
    reason: Reason


class Silencing(Handlers):
    """Makes, lists and ends silences."""

    async def listed(self, call: Call[None, SilencesQuery]) -> ListedSilences:
        """Lists silences."""
        found = await self._app.silences.list(ended=call.query.ended, limit=call.query.limit)
        return ListedSilences(silences=found)

    async def add(self, call: Call[AddSilence, None]) -> Silence:
        """Adds a silence; InvalidInput if it is invalid."""
        wanted, by = call.body, call.principal.name
        options: Any = {"starts": wanted.starts, "ends": wanted.end(), "by": by, "reason": wanted.reason}
        return await self._app.silences.add(wanted.texts(), **options)

    async def to_add(self, call: Call[Any, Any], wanted: AddSilence) -> Affected:
        """The alerts that it would silence now, once it is known which."""
        if not wanted.texts():
            return Affected("alerts", values={"lasts": "1h"})
        what = f"alerts that match {', '.join(map(str, checked(wanted.texts())))}"
        found = await self._app.open_alerts.list(matchers=wanted.texts(), limit=MOST_COUNTED)
        return Affected(what, {"Matches now": _counted([each.alert for each in found])}, {"lasts": "1h"})

    async def end(self, call: Call[ExpireSilence, None]) -> bool | None:
        """Ends a silence."""
        who = call.principal.name
        return await self._app.silences.expire(call.body.id, by=who, reason=call.body.reason) or None

    async def to_end(self, call: Call[Any, Any], wanted: ExpireSilence) -> Affected | None:
        """The silence, if it has not ended."""
        found = [each for each in await self._app.silences.list(limit=MOST) if each.id == wanted.id]
        if not found:
            return None
        silence, matchers = found[0], ", ".join(found[0].matchers)
        facts = {"Matchers": matchers, "Until": at(silence.ends), "Made by": silence.made_by, "Why": silence.reason}
        return Affected(f"the silence of {matchers}", facts)


def _counted(alerts: list[Alert]) -> str:
    """How many alerts there are, and the first of them by name."""
    if not alerts:
        return "no alert that fires"
    names = ", ".join(f"{each.name} ({each.severity})" for each in alerts[:NAMED])
    more = f", and {len(alerts) - NAMED} more" if len(alerts) > NAMED else ""
    return f"{len(alerts)}: {names}{more}"


def matchers_of(alert: Alert) -> list[str]:
    """Matchers that this alert matches: its name, severity and source, then its labels. People remove those that are
    too narrow. A label that cannot be written as a matcher, or is too long, is left out."""
    fields = {name: getattr(alert, name) for name in ("name", "severity", "source")}
    known = set(fields.values())  # Prometheus has the name and the severity as labels, too
    labels = {
        f"{LABEL if name in FIELDS else ''}{name}": value for name, value in alert.labels.items() if value not in known
    }
    texts = [str(MatcherParts(name, "=", value)) for name, value in (fields | labels).items()]
    return [text for text in texts if len(text) <= MAX_SUGGESTED and _is_matcher(text)][:MOST_MATCHERS]


def _is_matcher(text: str) -> bool:
    try:
        return _lines(text) == [text] and str(parse(text)) == text
    except InvalidInput:
        return False


def _check_matchers(text: str) -> None:
    checked(_lines(text))


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of silences."""
    silencing = Silencing(app)
    checks = {"lasts": duration, "matchers": _check_matchers}
    return [
        Route("GET", acts.SILENCES.path, READ, silencing.listed, acts.SILENCES.summary),
        *act_routes(acts.SILENCE, silencing.add, silencing.to_add, back=_back, checks=checks),
        *act_routes(acts.END_SILENCE, silencing.end, silencing.to_end, back=_back),
    ]


def _back(body: object) -> str:
    return "/alerts#silences"
