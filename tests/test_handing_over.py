"""What one process wins, another may end in its name: claims, reservations and dead letters by their tokens."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import solely
from solely.testing.clock import ManualClock
from tests.client_modes import result_of


@pytest.fixture
def clients(open_client: Callable[..., Any], store_url: str, clock: ManualClock) -> tuple[Any, Any]:
    return open_client(store_url, clock=clock), open_client(store_url, clock=clock)


async def test_a_claim_is_published_by_another_and_keeps_its_fingerprint(clients: tuple[Any, Any]) -> None:
    here, there = clients
    token = (await result_of(here.claim("a", fingerprint="payload", renew=False))).hand_over()
    assert (await result_of(there.claim_of(token).publish({"id": 7}))).published
    assert (await result_of(here.claim("a", fingerprint="payload"))).value == {"id": 7}
    with pytest.raises(solely.Mismatch):
        await result_of(here.claim("a", fingerprint="another"))


async def test_a_claim_that_ran_out_is_published_for_its_own_payload(
    clients: tuple[Any, Any], clock: ManualClock
) -> None:
    here, there = clients
    token = (await result_of(here.claim("a", ttl=5, fingerprint="payload", renew=False))).hand_over()
    clock.advance(100)
    assert (await result_of(there.claim_of(token, wait=0).publish(1))).published
    with pytest.raises(solely.Mismatch):
        await result_of(here.claim("a", fingerprint="another"))


async def test_a_claim_that_another_took_is_superseded(clients: tuple[Any, Any], clock: ManualClock) -> None:
    here, there = clients
    token = (await result_of(here.claim("a", ttl=5, renew=False))).hand_over()
    clock.advance(6)
    later = await result_of(there.claim("a"))
    assert (later.won, (await result_of(later.publish("later"))).published) == (True, True)
    late = await result_of(here.claim_of(token).publish("late"))
    assert (late.published, late.superseded, late.value) == (False, True, "later")


async def test_a_failed_claim_is_dealt_with_as_the_policy_of_who_fails_it_by_its_token_says(
    clients: tuple[Any, Any],
) -> None:
    here, there = clients
    token = (await result_of(here.claim("a", renew=False))).hand_over()
    policy = solely.Policy(default=solely.Replay())
    assert await result_of(there.claim_of(token, policy=policy).fail(ValueError("no"))) is solely.Failing.REPLAYED
    assert (await result_of(here.claim("a"))).failed.kind == "ValueError"


async def test_who_handed_a_claim_over_does_not_let_go_of_it_by_a_failure(clients: tuple[Any, Any]) -> None:
    here, there = clients
    claim = await result_of(here.claim("a", renew=False))
    token = claim.hand_over()
    assert await result_of(claim.fail(ValueError())) is solely.Failing.LOST
    assert (await result_of(here.claim("a", wait=0))).timed_out
    assert (await result_of(there.claim_of(token).publish(7))).published


async def test_a_token_of_something_else_is_no_claim(clients: tuple[Any, Any]) -> None:
    once, _ = clients
    lease = await result_of(once.lock("a"))
    for token in (lease.token, "nonsense", ""):
        with pytest.raises(solely.InvalidInput):
            once.claim_of(token)
        with pytest.raises(solely.InvalidInput):
            await result_of(once.resume_claim(token))


async def test_a_reservation_that_was_handed_over_is_recorded_by_another(clients: tuple[Any, Any]) -> None:
    here, there = clients
    reserved = await result_of(here.reserve("a", renew=False))
    await result_of(there.record_reservation(reserved.hand_over()))
    assert (await result_of(here.reserve("a"))).reason == "quiet"
    assert (await result_of(here.reserve("a"))).hand_over() == ""


@pytest.mark.parametrize("error", [None, KeyError()], ids=["success", "error"])
async def test_a_body_that_handed_its_reservation_over_neither_records_nor_releases(
    clients: tuple[Any, Any], error: Exception | None
) -> None:
    here, there = clients
    for ends, reason in ((there.record_reservation, "quiet"), (there.release_reservation, "")):
        id = await _handed_over(await result_of(here.reserve("a")), error)
        assert (await result_of(there.reserve("a"))).reason == "reserved"
        assert await result_of(there.renew_reservation(id)) > 29
        await result_of(ends(id))
        after = await result_of(there.reserve("a"))
        assert (bool(after), after.reason) == (not reason, reason)
        await result_of(there.clear_reservations("a", reason="the next round"))


async def _handed_over(reserved: Any, error: Exception | None) -> str:
    """The id that the body of a block handed over, however the block ended."""
    with suppress(KeyError):
        if hasattr(reserved, "__aenter__"):
            async with reserved:
                id = reserved.hand_over()
                if error is not None:
                    raise error
        else:
            with reserved:
                id = reserved.hand_over()
                if error is not None:
                    raise error
    return str(id)


async def test_who_handed_a_reservation_over_releases_it_no_more(clients: tuple[Any, Any]) -> None:
    once, _ = clients
    reserved = await result_of(once.reserve("a"))
    reserved.hand_over()
    assert await result_of(reserved.release()) is False
    assert (await result_of(once.reserve("a"))).reason == "reserved"
    await result_of(reserved.record())  # it was sent after all, whoever did it
    assert (await result_of(once.reserve("a"))).reason == "quiet"


async def test_a_letter_is_run_by_another(clients: tuple[Any, Any], clock: ManualClock) -> None:
    here, there = (once.dead_letters("g") for once in clients)
    await result_of(here.push([1], error="boom", key="work"))
    taken = await result_of(here.take("work"))
    assert isinstance(taken, solely.LetterInHand)
    assert taken.letter.payload == [1]
    assert await result_of(there.take("work")) is solely.LetterOutcome.BUSY
    assert await result_of(there.fail(taken.token, "boom again")) is solely.LetterOutcome.FAILED
    again = await result_of(there.take("work"))
    assert (again.letter.attempts, again.letter.last_error) == (2, "boom again")
    clock.advance(20)
    assert await result_of(clients[0].renew(again.lease)) == 30
    clock.advance(20)
    assert await result_of(there.take("work")) is solely.LetterOutcome.BUSY
    assert await result_of(here.ack(again.token, "result")) is solely.LetterOutcome.REPLAYED
    assert await result_of(here.ack(again.token, "result")) is solely.LetterOutcome.GONE
    assert await result_of(here.take("work")) is solely.LetterOutcome.GONE
    assert (await result_of(clients[1].claim("work"))).value == "result"


async def test_a_letter_whose_taker_died_comes_back(clients: tuple[Any, Any], clock: ManualClock) -> None:
    here, there = (once.dead_letters("g") for once in clients)
    await result_of(here.push([1], error="boom", id="x"))
    await result_of(here.take("x"))
    clock.advance(31)
    assert isinstance(await result_of(there.take("x")), solely.LetterInHand)


async def test_what_is_no_token_of_a_letter_is_refused(clients: tuple[Any, Any]) -> None:
    box = clients[0].dead_letters("g")
    for token in ("", "nonsense", "W10=", "WzEsMiwzLDRd"):
        with pytest.raises(solely.InvalidInput, match="not the token"):
            await result_of(box.ack(token))
