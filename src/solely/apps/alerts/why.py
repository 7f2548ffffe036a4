"""Why was I not told? All that keeps, or kept, an alert of a fingerprint from people, in one answer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ...flows.deadletter import Letter
from ...flows.queue import ItemInfo
from ...model import State
from ...rules import MAX_TTL, seconds
from ...service.dashboard.telling import at, span
from ...service.routes import Answer
from .lookback import Suppressed, Told
from .model import RESOLVED, Alert
from .outbox import QUEUE, RETRIES
from .parking import GROUP
from .settings import table
from .silences import Silence
from .windows import Window, key_of_resolved, of_fingerprint, prefix_of

if TYPE_CHECKING:
    from .app import App

SEARCHED = 1_000  # items and letters in which those of a fingerprint are looked for; where there are more, it says so
SEVERITIES = 50  # of one fingerprint that may wait: more than anybody has
RECENT = 20  # notifications that are shown
_QUIET = "quiet"


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
    again, or until whoever tries it right now (`state` held) has given up."""

    id: str
    publisher: str
    severity: str
    state: State
    left: float
    attempts: int


class Dead(Answer):
    """A notification that this publisher could not be told of: a dead letter, which can be replayed."""

    id: str
    publisher: str
    severity: str
    error: str
    at: float


class Why(Answer):
    """`verdict` says it in sentences, what counts most first. `complete` is false if there were so many waiting items
    or dead letters that not all of them were looked at."""

    fingerprint: str
    verdict: list[str]
    silences: list[Silence]
    windows: list[Window]
    limits: list[Limit]
    waiting: list[Waiting]
    dead_letters: list[Dead]
    suppressed: list[Suppressed]
    last_told: float | None
    recent: list[Told]
    complete: bool


async def why(app: App, fingerprint: str) -> Why:
    """All that is known. Reads only; what this worker has not yet written of its history is written first."""
    history, once = app.history, app.service.once
    await history.flush()
    windows, outbox, retries, letters = await asyncio.gather(
        of_fingerprint(once, history, fingerprint),
        _in_outbox(app, fingerprint),
        once.queue(RETRIES).list(limit=SEARCHED),
        once.dead_letters(GROUP).list(limit=SEARCHED),
    )
    samples = await history.samples(fingerprint)
    told = Why(
        fingerprint=fingerprint,
        verdict=[],
        silences=_silences(app, fingerprint, samples),
        windows=windows,
        limits=[limit for alert in samples for limit in await _limits(app, alert)],
        waiting=[_waiting(item) for item in (*outbox, *retries) if fingerprint_in(item.payload) == fingerprint],
        dead_letters=[_dead(letter) for letter in letters if fingerprint_in(letter.payload) == fingerprint],
        suppressed=await history.suppressed_counts(fingerprint=fingerprint),
        last_told=await history.last_told(fingerprint),
        recent=await history.recent(fingerprint=fingerprint, limit=RECENT),
        complete=len(retries) < SEARCHED and len(letters) < SEARCHED,
    )
    told.verdict = verdict(told, time.time())
    return told


async def _in_outbox(app: App, fingerprint: str) -> list[ItemInfo]:
    """What waits under the keys of this fingerprint."""
    queue = app.service.once.queue(QUEUE)
    resolved = await queue.read(key_of_resolved(fingerprint))
    firing = await queue.list(after=prefix_of(fingerprint), limit=SEVERITIES)
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
    if isinstance(payload, bytes):
        payload = msgspec.json.decode(payload)
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
    )


def _dead(letter: Letter) -> Dead:
    return Dead(
        id=letter.id,
        publisher=_publisher(letter.payload),
        severity=str(alert_in(letter.payload).get("severity", "")),
        error=letter.last_error.removeprefix(f"{_publisher(letter.payload)}: "),
        at=letter.last_at.timestamp(),
    )


# -- in sentences


def verdict(told: Why, now: float) -> list[str]:
    """What keeps it from people now, what did so, or that nothing does."""
    now_kept = [
        *(_of_silence(each) for each in told.silences),
        *(_of_waiting(each) for each in told.waiting),
        *(_of_window(each) for each in told.windows),
        *(_of_limit(each) for each in told.limits if each.reached),
    ]
    said = [*now_kept, *(_of_dead(each) for each in told.dead_letters)]
    if not now_kept:
        said.append("Nothing keeps it back now: the next firing alert is told.")
    return [*said, _of_the_past(told, now)]


def _of_silence(silence: Silence) -> str:
    return f"Silenced until {at(silence.ends)} by {silence.made_by}: {silence.reason}"


def _of_window(window: Window) -> str:
    which = "That it is over" if window.status == RESOLVED else f"Severity {window.severity}"
    if window.reason != _QUIET:
        return f"{which} is being sent right now, by {window.who or 'another'}; if that fails, it is sent again."
    return f"{which} was told and is quiet for {span(window.left)} more."


def _of_limit(limit: Limit) -> str:
    which = f"Severity {limit.severity}, over all alerts," if limit.shared else f"Severity {limit.severity}"
    return f"{which} is at its limit: {limit.told} told in the last {span(limit.per)}, where {limit.limit} may be."


def _of_waiting(waiting: Waiting) -> str:
    if waiting.state is State.HELD:
        whom = f" to {waiting.publisher}" if waiting.publisher else ""
        return f"A notification is being published{whom} right now (attempt {waiting.attempts})."
    whom = f"{waiting.publisher} is" if waiting.publisher else "people are"
    when = f"in {span(waiting.left)}" if waiting.left > 0 else "in a moment"
    return f"A notification waits: {whom} told {when}, after {_times(waiting.attempts)} tried."


def _of_dead(dead: Dead) -> str:
    whom = dead.publisher or "any publisher"
    return f"A notification could not be told to {whom} and is a dead letter: {dead.error}"


def _of_the_past(told: Why, now: float) -> str:
    if told.last_told is not None:
        return f"Last told {span(now - told.last_told)} ago, at {at(told.last_told)}{_suppressed(told)}."
    if told.suppressed or told.recent:
        return "It came in, and nobody was told of it so far."
    return "No alert of this fingerprint is remembered: is it spelled as its sender does?"


def _suppressed(told: Why) -> str:
    count = sum(each.count for each in told.suppressed)
    return f"; {count} {'was' if count == 1 else 'were'} suppressed, as far as is remembered" if count else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
