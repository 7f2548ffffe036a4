"""Why was I not told? All that keeps, or kept, an alert of a fingerprint from people, in one answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ....dead_letters.flow import Letter
from ....model import State
from ....queues.flow import ItemInfo
from ....rules import MAX_TTL, seconds
from ....service.routes import Answer
from ..model import OF_GROUP, Alert, Member, subject_of
from ..notifications.dead_letters import GROUP
from ..notifications.outbox import QUEUE, RETRIES
from ..records.history_queries import Suppressed, ToldAlert
from ..settings import table
from ..suppression.acknowledgements import Acknowledgement
from ..suppression.rules import FLAPPING
from ..suppression.silences import Silence
from .verdict import verdict
from .windows import Window, key_of_resolved, of_fingerprint, prefix_of

if TYPE_CHECKING:
    from ..app import App

T = TypeVar("T")

SEARCHED = 1_000  # items and letters in which those of a fingerprint are looked for; where there are more, it says so
SEVERITIES = 50  # of one fingerprint that may wait: more than anybody has
RECENT = 20  # notifications that are shown


class Limit(Answer):
    """At most `limit` in any `per` seconds are told, of this fingerprint or (`shared`) of all: `told` were."""

    severity: str
    shared: bool
    limit: int
    per: float
    told: int
    reached: bool


class Waiting(Answer):
    """A notification that is yet to be told, by all publishers or by this one: `left` seconds until it may be tried
    again, or until whoever tries it right now (`state` held) has given up. One that is `unreadable`, for this reason,
    becomes a dead letter when its turn comes."""

    id: str
    publisher: str
    severity: str
    state: State
    left: float
    attempts: int
    unreadable: str = ""


class Dead(Answer):
    """A notification that this publisher could not be told of: a dead letter, which can be replayed."""

    id: str
    publisher: str
    severity: str
    error: str
    at: float


class FiringGroup(Answer):
    """The group in which it comes, under what it is asked about itself, and which alerts of it fire."""

    name: str
    fingerprint: str
    firing: list[Member]


class Flaps(Answer):
    """It was last suppressed then since it opened more than `limit` times within `per` seconds."""

    limit: int
    per: float
    last: float


class Why(Answer):
    """`verdict` says it in sentences, what counts most first. `complete` is false if there were so many waiting items
    or dead letters that not all of them were looked at."""

    fingerprint: str
    verdict: list[str]
    silences: list[Silence]
    acknowledged: Acknowledgement | None
    group: FiringGroup | None
    windows: list[Window]
    flapping: Flaps | None
    limits: list[Limit]
    waiting: list[Waiting]
    dead_letters: list[Dead]
    suppressed: list[Suppressed]
    last_told: float | None
    recent: list[ToldAlert]
    complete: bool


async def why(app: App, fingerprint: str) -> Why:
    """All that is known. Reads only; what this worker has not yet written of its history is written first."""
    history, once = app.history, app.once
    await history.flush()
    samples = await history.samples(fingerprint)
    group = await _group(app, fingerprint, samples)
    subjects = list(dict.fromkeys((fingerprint, group.fingerprint) if group is not None else (fingerprint,)))
    windows, outbox, retries, letters = await asyncio.gather(
        _of_each(subjects, lambda subject: of_fingerprint(once, history, subject)),
        _of_each(subjects, lambda subject: _in_outbox(app, subject)),
        once.queue(RETRIES).list(limit=SEARCHED),
        once.dead_letters(GROUP).list(limit=SEARCHED),
    )
    suppressed = await history.suppressed_counts(fingerprint=fingerprint)
    holding = await asyncio.gather(*map(app.parts.acknowledgements.of_fingerprint, subjects))
    of_this = [item for item in retries if fingerprint_in(item.payload) == fingerprint]
    told = Why(
        fingerprint=fingerprint,
        verdict=[],
        silences=_silences(app, fingerprint, samples),
        acknowledged=next((each for each in holding if each is not None), None),
        group=group,
        windows=windows,
        flapping=_flaps(app, suppressed),
        limits=[limit for alert in samples for limit in await _limits(app, alert)],
        waiting=[_waiting(item) for item in (*outbox, *of_this)],
        dead_letters=[_dead(letter) for letter in letters if fingerprint_in(letter.payload) == fingerprint],
        suppressed=suppressed,
        last_told=await history.last_told(fingerprint),
        recent=await history.recent(fingerprint=fingerprint, limit=RECENT),
        complete=len(retries) < SEARCHED and len(letters) < SEARCHED,
    )
    told.verdict = verdict(told, time.time())
    return told


async def _of_each(subjects: list[str], look: Callable[[str], Awaitable[list[T]]]) -> list[T]:
    """What there is of the alert, and then of its group."""
    return [found for subject in subjects for found in await look(subject)]


async def _group(app: App, fingerprint: str, samples: list[Alert]) -> FiringGroup | None:
    """The group in which it last came, or which was asked about."""
    name = samples[0].group if samples else fingerprint.removeprefix(OF_GROUP)
    if not name or (not samples and name == fingerprint):
        return None
    like = Alert(name="", severity="", source="", fingerprint=fingerprint, group=name)
    return FiringGroup(name=name, fingerprint=subject_of(like), firing=list(await app.parts.groups.members(like)))


def _flaps(app: App, suppressed: list[Suppressed]) -> Flaps | None:
    """That it was damped, if that was so lately that it may still be."""
    limit, per = app.settings.flap_limit, app.settings.flap_per
    last = max((each.last for each in suppressed if each.reason == FLAPPING), default=0.0)
    return Flaps(limit=limit, per=per, last=last) if limit and last > time.time() - per else None


async def _in_outbox(app: App, fingerprint: str) -> list[ItemInfo]:
    """What waits under the keys of this fingerprint."""
    queue, prefix = app.once.queue(QUEUE), prefix_of(fingerprint)
    resolved = await queue.read(key_of_resolved(fingerprint))
    firing = [item for item in await queue.list(after=prefix, limit=SEVERITIES) if item.id.startswith(prefix)]
    return firing if resolved is None else [*firing, resolved]


def _silences(app: App, fingerprint: str, samples: list[Alert]) -> list[Silence]:
    """Those that keep an alert of this fingerprint back; one that was never seen is known by its fingerprint only."""
    alerts = samples or [Alert(name="", severity="", source="", fingerprint=fingerprint)]
    found = {silence.id: silence for alert in alerts for silence in app.silences.matching(alert)}
    return list(found.values())


async def _limits(app: App, alert: Alert) -> list[Limit]:
    """How near alerts like this one are to the limits of the settings, as far as the history tells."""
    severity, found = alert.severity, list[Limit]()
    policy = table(app.settings)[severity]
    if policy.limit is not None and policy.per is not None:
        per = seconds("per", policy.per, least=0.0, most=MAX_TTL)
        told = await app.history.told_since(time.time() - per, severity=severity, fingerprint=alert.fingerprint)
        found.append(_limit(severity, False, policy.limit, per, told))
    shared = next((each for name, each in app.settings.severity_limits.items() if _same_severity(name, severity)), None)
    if shared is not None:
        told = await app.history.told_since(time.time() - shared.per, severity=severity)
        found.append(_limit(severity, True, shared.limit, shared.per, told))
    return found


def _same_severity(name: str, severity: str) -> bool:
    """True if the settings mean this severity, however it is capitalised."""
    return name.casefold() == severity.casefold()


def _limit(severity: str, shared: bool, limit: int, per: float, told: int) -> Limit:
    return Limit(severity=severity, shared=shared, limit=limit, per=per, told=told, reached=told >= limit)


# -- what is in queues


def _notification(payload: Any) -> dict[str, Any]:
    """The notification in the payload of an item or a letter; empty if there is none."""
    found = payload.get("notification", payload) if isinstance(payload, dict) else {}
    return found if isinstance(found, dict) else {}


def alert_in(payload: Any) -> dict[str, Any]:
    """The alert in the payload of an item or a letter; empty if there is none."""
    found = _notification(payload).get("alert", {})
    return found if isinstance(found, dict) else {}


def fingerprint_in(payload: Any) -> str:
    """The fingerprint in the payload of an item or a letter; "" if there is none."""
    return str(alert_in(payload).get("fingerprint", ""))


def _publisher(payload: Any) -> str:
    return str(payload.get("publisher", "")) if isinstance(payload, dict) else ""


def _waiting(item: ItemInfo) -> Waiting:
    return Waiting(
        id=str(_notification(item.payload).get("id", item.id)),
        publisher=_publisher(item.payload),
        severity=str(alert_in(item.payload).get("severity", "")),
        state=item.state,
        left=item.left,
        attempts=item.attempts,
        unreadable=item.unreadable,
    )


def _dead(letter: Letter) -> Dead:
    return Dead(
        id=letter.id,
        publisher=_publisher(letter.payload),
        severity=str(alert_in(letter.payload).get("severity", "")),
        error=letter.last_error.removeprefix(f"{_publisher(letter.payload)}: "),
        at=letter.last_at.timestamp(),
    )
