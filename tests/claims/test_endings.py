"""The first ending of a claim is final: who publishes or fails again is told what stands, and changes nothing."""

from typing import Any

import pytest

import solely
from solely import Failing, Park, Policy, Publication, Replay, RetryAfter
from tests.claims.modes import inner
from tests.claims.test_policies import _listed

POLICIES = {
    "release": Policy(),
    "retry_after": Policy(default=RetryAfter(5)),
    "replay": Policy(default=Replay()),
    "park": Policy(default=Park(after=1, group="g")),
    "park_later": Policy(default=Park(after=2, group="g")),
}


async def test_a_second_result_is_told_the_first(once: Any, other: Any) -> None:
    for number, first in enumerate((1, None, b"1", {"id": 1})):
        claim = await once.claim(f"key-{number}")
        assert (await claim.publish(first)).published
        assert await claim.publish(2) == Publication(False, first, superseded=True)
        assert await claim.publish_tombstone("streamed") == Publication(False, first, superseded=True)
        assert await claim.publish(first) == Publication(True, first)  # as who repeats it after a lost answer
        assert (await other.claim(f"key-{number}")).value == first


async def test_a_result_after_a_tombstone_is_told_the_tombstone(once: Any, other: Any) -> None:
    claim = await once.claim("a")
    assert (await claim.publish_tombstone("streamed")).published
    assert await claim.publish(2) == Publication(False, superseded=True, tombstone=True)
    assert await claim.publish_tombstone("streamed") == Publication(True, tombstone=True)
    assert (await other.claim("a")).tombstone


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_failure_after_the_result_is_lost(once: Any, other: Any, policy: str) -> None:
    claim = await once.claim("a", policy=POLICIES[policy])
    await claim.publish("ok")
    assert await claim.fail(ValueError("late")) is Failing.LOST
    assert (await other.claim("a", wait=0)).value == "ok"
    assert await _listed(inner(once).dead_letters("g")) == []


@pytest.mark.parametrize(("policy", "ending"), [("replay", Failing.REPLAYED), ("park", Failing.PARKED)])
async def test_a_result_after_the_failure_is_superseded(once: Any, other: Any, policy: str, ending: Failing) -> None:
    claim = await once.claim("a", policy=POLICIES[policy])
    assert await claim.fail(ValueError("x")) is ending
    assert await claim.publish(5) == Publication(False, superseded=True)
    assert await claim.fail(KeyError("y")) is Failing.LOST
    assert await claim.fail(ValueError("x")) is ending
    assert (await other.claim("a", wait=0)).failed.text == "x"
    assert len(await _listed(inner(once).dead_letters("g"))) == (policy == "park")


async def test_who_goes_on_with_a_token_is_told_the_same(once: Any, other: Any) -> None:
    """As over HTTP, where every call has but the token."""
    token = inner(await once.claim("a")).hand_over()
    assert (await claim_of(other, token).publish(1)).published
    assert await claim_of(other, token).publish(2) == Publication(False, 1, superseded=True)
    assert await claim_of(other, token).fail(ValueError()) is Failing.LOST
    assert (await claim_of(other, token).publish(1)).published


def claim_of(client: Any, token: str) -> Any:
    claim = inner(client).claim_of(token, policy=POLICIES["replay"])
    return type(client)(claim) if client is not inner(client) else claim


async def test_what_was_let_go_may_be_published_after_all(once: Any, other: Any) -> None:
    claim = await once.claim("a")
    assert await claim.release() is solely.Released.RELEASED
    assert await claim.publish(5) == Publication(True, 5)
    assert (await claim.publish(6)).value == (await other.claim("a")).value == 5
