"""A lease that was handed over as a token can be renewed and released by whoever has it, without being resumed."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import Released, State
from solely.events import Event, ReleasedLease, Renewed
from solely.leases.token import read_token, write_token
from solely.testing import ManualClock
from tests.client.modes import Observer


async def test_renew_and_release_by_token(once: Any, other: Any, observer: Observer) -> None:
    token = (await once.lock("a", ttl=30)).hand_over()
    assert 29 < await other.renew(token) <= 30
    assert 59 < await other.renew(token, ttl=60) <= 60
    assert 59 < await other.renew(token, ttl=30) <= 60, "a renewal never shortens"
    assert await other.try_lock("a") is None
    assert await other.release(token) is Released.RELEASED
    assert observer.lock("a").state is State.FREE
    assert await once.release(token) is Released.RELEASED, "a repeat is answered alike"
    with pytest.raises(solely.LeaseLost, match="'a'"):
        await once.renew(token)


async def test_a_token_of_a_lost_lease(open_client: Callable[..., Any], store_url: str) -> None:
    clock = ManualClock()
    once, other = open_client(store_url, clock=clock), open_client(store_url, clock=clock)
    token = (await once.lock("a", ttl=5, renew=False)).hand_over()
    clock.advance(6)
    taken = await other.lock("a", ttl=500)
    with pytest.raises(solely.LeaseLost, match="expired"):
        await once.renew(token)
    assert await once.release(token) is Released.EXPIRED
    assert await once.try_lock("a") is None, "the next holder's lease is not touched"
    old = write_token(read_token(token)._replace(since=0.0))
    assert await once.release(old) is Released.EXPIRED
    clock.advance(120)
    assert await once.release(old) is Released.UNKNOWN, "the store has forgotten: nothing false is said"
    await taken.release()


async def test_a_token_that_is_old_but_renewed_is_released(once: Any, observer: Observer) -> None:
    token = (await once.lock("a", ttl=30)).hand_over()
    old = write_token(read_token(token)._replace(since=0.0))
    assert await once.release(old) is Released.RELEASED
    assert observer.lock("a").state is State.FREE


async def test_hooks_are_told(open_client: Callable[..., Any], store_url: str) -> None:
    told: list[Event] = []
    once = open_client(store_url, hooks=[told.append])
    lease = await once.lock("a", ttl=30)
    token = lease.hand_over()
    await once.renew(token)
    await once.release(token)
    renewed, released = told[-2:]
    assert isinstance(renewed, Renewed)
    assert (renewed.key, renewed.fence) == ("lock/a", lease.fence)
    assert isinstance(released, ReleasedLease)
    assert released.outcome == "released"
    assert 0 <= released.held < 30


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "ä",
        "=" * 100,
        base64.urlsafe_b64encode(b"a:1:2:3").decode(),
        base64.urlsafe_b64encode(b"owner:1:nan:1.0::lock/a").decode(),
        base64.urlsafe_b64encode(b"owner:1:30.0:inf::lock/a").decode(),
        base64.urlsafe_b64encode(b"owner:1:30.0:1.0::nothing").decode(),
        base64.urlsafe_b64encode(b"owner:1:30.0:1.0::lock/" + b"a" * 513).decode(),
        base64.urlsafe_b64encode(b":1:30.0:1.0::lock/a").decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(solely.InvalidInput, match="not a lease token"):
        read_token(text)
