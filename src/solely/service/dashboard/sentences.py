"""Events as people read them: a sentence for each; and many of the same sort, within a moment, as one line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlencode

from ..event_words import in_words
from ..feed import EventRecord
from ..routes import Answer

MOMENT = 2.0  # seconds within which events are counted together: about as much as a reader sees at once
MANY = 5  # events of the same sort within a moment from which they are one line

_LAST_PART = re.compile(r"[^:/._-]*$")


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


def _sentence(same: list[EventRecord]) -> str:
    """What happened, in words: with the details that all these events of one sort share."""
    words = [in_words(each.event, each.facts) for each in same]
    shared = [detail for detail in words[0].details if all(detail in each.details for each in words)]
    return f"{words[0].word} {', '.join(shared)}".strip()


def _one(event: EventRecord) -> EventLine:
    key, link = _known_as(event)
    return EventLine(
        id=event.id, at=event.at, since=event.at, count=1, event=event.event, kind=event.kind, key=key,
        sentence=_sentence([event]), fence=event.facts.get("fence"), link=link,
    )  # fmt: skip


def _many(same: list[EventRecord]) -> EventLine:
    newest = same[0]
    key, link = _known_as(newest)
    if any(each.key != newest.key for each in same):
        key, link = _beginning(key) + "*", ""
    return EventLine(
        id=newest.id, at=newest.at, since=same[-1].at, count=len(same), event=newest.event, kind=newest.kind, key=key,
        sentence=_sentence(same), fence=None, link=link,
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
