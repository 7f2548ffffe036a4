"""What one process hands over another one takes over, once: a second resume of the token is refused, and nobody who had
it before can end it. On every store, for threads and asyncio, and for everything that has a token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import pytest

import solely
from solely import Busy, LeaseLost, Released, ReservationMismatch, StaleFence, State, UnknownReservation
from solely.events import Event, Lost, Resumed
from solely.fencing import FencedFile
from solely.leases.token import read_token, write_token
from solely.testing.clock import ManualClock
from tests.client_modes import result_of

AT_ONCE = 6  # callers that resume one token at the same time


class Noun(NamedTuple):
    """How something is won, handed over and resumed; `refused` is what a second resume raises."""

    win: Callable[[Any], Any]
    resume: Callable[[Any, str], Any]
    refused: type[solely.SolelyError]


async def _taken(once: Any) -> Any:
    await result_of(once.queue("jobs").push("a", {"n": 1}))
    return await result_of(once.queue("jobs").take(ttl=30))


NOUNS = {
    "lock": Noun(lambda once: once.lock("a", ttl=30), lambda once, token: once.resume(token), Busy),
    "claim": Noun(lambda once: once.claim("a", ttl=30), lambda once, token: once.resume_claim(token), Busy),
    "item": Noun(_taken, lambda once, token: once.queue("jobs").resume(token), Busy),
    "reservation": Noun(
        lambda once: once.reserve("a", hold=30),
        lambda once, token: once.resume_reservation(token),
        ReservationMismatch,
    ),
}
every_noun = pytest.mark.parametrize("noun", NOUNS.values(), ids=NOUNS)


@pytest.fixture
def clients(open_client: Callable[..., Any], store_url: str, clock: ManualClock) -> tuple[Any, Any, Any]:
    one, two, three = (open_client(store_url, clock=clock) for _ in range(3))
    return one, two, three


async def handed_over(noun: Noun, once: Any) -> tuple[Any, str]:
    """What was won, and the token that its winner handed over."""
    won = await result_of(noun.win(once))
    return won, str(won.hand_over())


# -- once


@every_noun
async def test_a_token_is_resumed_once(clients: tuple[Any, Any, Any], noun: Noun) -> None:
    here, there, elsewhere = clients
    won, token = await handed_over(noun, here)
    resumed = await result_of(noun.resume(there, token))
    assert resumed.fence > won.fence or noun is NOUNS["item"]  # whose fence is that of its push
    assert 0 < resumed.remaining() <= 30
    for client in (elsewhere, here, there):
        with pytest.raises(noun.refused):
            await result_of(noun.resume(client, token))
    assert resumed.remaining() > 0


@every_noun
async def test_of_many_who_resume_a_token_at_once_exactly_one_has_it(
    open_client: Callable[..., Any], store_url: str, clock: ManualClock, mode: str, noun: Noun
) -> None:
    clients = [open_client(store_url, clock=clock) for _ in range(AT_ONCE)]
    _, token = await handed_over(noun, clients[0])
    outcomes = await at_once(mode, [partial(noun.resume, client, token) for client in clients])
    resumed = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert len(resumed) == 1
    assert [type(error) for error in refused] == [noun.refused] * (AT_ONCE - 1)


async def at_once(mode: str, calls: list[Callable[[], Any]]) -> list[Any]:
    """The results or errors of the calls, all of which are made at the same time."""
    if mode == "asyncio":
        return await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    with ThreadPoolExecutor(len(calls)) as threads:
        loop = asyncio.get_running_loop()
        running = [loop.run_in_executor(threads, call) for call in calls]
        return await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize("noun", [NOUNS[name] for name in ("lock", "claim", "reservation")], ids=lambda noun: "")
async def test_the_refusal_names_who_holds_it(clients: tuple[Any, Any, Any], noun: Noun) -> None:
    here, there, elsewhere = clients
    _, token = await handed_over(noun, here)
    await result_of(noun.resume(there, token))
    with pytest.raises(noun.refused, match=r" pid \d+ since ") as refused:
        await result_of(noun.resume(elsewhere, token))
    assert refused.value.key == "a"
    if noun.refused is Busy:
        assert 0 < (refused.value.left or 0) <= 30
        assert " pid " in refused.value.holder


@every_noun
async def test_what_was_resumed_is_handed_over_again_by_its_own_token(
    clients: tuple[Any, Any, Any], noun: Noun
) -> None:
    here, there, elsewhere = clients
    _, first = await handed_over(noun, here)
    second = (await result_of(noun.resume(there, first))).hand_over()
    assert second != first
    resumed = await result_of(noun.resume(elsewhere, second))
    for token in (first, second):
        with pytest.raises(noun.refused):
            await result_of(noun.resume(here, token))
    assert resumed.remaining() > 0


@every_noun
async def test_a_token_whose_lease_has_ended_is_not_resumed(
    clients: tuple[Any, Any, Any], clock: ManualClock, noun: Noun
) -> None:
    here, there, _ = clients
    _, token = await handed_over(noun, here)
    clock.advance(31)
    with pytest.raises((Busy, UnknownReservation)):
        await result_of(noun.resume(there, token))
    again = await result_of(noun.win(there))  # by another caller
    assert again.remaining() > 0
    with pytest.raises((Busy, ReservationMismatch)):
        await result_of(noun.resume(here, token))


# -- the former holder


async def test_a_holder_that_did_not_let_go_learns_that_its_lease_was_resumed(
    open_client: Callable[..., Any], store_url: str, clock: ManualClock
) -> None:
    seen: list[Event] = []
    lost: list[str] = []
    here = open_client(store_url, clock=clock, hooks=[seen.append])
    there = open_client(store_url, clock=clock, hooks=[seen.append])
    lease = await result_of(here.lock("a", ttl=30, on_lost=lambda: lost.append("a")))
    resumed = await result_of(there.resume(lease.token))
    assert seen[-1] == Resumed("lock/a", resumed.fence, lease.fence)
    with pytest.raises(LeaseLost, match="another process resumed it"):
        await result_of(lease.renew())
    assert lease.lost_how == "resumed"
    assert Lost("lock/a", lease.fence, "resumed") in seen
    assert await result_of(lease.release()) is Released.RESUMED
    assert await result_of(there.try_lock("a")) is None  # nothing of that ended the new hold
    assert await result_of(resumed.release()) is Released.RELEASED
    if hasattr(lease, "__aenter__"):
        assert lost == ["a"]


async def test_a_block_whose_lease_was_resumed_raises_at_its_end(clients: tuple[Any, Any, Any]) -> None:
    here, there, _ = clients
    lease = await result_of(here.lock("a", ttl=30, on_lost="flag"))
    resumed = await result_of(there.resume(lease.token))
    with pytest.raises(LeaseLost, match="another process resumed it"):
        if hasattr(lease, "__aenter__"):
            async with lease:
                pass
        else:
            with lease:
                pass
    assert await result_of(resumed.release()) is Released.RELEASED


async def test_the_token_of_a_resumed_lease_neither_renews_nor_releases_it(
    clients: tuple[Any, Any, Any], clock: ManualClock
) -> None:
    here, there, _ = clients
    lease = await result_of(here.lock("a", ttl=30))
    token = lease.hand_over()
    resumed = await result_of(there.resume(token, renew=False))
    for waited in (0, 25, 25, 25):  # also when a minute has passed
        clock.advance(waited)
        await result_of(resumed.renew())
        with pytest.raises(LeaseLost, match="another process resumed it"):
            await result_of(here.renew(token))
        assert await result_of(here.release(token)) is Released.RESUMED
    clock.advance(25)
    await result_of(resumed.renew())
    old = write_token(read_token(token)._replace(since=0.0))  # of so long ago that the store remembers it no more
    assert await result_of(here.release(old)) is Released.UNKNOWN
    assert await result_of(resumed.release()) is Released.RELEASED
    assert await result_of(here.release(old)) is Released.UNKNOWN


async def test_a_guarded_resource_tells_who_resumed_from_who_handed_over(
    clients: tuple[Any, Any, Any], tmp_path: Any
) -> None:
    here, there, _ = clients
    lease = await result_of(here.lock("a", ttl=30))
    file = FencedFile(tmp_path / "guarded")
    file.write(b"before", fence=lease.fence)
    resumed = await result_of(there.resume(lease.token))
    file.write(b"after", fence=resumed.fence)
    with pytest.raises(StaleFence):
        file.write(b"late", fence=lease.fence)
    assert file.read() == b"after"


async def test_only_the_result_of_who_resumed_a_claim_counts(clients: tuple[Any, Any, Any]) -> None:
    here, there, elsewhere = clients
    claim = await result_of(here.claim("a", ttl=30, fingerprint="payload"))
    token = claim.token
    resumed = await result_of(there.resume_claim(token))
    assert (resumed.won, resumed.attempt) == (True, 1)
    late = await result_of(claim.publish("late", wait=0))
    assert (late.published, late.superseded, late.pending) == (False, True, True)
    assert (await result_of(resumed.publish("mine"))).published
    for client in (here, elsewhere):
        late = await result_of(client.claim_of(token, wait=0).publish("late"))
        assert (late.published, late.superseded, late.value) == (False, True, "mine")
    assert (await result_of(elsewhere.claim("a", fingerprint="payload"))).value == "mine"
    with pytest.raises(solely.Mismatch):
        await result_of(elsewhere.claim("a", fingerprint="another"))


async def test_a_claim_that_was_resumed_is_renewed_and_failed_as_any_other(
    clients: tuple[Any, Any, Any], clock: ManualClock
) -> None:
    here, there, _ = clients
    token = (await result_of(here.claim("a", ttl=30, purpose="charge"))).hand_over()
    policy = solely.Policy(default=solely.Replay())
    resumed = await result_of(there.resume_claim(token, policy=policy))
    clock.advance(29)
    await result_of(resumed.renew())
    clock.advance(29)
    assert (await result_of(here.claims()))[0].purpose == "charge"
    assert await result_of(resumed.fail(ValueError("no"))) is solely.Failing.REPLAYED
    assert (await result_of(here.claim("a"))).failed.text == "no"


async def test_an_item_is_acked_by_who_resumed_it_and_by_nobody_else(clients: tuple[Any, Any, Any]) -> None:
    here, there, elsewhere = clients
    await result_of(here.queue("jobs").push("a", {"n": 1}))
    token = (await result_of(here.queue("jobs").take(ttl=30))).hand_over()
    resumed = await result_of(there.queue("jobs").resume(token))
    assert (resumed.id, resumed.payload, resumed.attempts) == ("a", {"n": 1}, 1)
    for client in (here, elsewhere):
        stale = client.queue("jobs").item_of(token)
        assert await result_of(stale.ack()) is False
        assert await result_of(client.queue("jobs").item_of(token).give_back()) is False
        with pytest.raises(LeaseLost):
            await result_of(client.queue("jobs").item_of(token).renew())
    assert await result_of(resumed.ack()) is True
    assert await result_of(here.queue("jobs").item_of(token).ack()) is False
    assert await result_of(here.queue("jobs").count()) == 0
    with pytest.raises(Busy):
        await result_of(elsewhere.queue("jobs").resume(token))


async def test_an_item_that_was_resumed_goes_back_to_its_queue(
    clients: tuple[Any, Any, Any], clock: ManualClock
) -> None:
    here, there, _ = clients
    for end in ("given back", "expired"):
        _, token = await handed_over(NOUNS["item"], here)
        resumed = await result_of(there.queue("jobs").resume(token))
        if end == "expired":
            clock.advance(31)
        else:
            assert await result_of(resumed.give_back()) is True
        again = await result_of(here.queue("jobs").take(ttl=30))
        assert (again.id, again.payload, again.attempts) == ("a", {"n": 1}, 2)
        assert await result_of(resumed.ack()) is False
        assert await result_of(again.ack()) is True


async def test_a_reservation_that_was_resumed_is_recorded_by_its_sender_alone(
    clients: tuple[Any, Any, Any],
) -> None:
    here, there, elsewhere = clients
    reserved = await result_of(here.reserve("a", hold=30, quiet=60, details={"message": "m-1"}))
    id = reserved.hand_over()
    resumed = await result_of(there.resume_reservation(id))
    assert (bool(resumed), resumed.key, resumed.details) == (True, "a", {"message": "m-1"})
    for ends in (here.record_reservation, elsewhere.renew_reservation):
        with pytest.raises(ReservationMismatch, match="was resumed"):
            await result_of(ends(id))
    assert await result_of(here.release_reservation(id)) is False
    assert (await result_of(elsewhere.reserve("a"))).reason == "reserved"
    await result_of(resumed.record())
    assert (await result_of(elsewhere.reserve("a"))).reason == "quiet"
    with pytest.raises(ReservationMismatch):
        await result_of(here.record_reservation(id))
    with pytest.raises(UnknownReservation, match="was recorded"):
        await result_of(here.resume_reservation(resumed.id))


async def test_a_reservation_that_was_resumed_gives_its_hits_back_when_it_is_released(
    clients: tuple[Any, Any, Any],
) -> None:
    here, there, _ = clients
    terms: dict[str, Any] = {"hold": 30, "quiet": 0, "limit": 1, "per": 600, "group": ("g", 1, 600)}
    id = (await result_of(here.reserve("a", **terms))).hand_over()
    resumed = await result_of(there.resume_reservation(id))
    again = await result_of(here.resume_reservation(resumed.hand_over()))
    assert await result_of(again.release()) is True
    assert await result_of(there.reserve("a", **terms))  # the limits have room again
    assert (await result_of(there.reserve("b", **terms))).reason == "limited"


# -- what goes with it


async def test_the_purpose_of_a_lock_goes_with_it(clients: tuple[Any, Any, Any]) -> None:
    here, there, _ = clients
    token = (await result_of(here.lock("a", ttl=30, purpose="deploy"))).hand_over()
    await result_of(there.resume(token))
    (listed,) = await result_of(here.locks())
    assert (listed.key, listed.state, listed.purpose) == ("a", State.HELD, "deploy")


async def test_a_lease_of_any_ttl_lasts_for_that_long_from_the_resume_on(
    clients: tuple[Any, Any, Any], clock: ManualClock
) -> None:
    here, there, elsewhere = clients
    token = (await result_of(here.lock("a", ttl=30))).hand_over()
    clock.advance(29)
    await result_of(there.resume(token, renew=False))
    clock.advance(29)
    assert await result_of(elsewhere.try_lock("a")) is None
    clock.advance(1)
    assert await result_of(elsewhere.try_lock("a")) is not None


async def test_a_waiter_gets_the_key_after_who_resumed_it(
    clients: tuple[Any, Any, Any], clock: ManualClock, mode: str
) -> None:
    here, there, elsewhere = clients
    token = (await result_of(here.lock("a", ttl=30))).hand_over()
    resumed = await result_of(there.resume(token))
    outcomes = await at_once(mode, [lambda: elsewhere.try_lock("a"), lambda: _released(resumed)])
    assert outcomes[1] is Released.RELEASED
    assert outcomes[0] is not None or await result_of(elsewhere.try_lock("a")) is not None


def _released(lease: Any) -> Awaitable[Released] | Released:
    answer: Awaitable[Released] | Released = lease.release()
    return answer


async def test_tokens_of_something_else_are_refused_before_anything_is_sent(clients: tuple[Any, Any, Any]) -> None:
    once, _, _ = clients
    lease = await result_of(once.lock("a"))
    item = await _taken(once)
    for resume, token in (
        (once.resume, item.hand_over()),
        (once.resume_claim, lease.token),
        (once.queue("jobs").resume, lease.token),
    ):
        with pytest.raises(solely.InvalidInput):
            await result_of(resume(token))
    with pytest.raises(UnknownReservation):
        await result_of(once.resume_reservation(lease.token))
