"""The stored form of small records: watermarks, breakers, fences, counts, letters, items, runs, audit records.

A record is written here or by its flow, and read here. A reader raises ValueError for bytes that Solely does not write,
so it also defines which bytes may be written (`kinds.py`). The outcomes of claims are in `values.py`.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import Any

from .errors import InvalidInput

WatermarkValue = int | datetime

_LEAST, _MOST = -(2**63), 2**63 - 1  # 64 bits: what SQL, JSON readers and other APIs can hold as a number
_NUMBER, _TIME = b"i", b"t"  # the first byte of a stored watermark
MAX_FENCE = 2**63 - 1  # the largest that every guarded resource can store: BIGINT, BSON int64
FENCE_DIGITS = len(str(MAX_FENCE))
OWNER_BYTES = 32  # of a queue item: the owner of its push, as hex digits
# Even, so that a breaker at the largest number is closed: even a forged open breaker can still be closed.
MAX_BREAKER = 10**12 - 2

RUN_DIGITS = 17  # of a time in µs since 1970: enough until the year 5138

_BREAKER = re.compile(rb"([0-9]{12})\.([0-9]{4})")
_FENCE = re.compile(rb"[0-9]{%d}" % FENCE_DIGITS)
_FAILURE = re.compile(rb"[0-9]{20} [0-9]{10} (\{.*\})", re.DOTALL)
_NOTE = re.compile(rb"[0-9]{10} (\{.*\})", re.DOTALL)
_RUN = re.compile(rb"([0-9]{%d}) (\{.*\})" % RUN_DIGITS, re.DOTALL)

_SENT = {"sent": int, "last": str, "fence": int}
_RECORD = {"id": str, "at": float, "who": str, "action": str, "key": str, "reason": str}
_LAST_RUN = {
    "tick": int, "next": int, "opens": int, "began": int, "took": float, "outcome": str, "by": str, "plan": str,
    "missed": int,
}  # fmt: skip
_AGAIN = {"attempts": int, "last_error": str, "last_at": str, "mark": int}
_LETTER = {**_AGAIN, "group": str, "key": str, "first_error": str, "first_at": str, "origin": str}


def _object(text: bytes) -> dict[str, Any]:
    """The JSON object; raises ValueError if the text is not one."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError(f"it must be a JSON object, not {text!r:.40}")
    return found


def _shaped(facts: dict[str, Any], shape: dict[str, type]) -> dict[str, Any]:
    """The facts, if they have exactly these names and types; else raises ValueError."""
    for name, wanted in shape.items():
        found = facts.get(name)
        if type(found) is not wanted or (type(found) is int and not 0 <= found <= _MOST):  # a bool is not a number
            raise ValueError(f"{name} must be {wanted.__name__}, not {found!r:.40}")
    if len(facts) != len(shape):
        raise ValueError(f"it has other fields than {', '.join(shape)}")
    return facts


def _moment(text: str) -> datetime:
    """Parses an ISO 8601 time; raises ValueError if it is invalid or has no time zone."""
    at = datetime.fromisoformat(text)
    if at.utcoffset() is None:
        raise ValueError(f"{text!r:.40} has no time zone")
    return at


# -- watermarks and the like


def write_watermark(value: WatermarkValue) -> bytes:
    """The value as bytes that sort like the values; raises InvalidInput unless it is an int or an aware datetime."""
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
    """The value of a stored watermark."""
    try:
        if text[:1] == _TIME:
            value: WatermarkValue = datetime.fromisoformat(text[1:].decode()).replace(tzinfo=UTC)
        else:
            value = int(text[1:]) + _LEAST
        if write_watermark(value) == text:
            return value
    except ValueError:
        pass
    raise ValueError(f"{text!r:.40} is not a watermark")


def write_breaker(number: int, wins: int) -> bytes:
    """The state of a breaker as bytes that sort like the states."""
    return b"%012d.%04d" % (number, wins)


def read_breaker(text: bytes) -> tuple[int, int]:
    """The number and the wins of a stored breaker state."""
    found = _BREAKER.fullmatch(text)
    if found is None or int(found[1]) > MAX_BREAKER:
        raise ValueError(f"{text!r:.40} is not the state of a breaker")
    return int(found[1]), int(found[2])


def read_fence(text: bytes) -> int:
    """The fence of a guarded resource, stored as digits."""
    if not _FENCE.fullmatch(text) or not 0 < int(text) <= MAX_FENCE:
        raise ValueError(f"{text!r:.40} is not a fence")
    return int(text)


# -- reservations, letters, items, records


def read_sent(text: bytes) -> dict[str, Any]:
    """The send counts of a reservation key: how often, when last, and under which fence."""
    facts = _shaped(_object(text), _SENT)
    if facts["last"]:
        datetime.fromisoformat(facts["last"])
    return facts


def read_letter(text: bytes) -> dict[str, Any]:
    """The facts of a dead letter, with its payload decoded and its times parsed."""
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
    """The facts of a dead letter's last failure, which is a record of its own."""
    found = _FAILURE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.40} is not the failure of a letter")
    facts = _shaped(_object(found[1]), _AGAIN)
    return {**facts, "last_at": _moment(facts["last_at"])}


def read_item(kept: bytes) -> Any:
    """The payload of a queue item, which follows the owner of its push and the form byte."""
    form, body = kept[OWNER_BYTES : OWNER_BYTES + 1], kept[OWNER_BYTES + 1 :]
    if form == b"b":
        return body
    if form != b"j":
        raise ValueError(f"{form!r} is not a payload form")
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def read_record(text: bytes) -> dict[str, Any]:
    """A record of the audit log; older ones have no outcome."""
    facts = _object(text)
    return _shaped(facts, _RECORD | ({"outcome": str} if "outcome" in facts else {}))


def read_note(text: bytes) -> dict[str, Any]:
    """The progress of a replay of many letters."""
    found = _NOTE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.40} is not the progress of a replay")
    return _object(found[1])


def write_run(settled: int, facts: dict[str, Any]) -> bytes:
    """How far a schedule has come, and its last run, as bytes that sort like the times until which it has."""
    return b"%0*d %b" % (RUN_DIGITS, settled, json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode())


def read_run(text: bytes) -> dict[str, Any]:
    """The last run of a schedule; `settled` is the time until which all its ticks are decided. In µs since 1970."""
    found = _RUN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.40} is not the state of a schedule")
    return {**_shaped(_object(found[2]), _LAST_RUN), "settled": int(found[1])}


def read_nothing(text: bytes) -> None:
    """Checks that the value is empty."""
    if text:
        raise ValueError(f"the value must be empty, not {text!r:.40}")
