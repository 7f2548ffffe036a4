"""Groups of dead letters: how many there are in each, and since when the oldest waits."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlencode

from ...dead_letters.flow import queue_of
from ...model import item_key
from ..routes import Answer, Call

COUNTED = 200  # letters of a group that are looked at for its count and its oldest; where there are more, it says so
MOST = 100  # groups
_LAST = "\U0010ffff"  # sorts behind every id


class Group(Answer):
    """A group: `more` if there are more letters than were counted, among which may be older ones. `replayable` if what
    runs them is here."""

    group: str
    letters: int
    more: bool
    oldest: float
    replayable: bool
    link: str


async def groups(call: Call[Any, Any]) -> list[Group]:
    """The groups that have letters, found by leaping from one to the next."""
    prefix, after, found = item_key(queue_of(""), "").rstrip("/"), "", list[Group]()
    while len(found) < MOST and (page := await call.service.store.scan(prefix, after, 1)):
        queue = page[0].key.split("/", 2)[1]
        after = f"item/{queue}/{_LAST}"
        name = unquote(queue).removeprefix(queue_of(""))
        letters = await call.service.once.dead_letters(name).list(limit=COUNTED)
        if letters:
            found.append(
                Group(
                    group=name,
                    letters=len(letters),
                    more=len(letters) == COUNTED,
                    oldest=min(letter.first_at for letter in letters).timestamp(),
                    replayable=name in call.service.desk.replays,
                    link=f"/dead-letters?{urlencode({'group': name})}",
                )
            )
    return found
