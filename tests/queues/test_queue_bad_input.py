"""Bad input is a clear error before any store call."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely.queues.flow import TakenItem
from solely.queues.item import AsyncItem, Item
from tests.client_modes import refusing_client, result_of

LARGE = 256 * 1024 + 1
CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "id is empty": (lambda queue: queue.push("", 1), "id: a key must not be empty"),
    "id is no text": (lambda queue: queue.push(b"a", 1), "id: a key must be a str"),
    "id has NUL": (lambda queue: queue.push("a\0", 1), "contains NUL"),
    "id is too long": (lambda queue: queue.push("a" * 513, 1), "513 bytes"),
    "payload is a set": (lambda queue: queue.push("a", {1}), "bytes or JSON-serializable, not this set"),
    "payload has NaN": (lambda queue: queue.push("a", math.nan), "bytes or JSON-serializable, not this float"),
    "payload is too large": (lambda queue: queue.push("a", b"x" * LARGE), f"{LARGE} bytes; the maximum is 262144"),
    "text is too large": (lambda queue: queue.push("a", "x" * LARGE), "the maximum is 262144"),
    "delay is negative": (lambda queue: queue.push("a", 1, delay=-1), "delay=-1 is out of bounds"),
    "delay is a text": (lambda queue: queue.push("a", 1, delay="5"), "delay must be seconds"),
    "held: id is empty": (lambda queue: queue.push_held("", 1, ttl=10), "id: a key must not be empty"),
    "held: payload is a set": (
        lambda queue: queue.push_held("a", {1}, ttl=10),
        "bytes or JSON-serializable, not this set",
    ),
    "held: payload is too large": (lambda queue: queue.push_held("a", b"x" * LARGE, ttl=10), "the maximum is 262144"),
    "held: ttl 0": (lambda queue: queue.push_held("a", 1, ttl=0), "ttl=0 is out of bounds"),
    "take: ttl 0": (lambda queue: queue.take(ttl=0), "ttl=0 is out of bounds"),
    "take: ttl NaN": (lambda queue: queue.take(ttl=math.nan), "ttl is NaN"),
    "take: id is no text": (lambda queue: queue.take(ttl=10, id=7), "id: a key must be a str"),
    "take: id is None": (lambda queue: queue.take(ttl=10, id=None), "id: a key must be a str"),
    "read: id is empty": (lambda queue: queue.read(""), "id: a key must not be empty"),
    "list: after is no text": (lambda queue: queue.list(after=7), "after: a key must be a str"),
    "list: limit 0": (lambda queue: queue.list(limit=0), "limit must be an int from 1 to 1000"),
    "list: limit 1,001": (lambda queue: queue.list(limit=1_001), "limit must be an int from 1 to 1000"),
    "list: limit True": (lambda queue: queue.list(limit=True), "limit must be an int from 1 to 1000"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_bad_input_never_reaches_the_store(mode: str, call: str) -> None:
    ask, said = CALLS[call]
    with pytest.raises(solely.InvalidInput, match=said):
        await result_of(ask(refusing_client(mode).queue("jobs")))


@pytest.mark.parametrize("name", ["", "a" * 513, "a\0", "\ud800", b"jobs", None])
def test_a_queue_has_a_name(mode: str, name: Any) -> None:
    with pytest.raises(solely.InvalidInput, match=r"^queue: "):
        refusing_client(mode).queue(name)


async def test_a_bad_delay_leaves_the_item_in_hand(mode: str) -> None:
    taken = TakenItem("a", 1, 1, 7, "0" * 32, math.inf, False)
    item: Any = (Item if mode == "blocking" else AsyncItem)("jobs", taken, refusing_client(mode)._run)
    with pytest.raises(solely.InvalidInput, match="delay=-1 is out of bounds"):
        await result_of(item.give_back(delay=-1))
    assert item.remaining() > 0
