"""Events as people read them: a sentence for each; and many of the same sort, within a moment, as one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote, urlencode

from ..feed import EventRecord
from ..routes import Answer
from .formatting import ms, span

MOMENT = 2.0  # seconds within which events are counted together: about as much as a reader sees at once
MANY = 5  # events of the same sort within a moment from which they are one line
WAITED = 0.05  # seconds of waiting that are worth a word

Facts = dict[str, Any]
_LAST_PART = re.compile(r"[^:/._-]*$")
_DETAILS = re.compile(r" after |, again in |, attempt |: held by | for \d")  # what differs among events of one sort


class EventLine(Answer):
    """One event, or `count` of the same sort between `since` and `at`. `key` is that of the event, or the beginning
    that the keys have in common, as people know it; `sentence` says what happened, `fence` in which hold. `link` is the
    page of an item or a dead letter."""

    id: int
    at: float
    since: float
    count: int
    event: str
    kind: str
    key: str
    sentence: str
    fence: int | None
    link: str


def event_lines(events: Iterable[EventRecord]) -> list[EventLine]:
    """The events, which come newest first, as lines, newest first."""
    sorts: dict[tuple[Any, ...], list[EventRecord]] = {}
    for each in events:
        sort = (int(each.at / MOMENT), each.event, each.kind, _beginning(each.key), _outcome(each))
        sorts.setdefault(sort, []).append(each)
    lines = list[EventLine]()
    for same in sorts.values():
        lines += [_many(same)] if len(same) >= MANY else map(_one, same)
    return sorted(lines, key=lambda line: line.id, reverse=True)


def sentence(event: EventRecord) -> str:
    """What happened, in words."""
    write = SENTENCES.get(event.event)
    return write(event.facts) if write else event.event.replace("_", " ")


def _one(event: EventRecord) -> EventLine:
    key, link = _known_as(event)
    return EventLine(
        id=event.id, at=event.at, since=event.at, count=1, event=event.event, kind=event.kind, key=key,
        sentence=sentence(event), fence=event.facts.get("fence"), link=link,
    )  # fmt: skip


def _many(same: list[EventRecord]) -> EventLine:
    newest = same[0]
    key, link = _known_as(newest)
    if any(each.key != newest.key for each in same):
        key, link = _beginning(key) + "*", ""
    return EventLine(
        id=newest.id, at=newest.at, since=same[-1].at, count=len(same), event=newest.event, kind=newest.kind, key=key,
        sentence=_without_details(newest), fence=None, link=link,
    )  # fmt: skip


def _known_as(event: EventRecord) -> tuple[str, str]:
    """The key as people know it, and a page that no kind of key has: an item is stored under the name of its queue."""
    if event.kind != "item":
        return event.key, ""
    stored, _, id = event.key.partition("/")
    sort, _, queue = unquote(stored).partition(":")
    path, of = {"queue": ("/queues/item", "queue"), "dead": ("/dead-letters/letter", "group")}.get(sort, ("", ""))
    return f"{queue}/{id}", path and f"{path}?{urlencode({of: queue, 'id': id}, errors='replace')}"


def _beginning(key: str) -> str:
    """The key without its last part: `demo:charge:` of `demo:charge:order-17`."""
    return _LAST_PART.sub("", key.rpartition(":")[0] + ":" if ":" in key else key)


def _outcome(event: EventRecord) -> Any:
    """What tells events of one name apart, beside their key."""
    return tuple(event.facts.get(name) for name in ("first", "allowed", "outcome", "reason", "superseded", "how"))


def _without_details(event: EventRecord) -> str:
    """The sentence for many events: without what differs among them."""
    return _DETAILS.split(sentence(event), maxsplit=1)[0]


# -- sentences


def _lasting(seconds: float) -> str:
    return ms(seconds) if seconds < 1 else span(seconds)


def _waited(facts: Facts) -> str:
    return f" after waiting {_lasting(facts['waited'])}" if facts.get("waited", 0.0) >= WAITED else ""


def _claimed(facts: Facts) -> str:
    again = f", attempt {facts['attempt']}" if facts.get("attempt", 1) > 1 else ""
    return f"won the right to run{_waited(facts)}{again}"


def _contended(facts: Facts) -> str:
    by = f": held by {facts['holder']}" if facts.get("holder") else ""
    return f"refused{_waited(facts)}{by}"


def _released(facts: Facts) -> str:
    late = "" if facts["outcome"] in ("released", "acked") else f", too late: {facts['outcome']}"
    return f"released after {_lasting(facts['held'])}{late}"


def _published(facts: Facts) -> str:
    late = ", too late: another result is final" if facts["superseded"] else ""
    return f"published its result after {_lasting(facts['held'])}{late}"


def _suppressed(facts: Facts) -> str:
    why = {"reserved": "another sends it now", "quiet": "it was sent a while ago", "limited": "over the limit"}
    return f"suppressed: {why.get(facts['reason'], facts['reason'])}, again in {_lasting(facts['retry_after'])}"


def _tick(facts: Facts) -> str:
    return f"ran its tick: {facts['outcome']}, after {_lasting(facts['took'])}, {_lasting(facts['late'])} late"


SENTENCES: dict[str, Callable[[Facts], str]] = {
    "acquired": lambda facts: f"acquired{_waited(facts)}",
    "contended": _contended,
    "renewed": lambda facts: f"renewed for {span(facts['left'])}",
    "lost": lambda facts: f"lost under its holder: {facts['how']}",
    "released_lease": _released,
    "cleared": lambda facts: f"ended by an admin: {facts['reason']}",
    "marked": lambda facts: "seen for the first time" if facts["first"] else "seen before, so skipped",
    "retried": lambda facts: f"{facts['op']} was not answered, and is sent again: {facts['error']}",
    "claimed": _claimed,
    "published": _published,
    "replayed": lambda facts: f"answered with the kept result{_waited(facts)}",
    "mismatched": lambda facts: "refused: the key came again with another payload",
    "timed_out": lambda facts: f"gave up after {_lasting(facts['waited'])}: the work still runs",
    "reserved": lambda facts: "reserved",
    "recorded": lambda facts: f"recorded as sent after {_lasting(facts['held'])}",
    "suppressed": _suppressed,
    "limited": lambda facts: "allowed by its limit" if facts["allowed"] else "refused: over its limit",
    "dead_lettered": lambda facts: f"parked in {facts['group']} after {facts['attempts']} attempts",
    "rewound": lambda facts: f"rewound from {facts['before']} to {facts['to']}: {facts['reason']}",
    "breaker_turned": lambda facts: f"breaker {facts['state']}",
    "tick_ended": _tick,
    "failed_open": lambda facts: f"proceeded without the store: {facts['what']}",
}
