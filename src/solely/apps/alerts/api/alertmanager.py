"""Alertmanager's API (version 2) of alerts, silences and the status, so that amtool works with this receiver.

Its clients know an alert by labels alone, so its name, severity and source are among them. They may send more than is
described here, which is ignored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response

from .... import __version__
from ....kit import (
    ADMIN,
    MAX_MATCHER,
    MOST_MATCHERS,
    READ,
    UNKNOWN,
    Call,
    Matcher,
    Problem,
    Reason,
    Route,
    Turns,
    check_pattern,
)
from ..model import MAX_OPEN, Labels
from ..publishers import PublisherSettings
from ..runtime import AlertsRuntime, Handlers
from ..suppression.matchers import ALERTNAME, LABEL, labels_of
from ..suppression.open_alerts import OpenAlert
from ..suppression.silences import MOST, Silence

VERSION = "0.25.0"  # of Alertmanager, whose API this is: amtool warns on every call if its own version differs
MOST_ALERTS = 10_000  # in one response, the worst first: some megabytes
ENDED = "expired over Alertmanager's API"
NOBODY = "nobody"  # the receiver of what no publisher wants: a configuration of Alertmanager must name one
_APART = {"name": f"{LABEL}name", "source": f"{LABEL}source"}  # label → our matcher of it, where a field has its name

Time = Annotated[datetime, msgspec.Meta(tz=True)]
Author = Annotated[str, msgspec.Meta(max_length=255)]
LabelName = Annotated[str, msgspec.Meta(pattern=r"^[^\s=!~\"]+\Z", max_length=255)]
SilenceState = Literal["active", "pending", "expired"]
STATES: tuple[SilenceState, ...] = ("active", "pending", "expired")  # in the order of a listing


class LabelMatcher(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A matcher of one label."""

    name: LabelName
    value: Annotated[str, msgspec.Meta(max_length=MAX_MATCHER)]
    is_regex: bool
    is_equal: bool = True

    @classmethod
    def parse(cls, text: str) -> LabelMatcher:
        """The matcher that a client wrote, such as alertname=~"Disk.*"; InvalidInput if it is invalid."""
        name, operator, value = Matcher.parse(text)
        return cls(name=name, value=value, is_regex="~" in operator, is_equal="!" not in operator)

    @classmethod
    def of(cls, text: str) -> LabelMatcher:
        """A matcher of one of our silences."""
        found = cls.parse(text)
        label = ALERTNAME if found.name == "name" else found.name.removeprefix(LABEL)
        return msgspec.structs.replace(found, name=label)

    def own(self) -> str:
        """This matcher, as our silences have it."""
        operator = ("=~" if self.is_equal else "!~") if self.is_regex else ("=" if self.is_equal else "!=")
        return str(Matcher(_APART.get(self.name, self.name), operator, self.value))


class PostableSilence(msgspec.Struct, kw_only=True, rename="camel"):
    """A silence to add; with an `id`, to edit."""

    matchers: Annotated[list[LabelMatcher], msgspec.Meta(min_length=1, max_length=MOST_MATCHERS)]
    starts_at: Time
    ends_at: Time
    created_by: Author
    reason: Reason = msgspec.field(name="comment")
    id: Annotated[str, msgspec.Meta(max_length=64)] | None = None

    @property
    def key(self) -> str:
        """For the audit log."""
        return self.id or ", ".join(self.texts())

    def texts(self) -> list[str]:
        """The matchers, as our silences have them."""
        return [each.own() for each in self.matchers]

    def edits(self, silence: Silence, now: float) -> bool:
        """True if it changes this silence without changing what it has suppressed so far: else another one replaces it,
        as in Alertmanager."""
        starts = self.starts_at.timestamp()
        same_start = abs(starts - silence.starts) < 1.0 if silence.starts <= now else starts >= now
        return same_start and silence.ends > now and set(self.matchers) == set(map(LabelMatcher.of, silence.matchers))


class GettableSilence(msgspec.Struct, kw_only=True, rename="camel"):
    """A silence."""

    id: str
    status: dict[str, SilenceState]  # {state: …}
    updated_at: str
    comment: str
    created_by: str
    starts_at: str
    ends_at: str
    matchers: list[LabelMatcher]
    annotations: Labels = {}

    @classmethod
    def of(cls, silence: Silence) -> GettableSilence:
        """One of our silences."""
        now = time.time()
        return cls(
            id=silence.id,
            status={"state": "expired" if silence.ends <= now else "pending" if silence.starts > now else "active"},
            updated_at=_text(silence.ends if silence.ended_by else silence.made),
            comment=silence.reason,
            created_by=silence.made_by,
            starts_at=_text(min(silence.starts, silence.ends)),
            ends_at=_text(silence.ends),
            matchers=list(map(LabelMatcher.of, silence.matchers)),
        )


class SilencesFilter(msgspec.Struct, kw_only=True):
    """Silences with all of these matchers."""

    filter: list[str] = []
    active: bool = True
    pending: bool = True
    expired: bool = True


class AlertState(msgspec.Struct, kw_only=True, rename="camel"):
    """Whether the alert is silenced, and by which silences. Nothing is inhibited or muted."""

    state: Literal["active", "suppressed"]
    silenced_by: list[str]
    inhibited_by: list[str] = []
    muted_by: list[str] = []


class GettableAlert(msgspec.Struct, kw_only=True, rename="camel"):
    """An alert that fires."""

    annotations: Labels
    ends_at: str
    fingerprint: str
    receivers: list[dict[str, str]]  # {name: …} of each publisher that wants it
    starts_at: str
    status: AlertState
    updated_at: str
    labels: Labels
    generator_url: str = msgspec.field(name="generatorURL")


class AlertsFilter(msgspec.Struct, kw_only=True):
    """Alerts that match, of these states, and for a publisher whose whole name matches `receiver`. No alert is
    inhibited or unprocessed."""

    filter: list[str] = []
    active: bool = True
    silenced: bool = True
    receiver: str = ""


class AlertmanagerApi(Handlers):
    """The handlers."""

    def __init__(self, app: AlertsRuntime) -> None:
        super().__init__(app)
        self._since = time.time()

    async def status(self, call: Call[None, None]) -> dict[str, Any]:
        """The status, with the publishers, without their settings, as a configuration of Alertmanager."""
        version = {"version": VERSION, "revision": __version__, "branch": "solely"}
        unknown = dict.fromkeys(("buildUser", "buildDate", "goVersion"), "")
        return {
            "cluster": {"status": "disabled", "peers": []},
            "versionInfo": version | unknown,
            "config": {"original": _configuration(self._app.settings.publishers)},
            "uptime": _text(self._since),
        }

    async def alerts(self, call: Call[None, AlertsFilter]) -> list[GettableAlert]:
        """Lists alerts that fire, by fingerprint."""
        query = call.query
        check_pattern(query.receiver)
        matchers = [LabelMatcher.parse(text).own() for text in query.filter]
        found, turns = list[GettableAlert](), Turns()
        for row in await self._app.open_alerts.list(matchers=matchers, limit=MOST_ALERTS):
            found.append(self._gettable(row))
            await turns()  # patterns of silences may take milliseconds for each alert
        states = {"active": query.active, "suppressed": query.silenced}
        receiver = Matcher("receiver", "=~", query.receiver)
        chosen = (
            each
            for each in found
            if states[each.status.state]
            and (not query.receiver or any(receiver.meets(its["name"]) for its in each.receivers))
        )
        return sorted(chosen, key=lambda each: each.fingerprint)

    def _gettable(self, row: OpenAlert) -> GettableAlert:
        alert, facts = row.alert, dict(row.alert.annotations)
        silences = [each.id for each in self._app.silences.matching(alert)]
        changed = row.last_notified or row.since
        return GettableAlert(
            labels=labels_of(alert),
            generator_url=facts.pop("generatorURL", ""),
            starts_at=_sender_start(facts.pop("startsAt", "")) or _text(row.since),
            annotations=facts,
            updated_at=_text(changed),
            ends_at=_text(changed + MAX_OPEN),
            fingerprint=alert.fingerprint,
            receivers=[{"name": each.name} for each in self._app.publishers if each.wants(alert)],
            status=AlertState(state="suppressed" if silences else "active", silenced_by=silences),
        )

    async def silences(self, call: Call[None, SilencesFilter]) -> list[GettableSilence]:
        """Lists silences: those in effect, then those that are to start, then those that ended, the next change first.
        Each has all matchers of the filter."""
        query, silences = call.query, self._app.silences
        wanted = set(map(LabelMatcher.parse, query.filter))
        rows = await silences.list(limit=MOST) + (await silences.list(ended=True, limit=MOST) if query.expired else [])
        found = [each for each in map(GettableSilence.of, rows) if wanted.issubset(each.matchers)]
        by_state = {state: [each for each in found if each.status["state"] == state] for state in STATES}
        by_state["pending"].sort(key=lambda each: each.starts_at)
        return [each for state in STATES if getattr(query, state) for each in by_state[state]]

    async def silence(self, call: Call[None, None]) -> GettableSilence:
        """Reads a silence."""
        return GettableSilence.of(await self._read(call.params["id"]))

    async def post(self, call: Call[PostableSilence, None]) -> dict[str, str]:
        """Adds a silence, edits it, or replaces it by one with another id, which applies before the first one ends."""
        body, silences, now = call.body, self._app.silences, time.time()
        by, starts, ends = body.created_by or call.principal.name, body.starts_at.timestamp(), body.ends_at.timestamp()
        old = await self._read(body.id) if body.id else None
        if old is not None and body.edits(old, now):
            edited = await silences.edit(old.id, old.matchers, starts=starts, ends=ends, by=by, reason=body.reason)
            if edited is not None:
                return {"silenceID": edited.id}
        new = await silences.add(body.texts(), starts=max(starts, now), ends=ends, by=by, reason=body.reason)
        if old is not None:
            await silences.expire(old.id, by=call.principal.name, reason=f"replaced by {new.id}")
        return {"silenceID": new.id}

    async def delete(self, call: Call[None, None]) -> Response:
        """Ends a silence; one that has ended stays as it is."""
        old, who = await self._read(call.params["id"]), call.principal.name
        if old.ends > time.time():
            async with call.service.audit.acting(who, call.route.name, old.id, old.reason):
                await self._app.silences.expire(old.id, by=who, reason=ENDED)
        return Response()

    async def _read(self, id: str) -> Silence:
        found = await self._app.silences.read(id)
        if found is None:
            raise Problem(UNKNOWN, f"silence {id!r:.80} not found")
        return found


def _text(at: float) -> str:
    """The time with milliseconds, as Alertmanager writes it."""
    return f"{datetime.fromtimestamp(at, UTC).isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def _sender_start(text: str) -> str:
    """The start that the sender gave; "" if there is none, for which Go writes the year 1."""
    try:
        start = datetime.fromisoformat(text)
        return _text(start.timestamp()) if start.tzinfo and start.year > 1 else ""
    except (ValueError, OverflowError):
        return ""


def _configuration(publishers: Sequence[PublisherSettings]) -> str:
    """Which publisher gets which alerts, as a configuration of Alertmanager (JSON is YAML), without secrets."""
    routes = [
        {"receiver": each.name, "continue": True, "matchers": [f"{name}={json.dumps(value)}" for name, value in tests]}
        for each in publishers
        for severity in each.match.severities or ("",)
        for tests in [[*([("severity", severity)] if severity else ()), *each.match.labels.items()]]
    ]
    receivers = [{"name": name} for name in (NOBODY, *(each.name for each in publishers))]
    known = {"route": {"receiver": NOBODY, "routes": routes}, "receivers": receivers}
    return json.dumps(known, indent=2, ensure_ascii=False)


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes below /api/v2/; the one that receives alerts is among the inputs."""
    api, silence = AlertmanagerApi(app), "/api/v2/silence/{id}"
    route = partial(Route, tag="alerts", text_errors=True)
    known = partial(route, refusals=(UNKNOWN,))
    edited = "Adds another one; with an id, edits it again."
    return [
        route("GET", "/api/v2/status", READ, api.status, "The status, as Alertmanager has it"),
        route("GET", "/api/v2/alerts", READ, api.alerts, "List alerts that fire, as Alertmanager does"),
        route("GET", "/api/v2/silences", READ, api.silences, "List silences, as Alertmanager does"),
        known("GET", silence, READ, api.silence, "Read a silence, as Alertmanager does"),
        known("POST", "/api/v2/silences", ADMIN, api.post, "Add or edit a silence, as Alertmanager does", again=edited),
        known("DELETE", silence, ADMIN, api.delete, "End a silence, as Alertmanager does", again="Safe.", audits=True),
    ]
