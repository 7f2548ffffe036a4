"""How small records are kept as bytes: watermarks, breakers, fences, counts, letters, items, records of the audit log.

Each has a writer, or is written by its flow, and a reader. A reader raises ValueError for bytes that no writer of ours
writes: so it also says which bytes may be written (`kinds.py`). The outcomes of claims are in `values.py`.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import Any

from .errors import InvalidInput

WatermarkValue = int | datetime

_LEAST, _MOST = -(2**63), 2**63 - 1  # what every store's neighbours (SQL, JSON, APIs) can hold as a number
_NUMBER, _TIME = b"i", b"t"  # what a stored watermark begins with
MAX_FENCE = 2**63 - 1  # the largest that every guarded resource can keep: BIGINT, BSON int64
FENCE_DIGITS = len(str(MAX_FENCE))
OWNER_BYTES = 32  # of a queue item: the owner of its push, as hex digits
# Even, so that a breaker at the largest number is closed: one that was forged to be open can still be closed.
MAX_STANDING = 10**12 - 2

_STANDING = re.compile(rb"([0-9]{12})\.([0-9]{4})")
_FENCE = re.compile(rb"[0-9]{%d}" % FENCE_DIGITS)
_FAILURE = re.compile(rb"[0-9]{20} [0-9]{10} (\{.*\})", re.DOTALL)
_NOTE = re.compile(rb"[0-9]{10} (\{.*\})", re.DOTALL)

_SENT = {"sent": int, "last": str, "fence": int}
_RECORD = {"id": str, "at": float, "who": str, "action": str, "key": str, "reason": str}
_AGAIN = {"attempts": int, "last_error": str, "last_at": str, "mark": int}
_LETTER = {**_AGAIN, "group": str, "key": str, "first_error": str, "first_at": str, "origin": str}


def _object(text: bytes) -> dict[str, Any]:
    """The JSON object; ValueError if it is none."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError(f"a JSON object is wanted, not {text!r:.40}")
    return found


def _shaped(facts: dict[str, Any], shape: dict[str, type]) -> dict[str, Any]:
    """The facts, if they have these names and types; ValueError else."""
    for name, wanted in shape.items():
        found = facts.get(name)
        if type(found) is not wanted or (type(found) is int and not 0 <= found <= _MOST):  # a bool is no number
            raise ValueError(f"{name} must be {wanted.__name__}, not {found!r:.40}")
    if len(facts) != len(shape):
        raise ValueError(f"it has other fields than {', '.join(shape)}")
    return facts


def _moment(text: str) -> datetime:
    """The time in ISO 8601; ValueError if it is none, or has no time zone."""
    at = datetime.fromisoformat(text)
    if at.utcoffset() is None:
        raise ValueError(f"{text!r:.40} has no time zone")
    return at


# -- watermarks and the like


def write_watermark(value: WatermarkValue) -> bytes:
    """The value as bytes that sort as the values do; InvalidInput if it is neither a whole number nor an aware time."""
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise InvalidInput(f"a watermark's time must be aware: {value!r} has no time zone; use datetime.now(UTC)")
        try:
            utc = value.astimezone(UTC)
        except OverflowError:
            raise InvalidInput(f"{value!r} is before year 1 or after year 9999 in UTC") from None
        return _TIME + utc.replace(tzinfo=None).isoformat(timespec="microseconds").encode()
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"a watermark is an int or an aware datetime, not {type(value).__name__}: {value!r:.80}")
    if not _LEAST <= value <= _MOST:
        raise InvalidInput(f"a watermark's number must fit into 64 bits; {value} does not")
    return _NUMBER + f"{value - _LEAST:020}".encode()


def read_watermark(text: bytes) -> WatermarkValue:
    """The value that was written."""
    try:
        if text[:1] == _TIME:
            value: WatermarkValue = datetime.fromisoformat(text[1:].decode()).replace(tzinfo=UTC)
        else:
            value = int(text[1:]) + _LEAST
        if write_watermark(value) == text:
            return value
    except ValueError:
        pass
    raise ValueError(f"{text!r:.40} is no watermark")


def write_standing(number: int, wins: int) -> bytes:
    """Where a breaker stands, as bytes that sort as the standings do."""
    return b"%012d.%04d" % (number, wins)


def read_standing(text: bytes) -> tuple[int, int]:
    """The number and the wins that were written."""
    found = _STANDING.fullmatch(text)
    if found is None or int(found[1]) > MAX_STANDING:
        raise ValueError(f"{text!r:.40} is no standing of a breaker")
    return int(found[1]), int(found[2])


def read_fence(text: bytes) -> int:
    """The fence that was written as digits."""
    if not _FENCE.fullmatch(text) or not 0 < int(text) <= MAX_FENCE:
        raise ValueError(f"{text!r:.40} is no fence")
    return int(text)


# -- reservations, letters, items, records


def read_sent(text: bytes) -> dict[str, Any]:
    """How often a reservation's key was sent, when last and under which fence."""
    facts = _shaped(_object(text), _SENT)
    if facts["last"]:
        datetime.fromisoformat(facts["last"])
    return facts


def read_letter(text: bytes) -> dict[str, Any]:
    """The facts of a dead letter, with its payload and its times as such."""
    facts = _object(text)
    if "bytes" in facts:
        facts["payload"] = base64.b64decode(str(facts.pop("bytes")), validate=True)
    payload = facts.pop("payload", ...)
    if payload is ...:
        raise ValueError("it has no payload")
    facts = _shaped(facts, _LETTER)
    times = {name: _moment(facts[name]) for name in ("first_at", "last_at")}
    return {**facts, **times, "payload": payload}


def read_failure(text: bytes) -> dict[str, Any]:
    """The facts of a dead letter's last failure, which are kept beside it."""
    found = _FAILURE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.40} is no failure of a letter")
    facts = _shaped(_object(found[1]), _AGAIN)
    return {**facts, "last_at": _moment(facts["last_at"])}


def read_item(kept: bytes) -> Any:
    """The payload of a queue item, behind the owner of its push and the byte that tells its form."""
    form, body = kept[OWNER_BYTES : OWNER_BYTES + 1], kept[OWNER_BYTES + 1 :]
    if form == b"b":
        return body
    if form != b"j":
        raise ValueError(f"{form!r} tells no form of a payload")
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def read_record(text: bytes) -> dict[str, Any]:
    """A record of the audit log."""
    return _shaped(_object(text), _RECORD)


def read_note(text: bytes) -> dict[str, Any]:
    """How far the replay of many letters is."""
    found = _NOTE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.40} is no note of a replay")
    return _object(found[1])


def read_nothing(text: bytes) -> None:
    """That there is nothing to read."""
    if text:
        raise ValueError(f"nothing is kept here, not {text!r:.40}")
