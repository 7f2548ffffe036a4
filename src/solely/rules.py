"""Pure rules: valid keys, ttls and waits; when to renew, when a lease is lost, how long to back off."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from .errors import InvalidInput

Seconds = float | int | timedelta
HOUR, DAY = 3_600.0, 86_400.0  # seconds

MAX_KEY_BYTES = 512  # fits an index row of every store, and a log line
MAX_INFO_BYTES = 1024  # who holds it, not what they do
MAX_VALUE_BYTES = 256 * 1024  # a result, not a file: put larger values into object storage, and their address here
MAX_KEPT = MAX_VALUE_BYTES + 1024  # of a value as stored: with its form byte, or with a letter's facts
MIN_TTL = 0.01  # seconds: several times what drift takes from a lease and what a round trip takes
DEFAULT_HOLD = 30.0  # seconds of a reservation: several times as long as a send takes
MAX_TTL = 366 * DAY  # a year; what must last longer is neither a lease nor a dedup window
MAX_WAIT = DAY  # work that waits longer than a day belongs in a queue

REMEMBER = 60.0  # seconds that a displaced owner is remembered: longer than a TCP stack keeps retrying a request
OFFER = 0.020  # seconds that a released key is offered to the first waiter: a slow loopback round trip with room
LOOK_AGAIN = 1.0  # seconds after which a waiter polls without a hint: a lost hint must not block it
POLL = 0.001, 0.010  # seconds: first and longest poll interval without push; half an OFFER, so that no offer is missed
COMPENSATE = 2.0  # seconds for the op that undoes an interrupted one, from when it may be sent
MIN_PATIENCE = 1.0  # seconds to wait for a request in flight, even if the timeout is shorter: a busy machine is slow
MAX_WAITERS = 1_000  # clients queued at one entry
MOST_LISTED = 1_000  # entries listed in one call: many pages of an admin's list
MAX_GONE = 128  # displaced owners remembered per entry: two per second of REMEMBER, more than honest cancels make

DRIFT_RATE = 0.01  # local and store clock may drift apart by 1 %: NTP slews at most 0.05 %, chrony rarely near 1 %
DRIFT_FLOOR = 0.002  # seconds: the resolution of both clocks and of scheduling, for very short leases

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": DAY}
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_SPAN = re.compile(rf"({_NUMBER.pattern})(ms|s|m|h|d)", re.ASCII)
_SPANS = re.compile(rf"(?:{_NUMBER.pattern}(?:ms|s|m|h|d))+", re.ASCII)

# A clock that counts suspend, so that a laptop that slept does not rely on an expired lease. macOS has no
# CLOCK_BOOTTIME, and its monotonic clock stops in sleep: there the store's refusal is the second line of defense.
local_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


def deadline(sent: float, left: float) -> float:
    """The local time at which a lease is lost: counted from before the try was sent, less the drift allowance."""
    return sent + left - (left * DRIFT_RATE + DRIFT_FLOOR)


def renewal(sent: float, ttl: float) -> float:
    """The local time to renew: half the ttl leaves time for several tries before the deadline."""
    return sent + ttl / 2


def backoff(attempt: int, *, first: float, longest: float, spread: float, chance: float) -> float:
    """Seconds before try `attempt` + 1: doubling from `first` up to `longest`, ± `spread`, by a chance in [0, 1)."""
    steady = min(longest, first * 2.0 ** min(attempt, 60))
    return float(steady * (1.0 + spread * (2.0 * chance - 1.0)))


def seconds(name: str, value: Seconds, *, least: float, most: float) -> float:
    """The duration as float seconds within [least, most]; else raises InvalidInput with the value and the bounds."""
    if type(value) is not float:
        if isinstance(value, timedelta):
            value = value.total_seconds()
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(f"{name} must be seconds (int or float) or a timedelta, not {value!r}")
        else:
            try:
                value = float(value)
            except OverflowError:  # an int of hundreds of digits
                value = math.inf if value > 0 else -math.inf
    if not least <= value <= most:
        given = f"{name} is NaN" if math.isnan(value) else f"{name}={_both(value)} is out of bounds"
        raise InvalidInput(f"{given}; {_bounds(least, most)}")
    return value


def _bounds(least: float, most: float) -> str:
    """What to give instead, in seconds as programs write them and in the units of people."""
    if most == math.inf:
        return f"give at least {_both(least)} seconds"
    return f"give seconds from {_both(least)} to {_both(most)}"


def _both(value: float) -> str:
    number, text = number_text(value), duration_text(value)
    return number if text == f"{number}s" else f"{number} ({text})"


def number_text(value: float) -> str:
    """The number as people write it: 31622400, where `:g` writes 3.16224e+07."""
    return f"{value:.12g}"


def duration_text(value: float) -> str:
    """The duration as people write it, and as `duration` reads it: 366d, 1h30m, 2.5s, 10ms; "ever" if it is
    infinite."""
    if not 0 <= value < math.inf:
        return "ever" if value > 0 else f"{number_text(value)}s"
    if 0 < value < 1:
        return f"{number_text(value * 1_000)}ms"
    parts, rest = [], value
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, _UNITS[unit])
        parts += [f"{count:.0f}{unit}"] if count else []
    return "".join(parts) + (f"{number_text(rest)}s" if rest or not parts else "")


def duration(text: str) -> float:
    """Parses "30s", "5m", "1h30m", "250ms", "7d" or "30" to seconds; raises InvalidInput for other text."""
    wanted = text.strip()
    if _NUMBER.fullmatch(wanted):
        return float(wanted)
    if not _SPANS.fullmatch(wanted):
        raise InvalidInput(f"{text!r:.80} is not a duration; write 30s, 5m, 1h30m, 250ms, 7d, or seconds")
    return sum(float(number) * _UNITS[unit] for number, unit in _SPAN.findall(wanted))


def ttl_seconds(value: Seconds, name: str = "ttl") -> float:
    """The time to live of a lease or mark in float seconds; raises InvalidInput if it is out of bounds."""
    if type(value) is float and MIN_TTL <= value <= MAX_TTL:
        return value
    return seconds(name, value, least=MIN_TTL, most=MAX_TTL)


def wait_seconds(value: Seconds) -> float:
    """The wait of a caller in float seconds; raises InvalidInput if it is out of bounds."""
    return seconds("wait", value, least=0.0, most=MAX_WAIT)


def stored_key(kind: str, key: str) -> str:
    """The stored key, `kind/key`; raises InvalidInput unless the key is a str of 1 to 512 bytes without NUL."""
    if not isinstance(key, str):
        raise InvalidInput(f"a key must be a str, not {type(key).__name__}: {key!r:.80}")
    if not key:
        raise InvalidInput("a key must not be empty; give it 1 to 512 bytes")
    if not key.isascii() or len(key) > MAX_KEY_BYTES:
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            raise InvalidInput(f"key {key!r:.80} cannot be encoded as UTF-8 (lone surrogate)") from None
        if size > MAX_KEY_BYTES:
            raise InvalidInput(f"key {key!r:.80} has {size} bytes; the maximum is {MAX_KEY_BYTES}; hash longer keys")
    if "\0" in key:
        raise InvalidInput(f"key {key!r:.80} contains NUL; remove it")
    return f"{kind}/{key}"


def checked_reason(reason: object) -> str:
    """The reason for ending what others hold, for the log; raises InvalidInput if it is empty."""
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInput(f"reason must be a non-empty text for the log, not {reason!r:.80}")
    return reason


def are_plain(keys: list[str]) -> bool:
    """True if all keys are surely valid; False if each must be checked alone. A fast path for thousands of keys."""
    try:
        text = "".join(keys)
    except TypeError:
        return False
    return text.isascii() and "\0" not in text and all(keys) and max(map(len, keys), default=0) <= MAX_KEY_BYTES


def bounded_value(value: bytes, most: int = MAX_VALUE_BYTES) -> bytes:
    """The value, if it is bytes within the bound; else raises InvalidInput."""
    if not isinstance(value, bytes):
        raise InvalidInput(f"a value must be bytes, not {type(value).__name__}")
    if len(value) > most:
        raise InvalidInput(
            f"the value has {len(value)} bytes; the maximum is {most}; store it elsewhere and keep its address"
        )
    return value


def checked_limit(limit: Any, most: int) -> int:
    """A limit that the store can count exactly; else raises InvalidInput."""
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidInput(f"limit must be an int, not {limit!r:.80}")
    if not 1 <= limit <= most:
        raise InvalidInput(f"limit={limit} is out of bounds; give 1 to {most}, which this store counts exactly")
    return limit


def page_size(limit: Any) -> int:
    """The number of entries to list in one call; raises InvalidInput if it is not an int within MOST_LISTED."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_LISTED:
        raise InvalidInput(f"limit must be an int from 1 to {MOST_LISTED}, not {limit!r:.80}")
    return limit


def checked_name(what: str, text: str) -> str:
    """The text, if it is valid as a key or a part of one; else raises InvalidInput."""
    try:
        stored_key("item", text)
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None
    return text
