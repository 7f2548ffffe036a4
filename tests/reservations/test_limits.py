"""Limits: never more than so many in any window, over threads, tasks and keys, and a hit can be given back."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import solely
from solely import events
from solely.testing.clock import ManualClock
from tests.client.away import switched
from tests.client_modes import result_of
from tests.reservations.conftest import Together

HOUR = 3_600


async def test_as_many_as_the_limit_and_then_when_to_ask_again(once: Any, other: Any, clock: ManualClock) -> None:
    for hits in (1, 2):
        answer = await result_of(once.limit("api", limit=2, per=10))
        assert answer
        assert (answer.allowed, answer.hits, answer.retry_after) == (True, hits, 0.0)
        assert answer.or_raise() is answer
        clock.advance(1)
    refused = await result_of(other.limit("api", limit=2, per=10))
    assert not refused
    assert (refused.hits, refused.retry_after) == (2, 8.0)
    with pytest.raises(solely.Limited, match="the next is allowed in 8") as limited:
        refused.or_raise()
    assert (limited.value.key, limited.value.left) == ("api", 8.0)
    assert await result_of(other.limit("other", limit=2, per=10))
    clock.advance(8)
    assert await result_of(other.limit("api", limit=2, per=10))


async def test_undo_gives_the_hit_back_once(once: Any, other: Any) -> None:
    answer = await result_of(once.limit("api", limit=1, per=10))
    refused = await result_of(other.limit("api", limit=1, per=10))
    assert await result_of(refused.undo()) is False
    assert await result_of(answer.undo()) is True
    assert await result_of(answer.undo()) is False
    assert await result_of(other.limit("api", limit=1, per=10))


async def test_a_limit_is_exact_among_many_at_once(once: Any, other: Any, together: Together) -> None:
    calls = [partial(client.limit, "api", limit=7, per=HOUR) for client in [once, other] * 20]
    answers = await together(calls)
    assert sum(map(bool, answers)) == 7
    assert {answer.hits for answer in answers if not answer} == {7}


async def test_the_limits_of_reservations_are_exact_among_many_at_once(
    once: Any, other: Any, together: Together, clock: ManualClock
) -> None:
    """Sixty at once, for twenty keys of one group: too much may be refused for a moment, never granted."""
    granted = 0
    terms: dict[str, Any] = {"quiet": 0, "limit": 2, "per": HOUR, "group": ("all", 5, HOUR)}

    calls = [partial((once, other)[n % 2].reserve, f"alert-{n % 20}", **terms) for n in range(60)]
    answers = await together(calls)
    for answer in filter(None, answers):
        await result_of(answer.record())
        granted += 1
    assert granted <= 5
    for n in range(20):
        answer = await result_of(once.reserve(f"late-{n}", **terms))
        if answer:
            await result_of(answer.record())
            granted += 1
    assert granted == 5  # what was refused for a moment was given back, to the last hit
    clock.advance(HOUR)
    assert await result_of(once.reserve("alert-0", **terms))


async def test_the_store_says_how_large_a_limit_it_keeps_exactly(once: Any, store_url: str) -> None:
    most = 1_000 if store_url.startswith("mongodb") else 10_000
    assert await result_of(once.limit("api", limit=most, per=10))
    assert await result_of(once.reserve("cpu", limit=most, per=10, group=("all", most, 10)))
    for call in (
        partial(once.limit, "api", limit=most + 1, per=10),
        partial(once.reserve, "b", limit=most + 1, per=10),
        partial(once.reserve, "b", group=("all", most + 1, 10)),
    ):
        with pytest.raises(solely.InvalidInput, match=f"limit={most + 1} is out of bounds; give 1 to {most}"):
            await result_of(call())


async def test_events_and_a_store_that_is_away(mode: str, open_client: Callable[..., Any]) -> None:
    heard: list[events.Event] = []
    store = switched(mode, "memory://")
    once = open_client(store=store, on_outage="proceed", timeout=0.05, hooks=[heard.append])
    for _ in range(2):
        await result_of(once.limit("api", limit=1, per=10))
    assert heard == [events.Limited("limit/api", True), events.Limited("limit/api", False)]
    store.away = True
    answer = await result_of(once.limit("api", limit=1, per=10))
    assert answer
    assert await result_of(answer.undo()) is False
    assert once.failed_open == 1
