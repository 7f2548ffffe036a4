"""Bad input, events, an absent store: what is told, and that nothing else happens."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import AsyncClient, ClaimOutcome, Client, events
from tests.claims.modes import guarded
from tests.client.refusing import AsyncRefusingStore, RefusingStore


class AwayStore(RefusingStore):
    def perform(self, ops: Any) -> Any:
        raise solely.StoreUnavailable("away")


class AsyncAwayStore(AsyncRefusingStore):
    def perform(self, ops: Any) -> Any:
        async def away() -> Any:
            raise solely.StoreUnavailable("away")

        return away()


@pytest.mark.parametrize(
    ("method", "args", "options", "why"),
    [
        ("claim", ("",), {}, "empty"),
        ("claim", ("k" * 513,), {}, "512"),
        ("claim", (7,), {}, "str"),
        ("claim", ("a",), {"ttl": 0}, "ttl"),
        ("claim", ("a",), {"wait": -1}, "wait"),
        ("claim", ("a",), {"keep": 0}, "keep"),
        ("claim", ("a",), {"keep": "day"}, "keep"),
        ("claim", ("a",), {"purpose": 7}, "purpose"),
        ("claim", ("a",), {"policy": "replay"}, "Policy"),
        ("claim", ("a",), {"fingerprint": object()}, "fingerprint"),
        ("claim_many", ("ab",), {}, "as a list"),
        ("claim_many", ([],), {"fingerprints": ["a"]}, "one per key"),
        ("claim_many", (["a"],), {"fingerprints": []}, "one per key"),
        ("reset", ("a",), {"expected": object()}, "JSON-serializable"),
    ],
)
async def test_bad_input_is_refused_before_anything_is_sent(method: str, args: Any, options: Any, why: str) -> None:
    with Client(store=RefusingStore()) as once, pytest.raises(solely.InvalidInput, match=why):
        getattr(once, method)(*args, **options)
    async with AsyncClient(store=AsyncRefusingStore()) as once_async:
        with pytest.raises(solely.InvalidInput, match=why):
            await getattr(once_async, method)(*args, **options)


async def test_events(open_client: Callable[..., Any], store_url: str) -> None:
    told: list[solely.Event] = []
    once = open_client(store_url, hooks=[told.append], cache=True)
    claim = await once.claim("a", fingerprint="x")
    await once.claim("a", wait=0)
    await claim.publish(1)
    await once.claim("a")
    with pytest.raises(solely.Mismatch):
        await once.claim("a", fingerprint="y")
    await (await once.claim("b", policy=solely.Policy(default=solely.Park(1, "g")))).fail(ValueError())
    await (await once.claim("c")).fail(ValueError())
    seen = [event for event in told if not isinstance(event, events.Renewed)]
    assert [type(event).__name__ for event in seen] == [
        "Claimed", "TimedOut", "Published", "Replayed", "Mismatched",
        "Claimed", "Published", "DeadLettered", "Claimed", "ReleasedLease",
    ]  # fmt: skip
    assert all(event.key == "claim/a" for event in seen[:5])
    assert isinstance(seen[0], events.Claimed)
    assert (seen[0].fence, seen[0].attempt) == (claim.fence, 1)
    assert isinstance(seen[3], events.Replayed)
    assert seen[3].cached


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
async def test_without_a_store_a_client_that_proceeds_runs_everything(
    open_client: Callable[..., Any], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = AwayStore() if kind == "blocking" else AsyncAwayStore()
    once = open_client(None, store=store, timeout=0.01, on_outage="proceed")
    with caplog.at_level(logging.WARNING, "solely"):
        claim = await once.claim("a")
        assert (claim.outcome, claim.unguarded, claim.fence, claim.attempt) == (ClaimOutcome.WON, True, 0, 1)
        told = await claim.publish(1)
        assert (told.published, told.superseded, told.value) == (False, False, 1)
        async with await once.claim("a") as again:
            assert again.won
        assert await (await once.claim("a")).fail(ValueError()) is solely.Failing.RELEASED
        assert [one.won for one in await once.claim_many(["a", "b"])] == [True, True]
        assert await guarded(once, lambda: 7, key="a")() == 7
    assert caplog.text.count("failed_open") == once.failed_open == 5


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
async def test_without_a_store_a_client_that_does_not_proceed_runs_nothing(
    open_client: Callable[..., Any], kind: str
) -> None:
    store = AwayStore() if kind == "blocking" else AsyncAwayStore()
    once = open_client(None, store=store, timeout=0.01)
    runs: list[int] = []
    with pytest.raises(solely.StoreUnavailable):
        await once.claim("a")
    with pytest.raises(solely.StoreUnavailable):
        await guarded(once, lambda: runs.append(1), key="a")()
    assert not runs


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
async def test_a_result_that_could_not_be_published_is_not_held_for_ever(
    open_client: Callable[..., Any], kind: str, store_url: str
) -> None:
    """The claim is renewed no more, so that it ends with its ttl; the caller is told what is not known."""
    once = open_client(store_url, timeout=0.5)
    inner = getattr(once, "it", once)

    ran: list[int] = []

    def work() -> int:
        ran.append(1)
        inner._store.perform = (AwayStore() if kind == "blocking" else AsyncAwayStore()).perform
        return 1

    with pytest.raises(solely.StoreUnavailable):
        await guarded(once, work, key="a")()
    assert ran == [1]
    assert not inner._context.keeper.holds
