"""Bad input is a clear error before any store call."""

import base64
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

import solely
from tests.client_modes import refusing_client, result_of

BAD_CALLS: dict[str, Callable[[Any], Any]] = {
    "empty key": lambda once: once.reserve(""),
    "key is no text": lambda once: once.reserve(b"a"),
    "hold 0": lambda once: once.reserve("a", hold=0),
    "hold NaN": lambda once: once.reserve("a", hold=math.nan),
    "hold is a list": lambda once: once.reserve("a", hold=[30]),
    "quiet negative": lambda once: once.reserve("a", quiet=-1),
    "quiet of 10 years": lambda once: once.reserve("a", quiet=10 * 366 * 86_400),
    "limit without per": lambda once: once.reserve("a", limit=5),
    "per without limit": lambda once: once.reserve("a", per=60),
    "limit 0": lambda once: once.reserve("a", limit=0, per=60),
    "limit True": lambda once: once.reserve("a", limit=True, per=60),
    "limit 1.5": lambda once: once.reserve("a", limit=1.5, per=60),
    "limit 10,001": lambda once: once.reserve("a", limit=10_001, per=60),
    "per 0": lambda once: once.reserve("a", limit=5, per=0),
    "group is a name": lambda once: once.reserve("a", group="all"),
    "group is a list": lambda once: once.reserve("a", group=["all", 5, 60]),
    "group of two": lambda once: once.reserve("a", group=("all", 5)),
    "group without name": lambda once: once.reserve("a", group=("", 5, 60)),
    "group with limit 0": lambda once: once.reserve("a", group=("all", 0, 60)),
    "group with per 0": lambda once: once.reserve("a", group=("all", 5, 0)),
    "max_hold 0": lambda once: once.reserve("a", max_hold=0),
    "purpose is no text": lambda once: once.reserve("a", purpose=7),
    "details are no mapping": lambda once: once.reserve("a", details=["id"]),
    "details are too long": lambda once: once.reserve("a", details={"id": "x" * 1_024}),
    "id is no text": lambda once: once.record_reservation(7),
    "id to release is no text": lambda once: once.release_reservation(None),
    "list: prefix": lambda once: once.reservations(7),
    "list: limit 0": lambda once: once.reservations(limit=0),
    "list: limit 1,001": lambda once: once.reservations(limit=1_001),
    "list: limit True": lambda once: once.reservations(limit=True),
    "expire: key": lambda once: once.expire_reservation("", reason="test"),
    "expire: no reason": lambda once: once.expire_reservation("a", reason=""),
    "clear: prefix": lambda once: once.clear_reservations(None, reason="test"),
    "clear: reason is no text": lambda once: once.clear_reservations("a", reason=7),
    "limit: empty key": lambda once: once.limit("", limit=5, per=60),
    "limit: 0": lambda once: once.limit("a", limit=0, per=60),
    "limit: text": lambda once: once.limit("a", limit="5", per=60),
    "limit: per negative": lambda once: once.limit("a", limit=5, per=-1),
}


def encoded(*facts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(facts).encode()).decode()


OWNER = "0" * 32
FORGED: dict[str, str] = {
    "empty": "",
    "words": "no such reservation",
    "not ASCII": "é",
    "not JSON": base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    "a lease's token": encoded("lock/a", OWNER, 30.0, 7),
    "another kind": encoded("lock/a", OWNER, 7, 300.0, []),
    "hits of another kind": encoded("reservation/a", OWNER, 7, 300.0, ["limit/a"]),
    "owner is none": encoded("reservation/a", "\ud800", 7, 300.0, []),
    "fence is none": encoded("reservation/a", OWNER, 1 << 70, 300.0, []),
    "no key": encoded("reservation/", OWNER, 7, 300.0, []),
    "lone surrogate": encoded("reservation/\ud800", OWNER, 7, 300.0, []),
    "quiet for ever": encoded("reservation/a", OWNER, 7, math.inf, []),
    "quiet NaN": encoded("reservation/a", OWNER, 7, math.nan, []),
    "endless fence": encoded("reservation/a", OWNER, math.inf, 300.0, []),
    "nested": base64.urlsafe_b64encode(b"[" * 9_000).decode(),
    "very long": "A" * 1_000_000,
}


@pytest.mark.parametrize("call", BAD_CALLS)
async def test_bad_input_never_reaches_the_store(mode: str, call: str) -> None:
    with pytest.raises(solely.InvalidInput) as error:
        await result_of(BAD_CALLS[call](refusing_client(mode)))
    assert str(error.value)


@pytest.mark.parametrize("name", FORGED)
async def test_an_id_that_is_none_of_ours_is_unknown_without_asking_the_store(
    mode: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    once = refusing_client(mode)
    with pytest.raises(solely.UnknownReservation):
        await result_of(once.record_reservation(FORGED[name]))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("Attempted to record with unknown reservation ID: ")
    assert len(line) < 200
    with pytest.raises(solely.UnknownReservation):
        await result_of(once.release_reservation(FORGED[name]))
