"""Fingerprints: the same key with another payload is a Mismatch, finished or in flight, and has no effect."""

import asyncio
import time
from typing import Any

import pytest

import solely
from solely import State
from solely.claims.fingerprint import fingerprint
from solely.testing.clock import ManualClock
from tests.claims.modes import PROMPT, Peek

BODY = {"amount": 5, "card": {"number": "4711", "seen": 1}, "items": [{"sku": "a", "at": 1}, {"sku": "b", "at": 2}]}


def of(payload: Any, **options: Any) -> str:
    return fingerprint(payload, **options).of("claim/a")


@pytest.mark.parametrize(
    "other",
    [
        {"b": [1.0, {"d": None, "c": "é"}], "a": -0.0},
        {"a": 0.0, "b": (1, {"c": "\u00e9", "d": None})},
    ],
)
def test_equal_json_is_equal_whatever_its_order_and_numbers(other: Any) -> None:
    assert of({"a": 0, "b": [1, {"c": "é", "d": None}]}) == of(other)


def test_different_payloads_differ() -> None:
    payloads = ["", b"\xff", "1", 1, "1.5", 1.5, "null", True, [], {}, [[]], {"a": 1}, {"a": "1"}, {"a": [1]}, {"b": 1}]
    assert len({of(payload) for payload in payloads}) == len(payloads)
    assert of("text") == of(b"text")


def test_the_digest_is_keyed_by_the_secret_and_by_the_claim() -> None:
    plain, keyed, long = fingerprint("x"), fingerprint("x", secret=b"s"), fingerprint("x", secret=b"s" * 100)
    digests = {print.of(key) for print in (plain, keyed, long) for key in ("claim/a", "claim/b")}
    assert len(digests) == 6
    assert all(len(digest) == 32 for digest in digests)


def test_fields_are_included_and_excluded_by_path() -> None:
    changed = {**BODY, "card": {"number": "4711", "seen": 2}, "items": [{"sku": "a", "at": 8}, {"sku": "b", "at": 9}]}
    assert of(BODY) != of(changed)
    assert of(BODY, exclude=["card.seen", "items.at", "not.there"]) == of(changed, exclude=["card.seen", "items.at"])
    assert of(BODY, include=["amount", "items.sku"]) == of(changed, include=["amount", "items.sku"])
    assert of(BODY, include=["items"], exclude=["items.at"]) == of(changed, include=["items"], exclude=["items.at"])
    assert of(BODY, include=["items"]) != of(changed, include=["items"])
    assert of({"a": None}, include=["a"]) != of({}, include=["a"])
    assert of('{"a": 1, "t": 2}', exclude=["t"]) == of(b'{"t": 3, "a": 1.0}', exclude=["t"]) == of({"a": 1})


@pytest.mark.parametrize(
    ("payload", "options", "why"),
    [
        ({"a": object()}, {}, "JSON-serializable"),
        ({1: 2}, {}, "must be text"),
        ({"a": float("nan")}, {}, "JSON"),
        (fingerprint("x"), {}, "already"),
        ("{", {"include": ["a"]}, "is not"),
        ({}, {"include": "a"}, "not as one text"),
        ({}, {"exclude": ["a..b"]}, "path"),
        ({}, {"include": [1]}, "path"),
        ({}, {"secret": "text"}, "bytes"),
    ],
)
def test_what_cannot_be_fingerprinted_is_refused(payload: Any, options: Any, why: str) -> None:
    with pytest.raises(solely.InvalidInput, match=why):
        fingerprint(payload, **options)


def test_a_payload_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(solely.InvalidInput):
        fingerprint(endless)


async def test_another_payload_is_a_mismatch_in_flight_and_finished(once: Any, other: Any, peek: Peek) -> None:
    won = await once.claim("a", fingerprint={"amount": 5, "to": "x"})
    for client in (other, once):
        began = time.monotonic()
        with pytest.raises(solely.Mismatch, match="another payload") as refusal:
            await client.claim("a", fingerprint={"amount": 6, "to": "x"}, wait=30)
        assert time.monotonic() - began < PROMPT  # not after the winner
        assert refusal.value.key == "a"
        with pytest.raises(solely.Mismatch):
            await client.claim("a", fingerprint=b"other", wait=0)
    entry = peek("a")
    assert (entry.fence, entry.waiters, entry.attempts) == (won.fence, 0, 1)
    await won.publish("value")
    for client in (other, once):
        with pytest.raises(solely.Mismatch):
            await client.claim("a", fingerprint={"amount": 6, "to": "x"})
        assert (await client.claim("a", fingerprint={"to": "x", "amount": 5.0})).value == "value"
        assert (await client.claim("a")).value == "value"  # who gives none asks for whatever was asked for
    assert peek("a").fence == won.fence


async def test_a_mismatch_behind_others_of_this_process_is_told_at_once(once: Any, other: Any, peek: Peek) -> None:
    won = await other.claim("a", fingerprint="one")
    waiting = [asyncio.ensure_future(once.claim("a", fingerprint="one", wait=30)) for _ in range(3)]
    while peek("a").waiters == 0:
        await asyncio.sleep(0.005)
    began = time.monotonic()
    with pytest.raises(solely.Mismatch):
        await once.claim("a", fingerprint="two", wait=30)
    assert time.monotonic() - began < PROMPT
    assert peek("a").waiters == 1  # the others wait on
    await won.publish(1)
    assert [claim.value for claim in await asyncio.gather(*waiting)] == [1, 1, 1]


async def test_a_released_or_expired_claim_may_be_made_with_another_payload(
    once: Any, other: Any, clock: ManualClock, peek: Peek
) -> None:
    await (await once.claim("a", fingerprint="one")).release()
    late = await other.claim("a", fingerprint="two", ttl=1, renew=False)
    assert late.won
    clock.advance(1.01)
    assert (await once.claim("a", fingerprint="three", wait=0)).won
    assert peek("a").state is State.HELD


async def test_a_secret_fingerprint_is_accepted_by_claim(once: Any, other: Any) -> None:
    def keyed(body: Any) -> Any:
        return solely.fingerprint(body, exclude=["trace"], secret=b"pepper")

    await (await once.claim("a", fingerprint=keyed({"id": 1, "trace": 1}))).publish(1)
    assert (await other.claim("a", fingerprint=keyed({"id": 1, "trace": 2}))).cached
    with pytest.raises(solely.Mismatch):
        await other.claim("a", fingerprint={"id": 1})


async def test_callers_of_two_payloads_that_come_at_once(once: Any, other: Any) -> None:
    """Whoever wins, the others of its payload get its value and those of the other one are told at once."""
    calls = [client.claim("a", fingerprint=f"payload {n % 2}", wait=30) for n in range(10) for client in (once, other)]
    asking = [asyncio.ensure_future(call) for call in calls]
    done, waiting = set[Any](), set(asking)
    async with asyncio.timeout(PROMPT):
        while len(done) < 11:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= more
    (won,) = [task.result() for task in done if task.exception() is None]
    assert sum(isinstance(task.exception(), solely.Mismatch) for task in done) == len(done) - 1
    await won.publish(1)
    assert [claim.value for claim in await asyncio.wait_for(asyncio.gather(*waiting), PROMPT)] == [1] * 9
