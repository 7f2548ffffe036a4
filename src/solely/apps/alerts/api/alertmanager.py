"""Alertmanager's API (version 2) of alerts, silences and the status, so that amtool works with this receiver.

Paths, fields and states are Alertmanager's. Its clients know an alert by labels alone, so its name, severity and source
are among them. Errors are JSON strings.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from starlette.responses import Response

from .... import __version__
from ....kit import ADMIN, READ, UNKNOWN, Call, Problem, Reason, Route
from ..model import MAX_OPEN, Labels
from ..publishers import PublisherSettings
from ..runtime import AlertsRuntime, Handlers
from ..suppression.matchers import ALERTNAME, LABEL, MOST_MATCHERS, Matcher, check_pattern, labels_of, parse
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
    value: str
    is_regex: bool
    is_equal: bool = True

    @classmethod
    def parse(cls, text: str) -> LabelMatcher:
        """The matcher that a client wrote, such as alertname=~"Disk.*"; InvalidInput if it is invalid."""
        name, operator, value = parse(text)
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
    """A silence to add; with an `id`, to edit. Other fields are ignored."""

    matchers: Annotated[list[LabelMatcher], msgspec.Meta(min_length=1, max_length=MOST_MATCHERS)]
    starts_at: Time
    ends_at: Time
    created_by: Author
    reason: Reason = msgspec.field(name="comment")
    id: str = ""

    @property
    def key(self) -> str:
        """For the audit log."""
        return ", ".join(self.texts())

    def texts(self) -> list[str]:
        """The matchers, as our silences have them."""
        return [each.own() for each in self.matchers]

    def edits(self, silence: Silence, now: float) -> bool:
        """True if it changes this silence without changing what it has suppressed so far: else another one replaces it,
        as in Alertmanager."""
        starts = self.starts_at.timestamp()
        same_start = abs(starts - silence.starts) < 1.0 if silence.starts <= now else starts >= now
        return same_start and silence.ends > now and self.matchers == list(map(LabelMatcher.of, silence.matchers))


class PostedSilence(msgspec.Struct, kw_only=True):
    """The id of the silence: a new one if the silence was replaced."""

    silence_id: str = msgspec.field(name="silenceID")


class SilenceStatus(msgspec.Struct, kw_only=True):
    """Whether it is in effect."""

    state: SilenceState


class GettableSilence(msgspec.Struct, kw_only=True, rename="camel"):
    """A silence."""

    id: str
    status: SilenceStatus
    updated_at: str
    comment: str
    created_by: str
    starts_at: str
    ends_at: str
    matchers: list[LabelMatcher]
    annotations: Labels = {}


class SilencesFilter(msgspec.Struct, kw_only=True):
    """Silences with all of these matchers. Other fields are ignored."""

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


class ReceiverName(msgspec.Struct, frozen=True):
    """A publisher."""

    name: str


class GettableAlert(msgspec.Struct, kw_only=True, rename="camel"):
    """An alert that fires."""

    annotations: Labels
    ends_at: str
    fingerprint: str
    receivers: list[ReceiverName]
    starts_at: str
    status: AlertState
    updated_at: str
    labels: Labels
    generator_url: str = msgspec.field(name="generatorURL")


class AlertsFilter(msgspec.Struct, kw_only=True):
    """Alerts that match, of these states, and for a publisher whose whole name matches `receiver`. Other fields are
    ignored: no alert is inhibited or unprocessed."""

    filter: list[str] = []
    active: bool = True
    silenced: bool = True
    receiver: str = ""


class AlertmanagerStatus(msgspec.Struct, kw_only=True, rename="camel"):
    """The status of the receiver; `config` has the publishers, without their settings."""

    cluster: dict[str, str | list[str]]
    version_info: dict[str, str]
    config: dict[str, str]
    uptime: str


class AlertmanagerApi(Handlers):
    """The handlers."""

    def __init__(self, app: AlertsRuntime) -> None:
        super().__init__(app)
        self._since = time.time()

    async def status(self, call: Call[None, None]) -> AlertmanagerStatus:
        """The status, with the publishers as a configuration of Alertmanager."""
        version = {"version": VERSION, "revision": __version__, "branch": "solely"}
        unknown = dict.fromkeys(("buildUser", "buildDate", "goVersion"), "")
        return AlertmanagerStatus(
            cluster={"status": "disabled", "peers": []},
            version_info=version | unknown,
            config={"original": _configuration(self._app.settings.publishers)},
            uptime=_text(self._since),
        )

    async def receivers(self, call: Call[None, None]) -> list[ReceiverName]:
        """Lists the publishers."""
        return [ReceiverName(each.name) for each in self._app.publishers]

    async def alerts(self, call: Call[None, AlertsFilter]) -> list[GettableAlert]:
        """Lists alerts that fire, by fingerprint."""
        query, is_wanted = call.query, _receivers(call.query.receiver)
        matchers = [LabelMatcher.parse(text).own() for text in query.filter]
        found = map(self._gettable, await self._app.open_alerts.list(matchers=matchers, limit=MOST_ALERTS))
        states = {"active": query.active, "suppressed": query.silenced}
        chosen = [each for each in found if states[each.status.state] and is_wanted(each.receivers)]
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
            receivers=[ReceiverName(each.name) for each in self._app.publishers if each.wants(alert)],
            status=AlertState(state="suppressed" if silences else "active", silenced_by=silences),
        )

    async def silences(self, call: Call[None, SilencesFilter]) -> list[GettableSilence]:
        """Lists silences: those in effect, then those that are to start, then those that ended, the next change first.
        Each has all matchers of the filter."""
        query, silences = call.query, self._app.silences
        wanted = set(map(LabelMatcher.parse, query.filter))
        rows = await silences.list(limit=MOST) + (await silences.list(ended=True, limit=MOST) if query.expired else [])
        found = [each for each in map(_silence, rows) if wanted.issubset(each.matchers)]
        by_state = {state: [each for each in found if each.status.state == state] for state in STATES}
        by_state["pending"].sort(key=lambda each: each.starts_at)
        return [each for state in STATES if getattr(query, state) for each in by_state[state]]

    async def silence(self, call: Call[None, None]) -> GettableSilence:
        """Reads a silence."""
        return _silence(await self._read(call.params["id"]))

    async def post(self, call: Call[PostableSilence, None]) -> PostedSilence:
        """Adds a silence, edits it, or replaces it by another one, which then applies before the first one ends."""
        body, silences, now = call.body, self._app.silences, time.time()
        by, starts, ends = body.created_by or call.principal.name, body.starts_at.timestamp(), body.ends_at.timestamp()
        old = await self._read(body.id) if body.id else None
        if old is not None and body.edits(old, now):
            edited = await silences.edit(old.id, old.matchers, starts=starts, ends=ends, by=by, reason=body.reason)
            if edited is not None:
                return PostedSilence(silence_id=edited.id)
        new = await silences.add(body.texts(), starts=max(starts, now), ends=ends, by=by, reason=body.reason)
        if old is not None:
            await silences.expire(old.id, by=call.principal.name, reason=f"replaced by {new.id}")
        return PostedSilence(silence_id=new.id)

    async def delete(self, call: Call[None, None]) -> Response:
        """Ends a silence; one that has ended stays as it is."""
        old, who = await self._read(call.params["id"]), call.principal.name
        if old.ends > time.time():
            await call.service.audit.record(who, call.route.name, old.id, old.reason)
            await self._app.silences.expire(old.id, by=who, reason=ENDED)
        return Response()

    async def _read(self, id: str) -> Silence:
        found = await self._app.silences.read(id)
        if found is None:
            raise Problem(UNKNOWN, f"silence {id!r:.80} not found")
        return found


def _silence(silence: Silence) -> GettableSilence:
    now = time.time()
    state: SilenceState = "expired" if silence.ends <= now else "pending" if silence.starts > now else "active"
    return GettableSilence(
        id=silence.id,
        status=SilenceStatus(state=state),
        updated_at=_text(silence.ends if silence.ended_by else silence.made),
        comment=silence.reason,
        created_by=silence.made_by,
        starts_at=_text(min(silence.starts, silence.ends)),
        ends_at=_text(silence.ends),
        matchers=list(map(LabelMatcher.of, silence.matchers)),
    )


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


def _receivers(pattern: str) -> Callable[[Sequence[ReceiverName]], bool]:
    """A function that is true if one of the names matches; InvalidInput if the pattern is invalid."""
    check_pattern(pattern)
    known = re.compile(pattern)
    return lambda names: not pattern or any(known.fullmatch(each.name) for each in names)


def _configuration(publishers: Sequence[PublisherSettings]) -> str:
    """Which publisher gets which alerts, as a configuration of Alertmanager (JSON is YAML), without secrets."""
    routes = [
        {"receiver": each.name, "continue": True, "matchers": [str(Matcher(*test)) for test in tests]}
        for each in publishers
        for severity in each.match.severities or ("",)
        for tests in [
            [("severity", "=", severity)] * bool(severity)
            + [(name, "=", value) for name, value in each.match.labels.items()]
        ]
    ]
    receivers = [{"name": name} for name in (NOBODY, *(each.name for each in publishers))]
    known = {"route": {"receiver": NOBODY, "routes": routes}, "receivers": receivers}
    return json.dumps(known, indent=2, ensure_ascii=False)


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes below /api/v2/; that which receives alerts is among the inputs."""
    api, route = AlertmanagerApi(app), partial(Route, tag="alerts", text_errors=True)
    silence = "/api/v2/silence/{id}"
    unknown = (UNKNOWN,)
    return [
        route("GET", "/api/v2/status", READ, api.status, "The status, for amtool"),
        route("GET", "/api/v2/receivers", READ, api.receivers, "List publishers, as Alertmanager does"),
        route("GET", "/api/v2/alerts", READ, api.alerts, "List alerts that fire, as Alertmanager does"),
        route("GET", "/api/v2/silences", READ, api.silences, "List silences, as Alertmanager does"),
        route("GET", silence, READ, api.silence, "Read a silence, as Alertmanager does", refusals=unknown),
        route(
            "POST",
            "/api/v2/silences",
            ADMIN,
            api.post,
            "Add or edit a silence, as Alertmanager does",
            refusals=unknown,
            again="Adds another one; with an id, edits it again.",
        ),
        route(
            "DELETE",
            silence,
            ADMIN,
            api.delete,
            "End a silence, as Alertmanager does",
            refusals=unknown,
            again="Safe: it has ended.",
            audits=True,
        ),
    ]
