"""Hands a dead letter over to another process: taken under a lease; a token then reports how the replay went."""

from __future__ import annotations

import base64
import json
from time import time
from typing import NamedTuple

from ..errors import InvalidInput
from ..flow import Flow
from ..leases.hold import Hold
from ..leases.token import Token, read_token, write_token
from ..model import Entry, State
from ..rules import local_clock
from .flow import Letter, inspect
from .replay import TTL, LetterHold

MAX_TOKEN = 32 * 1024  # characters: a lease's token, two names of 512 bytes, and a failure of 2,000 characters, escaped


class LetterInHand(NamedTuple):
    """A letter for another process to run. `token` reports how it went; `lease` renews the hold, which expires after
    30 s: then another caller may take the letter. Both are secrets."""

    letter: Letter
    token: str
    lease: str


def hand_over(taken: LetterHold) -> LetterInHand:
    """The taken letter, for another process to go on with."""
    letter, hold, before = taken
    lease = write_token(Token(hold.key, hold.owner, TTL, hold.fence, round(time(), 3), hold.fingerprint))
    kept = None if before is None else [base64.b64encode(before.value or b"").decode(), before.left]
    text = json.dumps([lease, letter.id, letter.fence, kept], ensure_ascii=False)
    return LetterInHand(letter, base64.urlsafe_b64encode(text.encode()).decode(), lease)


def read_hand_over(group: str, token: str) -> Flow[LetterHold | None]:
    """The taken letter of the token; None if it is gone. Raises InvalidInput at once if the token is invalid."""
    try:
        lease, id, fence, kept = json.loads(base64.urlsafe_b64decode(token[:MAX_TOKEN]))
        held, wanted = read_token(lease), int(fence)
        value, left = (base64.b64decode(kept[0]), float(kept[1])) if kept is not None else (b"", 0.0)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidInput("this is not the token of a dead letter; give what take() returned") from None
    before = None if kept is None else Entry(held.key, State.DONE, left=left, value=value)
    entry = Entry(held.key, State.HELD, held.fence, held.ttl, fingerprint=held.fingerprint)
    hold = Hold(held.key, held.owner, held.ttl, entry, local_clock(), True, local_clock)
    return _found(group, str(id), wanted, hold, before)


def _found(group: str, id: str, fence: int, hold: Hold, before: Entry | None) -> Flow[LetterHold | None]:
    letter = yield from inspect(group, id)
    return LetterHold(letter, hold, before) if letter is not None and letter.fence == fence else None
