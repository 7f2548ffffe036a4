"""Every noun lists what the store has of it, in key order, page by page: who, since when, for how long."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import solely
from solely import State
from solely.testing.clock import ManualClock
from tests.client_modes import refusing_client, result_of

BAD_PAGES: list[dict[str, Any]] = [
    {"limit": 0}, {"limit": 1001}, {"limit": "5"}, {"prefix": 7}, {"prefix": "k" * 513}, {"after": "\0"},
]  # fmt: skip
NOUNS = ["locks", "claims", "marks", "limits", "watermarks"]


@pytest.fixture
def once(open_client: Callable[..., Any], store_url: str, clock: ManualClock) -> Any:
    return open_client(store_url, clock=clock)


async def make(once: Any, noun: str, key: str) -> Any:
    """One of this noun, which is listed from then on."""
    if noun == "limits":
        await result_of(once.limit(key, limit=1, per=600))
        return await result_of(once.limit(key, limit=1, per=600))
    makers: dict[str, Callable[[], Any]] = {
        "locks": lambda: once.lock(key, ttl=600),
        "claims": lambda: once.claim(key, ttl=600),
        "marks": lambda: once.first(key, ttl=600),
        "watermarks": lambda: once.watermark(key).advance(7),
    }
    return await result_of(makers[noun]())


@pytest.mark.parametrize("noun", NOUNS)
async def test_a_list_has_the_keys_of_its_prefix_in_order_and_pages_have_no_gap(once: Any, noun: str) -> None:
    keys = [f"a/{number}" for number in range(5)]
    for key in [*reversed(keys), "b", "A"]:
        await make(once, noun, key)
    for other in NOUNS:
        await make(once, other, "a/other") if other != noun else None
    list_ = getattr(once, noun)
    assert [info.key for info in await result_of(list_("a/"))] == keys
    assert [info.key for info in await result_of(list_())] == ["A", *keys, "b"]
    pages, after = [], ""
    while page := await result_of(list_("a/", after=after, limit=2)):
        pages.append([info.key for info in page])
        after = page[-1].key
    assert pages == [keys[:2], keys[2:4], keys[4:]]
    assert await result_of(list_("nothing")) == []


@pytest.mark.parametrize("noun", ["locks", "claims"])
async def test_what_has_ended_takes_no_place_in_a_page(once: Any, noun: str) -> None:
    held = [await make(once, noun, f"k{number}") for number in range(6)]
    for each in held[:4]:
        await result_of(each.release())
    assert [info.key for info in await result_of(getattr(once, noun)(limit=2))] == ["k4", "k5"]


async def test_a_lock_says_who_holds_it_since_when_and_for_how_long(once: Any) -> None:
    lease = await result_of(once.lock("deploy", ttl=60, purpose="release 1.2"))
    (info,) = await result_of(once.locks())
    assert (info.state, info.fence, info.purpose, info.waiters) == (State.HELD, lease.fence, "release 1.2", 0)
    assert "(release 1.2)" in info.holder
    assert abs(datetime.now(UTC) - info.since) < timedelta(seconds=60)
    assert info.left == pytest.approx(60, abs=0.01)
    lease.keep_closed(600)
    await result_of(lease.release())
    (info,) = await result_of(once.locks())
    assert (info.state, info.holder) == (State.CLOSED, "")


async def test_a_claim_says_how_it_ended(once: Any) -> None:
    await result_of((await make(once, "claims", "good")).publish({"id": 1}))
    await result_of((await make(once, "claims", "none")).publish_tombstone("too large"))
    policy = solely.Policy(default=solely.Replay())
    failed = await result_of(once.claim("bad", policy=policy))
    await result_of(failed.fail(ValueError("no funds")))
    await make(once, "claims", "running")
    found = {info.key: info for info in await result_of(once.claims())}
    assert {key: (info.state, info.outcome) for key, info in found.items()} == {
        "good": (State.DONE, "published"),
        "none": (State.DONE, "not kept"),
        "bad": (State.DONE, "failed: ValueError: no funds"),
        "running": (State.HELD, ""),
    }
    assert (found["running"].attempts, found["running"].size, found["good"].size) == (1, 0, 9)


async def test_marks_expire_from_the_list_and_watermarks_stay(once: Any, clock: ManualClock) -> None:
    await make(once, "marks", "seen")
    await make(once, "watermarks", "poll")
    (mark,) = await result_of(once.marks())
    assert (mark.left, mark.fence > 0) == (pytest.approx(600, abs=0.01), True)
    clock.advance(601)
    assert await result_of(once.marks()) == []
    (watermark,) = await result_of(once.watermarks())
    assert (watermark.key, watermark.value, watermark.unreadable) == ("poll", 7, "")


async def test_a_limit_is_listed_while_it_refuses_calls(once: Any, clock: ManualClock) -> None:
    assert await result_of(once.limit("api", limit=1, per=600))
    assert await result_of(once.limits()) == []
    await result_of(once.limit("api", limit=1, per=600))
    (info,) = await result_of(once.limits())
    assert (info.key, info.limit, info.per, info.hits) == ("api", 1, 600.0, 1)
    assert info.left == pytest.approx(600, abs=0.01)
    clock.advance(601)
    assert await result_of(once.limits()) == []


@pytest.mark.parametrize("noun", NOUNS)
async def test_arguments_that_cannot_be_are_refused_before_anything_is_sent(mode: str, noun: str) -> None:
    once = refusing_client(mode)
    for arguments in (
        {"limit": 0},
        {"limit": 1001},
        {"limit": "5"},
        {"prefix": 7},
        {"prefix": "k" * 513},
        {"after": "\0"},
    ):
        with pytest.raises(solely.InvalidInput):
            await result_of(getattr(once, noun)(**arguments))
