"""Groups, keys, options and results of signal generation: plain data."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from ... import RETRY, InvalidInput
from ...kit import plain_function

Signal = Any  # as the wrapped generator makes it; by default a JSON-serializable dict
Username = str | Callable[[Signal], str]
Outcome = Literal["generated", "contended", "refused", "unprotected", "off"]
OnOutage = Literal["refuse", "unprotected"]

LETTERS = "signals"  # the group of the dead letters
LEAST = 1.0  # seconds of a lock or a window: less than that, a busy process would lose them in the middle of a group
MAX_KEY = 480  # bytes: that of a key of the store, less what a namespace and the kind of a mark add
_LEAST_USERNAME = 2  # bytes in a key: a colon and a letter
MAX_HELD = 10  # lock ttls: a group takes under 5 s, so a generator that hangs gives its group up after five minutes


class SignalGroup(NamedTuple):
    """The unit of work: all credentials of one game of one house, which one process handles at a time."""

    house: str
    game: str

    @property
    def lock(self) -> str:
        """`signal:{house}:{game}`, with the parts encoded, so that no two groups share a key; InvalidInput if that
        leaves no room for a username."""
        return _bounded(f"signal:{_part(self.house)}:{_part(self.game)}", MAX_KEY - _LEAST_USERNAME)

    def key(self, username: str) -> str:
        """The key of a credential: it is marked for the window once its signal is written."""
        return _bounded(f"{self.lock}:{_part(username)}", MAX_KEY)


def _bounded(key: str, most: int) -> str:
    if len(key) > most:
        raise InvalidInput(
            f"house, game and username have more than {MAX_KEY} bytes in their key, {key!r:.80}…: shorten them; "
            "letters and digits of ASCII count as one byte, others as three for each of their bytes in UTF-8"
        )
    return key


def _part(text: object) -> str:
    if not isinstance(text, str) or not text:
        raise InvalidInput(f"house, game and username must be texts that are not empty, not {text!r:.80}")
    return quote(text, safe="")


def intent_key(key: str) -> str:
    """The key of the mark whose fence identifies the signal that this credential gets in the current window."""
    return f"id:{key}"


def signal_id(key: str, fence: int) -> str:
    """24 hex digits, as an ObjectId of MongoDB has them: the seconds and µs of the fence, so that ids sort by time,
    then a digest of key and fence."""
    return f"{_time(fence)}{hashlib.sha256(f'{key}@{fence}'.encode()).hexdigest()[:11]}"


def fresh_id() -> str:
    """An id of the same form that nobody else has."""
    return f"{_time(time.time_ns() // 1000)}{secrets.token_hex(6)[:11]}"


def _time(fence: int) -> str:
    """8 digits of seconds and 5 of µs: a fence is the wall clock of the store in µs."""
    seconds, rest = divmod(fence, 1_000_000)
    return f"{seconds & 0xFFFFFFFF:08x}{rest:05x}"


def _same(signal: Signal) -> Signal:
    return signal


def _signal_of(payload: dict[str, Any]) -> Signal:
    return payload["signal"]


def _same_name(name: str) -> str:
    return name


@dataclass(frozen=True, kw_only=True)
class SignalOptions:
    """How signals are generated. Durations are seconds; InvalidInput if `on_outage`, `ttl` or `window` is invalid.

    `username` is the field of a signal that names its credential, or a function that returns it. `dump` converts a
    signal to JSON for a dead letter; `load` makes it again of the letter's payload (`house`, `game`, `username`, `id`
    and the dumped `signal`). `own` puts the keys into a namespace. With `report_every=0` the caller calls `report`.
    """

    username: Username = "username"
    ttl: float = 30.0  # of the group's lock: a group takes under 5 s; a crashed process blocks it no longer than that
    window: float = 300.0  # in which a credential gets one signal
    cache_size: int = 10_000  # credentials remembered in memory: about 2 MB
    backoff: Iterable[float] = RETRY  # pauses before a failed write is repeated: 100, 200, 400 ms
    on_outage: OnOutage = "refuse"
    report_every: float = 60.0
    dump: Callable[[Signal], Any] = _same
    load: Callable[[dict[str, Any]], Signal] = _signal_of
    own: Callable[[str], str] = _same_name

    def __post_init__(self) -> None:
        if self.on_outage not in ("refuse", "unprotected"):
            raise InvalidInput(f"on_outage must be 'refuse' or 'unprotected', not {self.on_outage!r}")
        for name in ("ttl", "window"):
            if not getattr(self, name) >= LEAST:
                raise InvalidInput(f"{name} must be at least {LEAST:g} s, not {getattr(self, name)!r}")

        for name in ("username", "dump", "load", "own"):
            if not isinstance(getattr(self, name), str):
                plain_function(name, getattr(self, name))

    def username_of(self, signal: Signal) -> str:
        """The credential of the signal; raises what a signal of another form makes it raise."""
        name = signal[self.username] if isinstance(self.username, str) else self.username(signal)
        _part(name)
        return str(name)


@dataclass
class GroupResult:
    """What became of one group. Each signal of the generator is in one of the three counts.

    `outcome`: `generated`; `contended` if another process has the group, which is skipped; `refused` if the store is
    unreachable, with the `error`; `unprotected` if the old path ran instead; `off` if the flag is off.
    """

    group: SignalGroup
    outcome: Outcome = "generated"
    generated: int = 0
    deduplicated: int = 0
    dead_lettered: int = 0
    seconds: float = 0.0
    error: Exception | None = field(default=None, repr=False)


class PendingSignal(NamedTuple):
    """A signal that the generator made, with the key of its credential and, once it has one, its id."""

    key: str
    username: str
    signal: Signal
    group: SignalGroup
    id: str = ""

    def payload(self, dump: Callable[[Signal], Any]) -> dict[str, Any]:
        """What a dead letter keeps of it."""
        of = {"house": self.group.house, "game": self.group.game, "username": self.username, "id": self.id}
        return {**of, "signal": dump(self.signal)}
