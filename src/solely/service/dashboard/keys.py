"""The page of one key: what it is, who holds it, who waits, what people can do about it, and what happened to it."""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from ...data import Position
from ...errors import SolelyError
from ...explanations.flow import Side
from ...holder import details_of, facts_of, who_of
from ...model import Entry, State
from ...ops import Read
from ..api.entries import ExplainedSide, explained_side
from ..history.journal import EventHistory
from ..history.recorder import BUDGET, SAMPLES
from ..history.records import KeyWaiter
from ..history.timeline import TimelineEntry, timeline
from ..problems import UNKNOWN, Problem
from ..routes import Answer, Call, Route
from .entries import CLAIMS, LOCKS, MARKS, RESERVATIONS, performed, result
from .links import PLACES, key_link
from .rendering import READ_PAGE, Page, View, show
from .state import HoldDurations

FRESH = 0.3  # seconds that the view is shared: less than the interval of a live page
LINES = 100  # events of a page of the timeline
RESULT = 4000  # characters of a result: a screen

# kind → under which the store has it, or its events
STORED = {"limit": "limited", "schedule": "tick"}
RECORDED = {"schedule": "tick"}
_ACTS = {of.kind: of.act for of in (LOCKS, CLAIMS, RESERVATIONS, MARKS)}
_WORDS = {  # what a state means for this kind
    "lock": {"held": "held", "free": "free", "closed": "closed"},
    "claim": {"held": "running", "done": "done", "free": "not claimed", "closed": "closed"},
    "reservation": {"held": "sending", "done": "quiet", "free": "free", "closed": "closed"},
    "mark": {"done": "seen", "free": "not seen"},
    "item": {"held": "taken", "closed": "delayed", "free": "waiting", "done": "done"},
    "limit": {"held": "refuses calls", "free": "allows calls"},
    "schedule": {"held": "running", "done": "waiting for its next tick", "free": "due", "closed": "closed"},
    "watermark": {"done": "set", "free": "not set"},
    "breaker": {"done": "known", "free": "closed"},
}


class KeyView(View):
    """The view of a key; `key` is for names that a path cannot have, and `after` continues the timeline."""

    key: Annotated[str, msgspec.Meta(max_length=600)] = ""
    after: Annotated[str, msgspec.Meta(max_length=100)] = ""


class KeyHolder(Answer):
    """Who holds the key, as it was stored with the hold, or as the history has it. Null and empty are unknown."""

    who: str
    name: str
    host: str
    pid: int | None
    address: str
    purpose: str
    details: dict[str, str]
    since: float | None


class KeyAct(Answer):
    """What the viewer can do about the key, and the form for it."""

    verb: str
    path: str
    means: str


class OtherKind(Answer):
    """Something else that is stored under the same name."""

    kind: str
    state: State
    link: str


class KeyPage(Answer):
    """A key of one kind. `ends` is on the wall clock of the service, `full` the most time that it had left as far as
    was seen; `waiters` are processes that wait at the store, `waiting` callers that wait through this service; `next`
    continues the timeline."""

    kind: str
    key: str
    state: State
    word: str
    holder: KeyHolder | None
    side: ExplainedSide | None
    ends: float | None
    full: float | None
    fence: int
    attempts: int
    refused: int
    waiters: int
    waiting: list[KeyWaiter]
    result: str | None
    why: list[str]
    acts: list[KeyAct]
    others: list[OtherKind]
    timeline: list[TimelineEntry]
    next: str | None
    history: HistoryNote


class HistoryNote(Answer):
    """What the timeline can have: events of the last `keep` seconds, at most `most` of all keys. `dropped` were not
    kept for lack of room, `problem` says why none are."""

    keep: float
    most: int
    per_second: int
    samples: int
    dropped: int
    problem: str


async def one_key(call: Call[None, KeyView]) -> object:
    """The page of a key."""
    kind, key = call.params["kind"], call.params.get("key") or call.query.key
    if kind not in PLACES or not key:
        raise Problem(UNKNOWN, f"There are no pages of {kind!r:.40}; there are those of {', '.join(PLACES)}.")
    page = Page(f"{kind.capitalize()} {key}", "solely:key.html", PLACES[kind])
    after = call.query.after
    views = call.service.dashboard.views
    who = call.principal.scope

    async def load() -> KeyPage:
        return await views.share(("key", kind, key, after, who), FRESH, lambda: _load(call, kind, key, after))

    return await show(call, page, load)


async def _load(call: Call[None, KeyView], kind: str, key: str, after: str) -> KeyPage:
    stored = f"{STORED.get(kind, kind)}/{key}"
    found: Any = await performed(call, Read(stored))
    entry: Entry = found
    explanation = await call.service.once.explain(key) if len(key.encode()) <= 512 else None
    sides = () if explanation is None else explanation.sides
    side = next((each for each in sides if each.kind == kind), None)
    history = call.service.history
    events, waiting, problem = await _recorded(history, RECORDED.get(kind, kind), key, after)
    left = entry.left if 0 < entry.left < float("inf") else None
    now = time.time()
    return KeyPage(
        kind=kind,
        key=key,
        state=entry.state,
        word=_WORDS.get(kind, {}).get(entry.state.value, entry.state.value),
        holder=_holder(kind, entry, events),
        side=None if side is None else explained_side(side),
        ends=None if left is None else now + left,
        full=None if left is None else _full(call.service.dashboard.durations, entry, left),
        fence=entry.fence,
        attempts=entry.attempts,
        refused=entry.refused,
        waiters=entry.waiters,
        waiting=waiting,
        result=result(entry, RESULT),
        why=[side.why] if side is not None and side.why else [],
        acts=_acts(call, kind, key, entry),
        others=_others(kind, key, sides),
        timeline=timeline(events, now),
        next=str(Position(events[-1].at, events[-1].id)) if len(events) == LINES else None,
        history=_note(history, problem),
    )


async def _recorded(history: EventHistory, kind: str, key: str, after: str) -> tuple[list[Any], list[KeyWaiter], str]:
    """Events, waiters, and why there are none: the rest of the page does not need the data database."""
    try:
        return await history.events(kind, key, after, LINES), await history.waiting(kind, key), history.problem
    except SolelyError as error:
        return [], [], f"the data database is unavailable: {error}"


def _note(history: EventHistory, problem: str) -> HistoryNote:
    dropped, per_second = history.dropped(), int(BUDGET / history.EVERY)
    samples = int(SAMPLES / history.EVERY)
    common: Any = {"per_second": per_second, "samples": samples, "dropped": dropped, "problem": problem}
    return HistoryNote(keep=history.keep, most=history.most, **common)


def _full(durations: HoldDurations, entry: Entry, left: float) -> float:
    since = facts_of(entry.info).get("since")
    age = time.time() - since if isinstance(since, int | float) else None
    return durations.full(entry.key, entry.fence, left, age)


def _holder(kind: str, entry: Entry, events: list[Any]) -> KeyHolder | None:
    """Who holds it or finished it; of an item, who took it, as the history has it: a store does not."""
    if entry.state is State.FREE or kind == "limit":
        return None
    facts = facts_of(entry.info)
    if who := who_of(entry.info) or entry.info:
        return KeyHolder(
            who=who,
            name=str(facts.get("name") or ""),
            host=str(facts.get("host") or ""),
            pid=facts.get("pid") or None,
            address=str(facts.get("address") or ""),
            purpose=str(facts.get("purpose") or ""),
            details=details_of(entry.info),
            since=facts.get("since"),
        )
    taken = (each for each in events if each.event in ("taken", "acquired") and each.fence == entry.fence)
    last = next(taken, None) if kind == "item" and entry.state is State.HELD else None
    if last is None:
        return None
    nothing: Any = {"name": "", "host": "", "pid": None, "address": "", "purpose": "", "details": {}}
    return KeyHolder(who=last.who, since=last.at, **nothing)


def _acts(call: Call[None, KeyView], kind: str, key: str, entry: Entry) -> list[KeyAct]:
    act = _ACTS.get(kind)
    if act is None or entry.state in (State.FREE, State.CLOSED):
        return []
    path = f"{act.page}?{urlencode({'key': key, 'fence': entry.fence}, errors='replace')}"
    return [KeyAct(verb=act.verb, path=path, means=act.means)]


def _others(kind: str, key: str, sides: tuple[Side, ...]) -> list[OtherKind]:
    """What else the name stands for. An item has its queue's name in its own, so it is listed by that page alone."""
    known = [side for side in sides if side.kind != kind and side.kind != "item" and side.known]
    return [OtherKind(kind=side.kind, state=side.state, link=key_link(key, side.kind)) for side in known]


ROUTES = [
    Route("GET", "/keys/{kind}/{key...}", READ_PAGE, one_key, hidden=True),
    Route("GET", "/keys/{kind}", READ_PAGE, one_key, hidden=True),
]
