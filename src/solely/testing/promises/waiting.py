"""Promises about waiting: which client is offered a released key, and which clients receive a hint."""

from __future__ import annotations

from collections.abc import Callable

from ...model import State
from ...ops import Acquire, Clear, Finish, Read, Release, Renew
from ...rules import MAX_WAITERS, OFFER
from ..clock import ManualClock
from ..harness import TICK, Harness, HintRecorder, fresh

_AT_ONCE = 100  # ops of a call: some stores take a while for each of a thousand waiters


class WaitingPromises:
    """The queue of waiting clients, the offer to the first of them, and hints."""

    def test_a_refused_client_that_will_wait_is_queued_once(self, store: Harness) -> None:
        key = fresh("lock/queued")
        store.one(Acquire(key, fresh("holder"), 10))
        assert store.one(Acquire(key, fresh("passer-by"), 10)).waiters == 0
        assert store.one(Acquire(key, fresh("a"), 10, client="A")).waiters == 1
        assert store.one(Acquire(key, fresh("b"), 10, client="B")).waiters == 2
        assert store.one(Acquire(key, fresh("a"), 10, client="A")).waiters == 2

    def test_a_released_key_is_offered_to_the_first_waiter_only(self, store: Harness) -> None:
        key = _contended(store, "A", "B")
        second = store.one(Acquire(key, "b", 10, client="B"))
        passer_by = store.one(Acquire(key, fresh("passer-by"), 10))
        assert (second.state, second.owner) == (passer_by.state, passer_by.owner) == (State.CLOSED, "")
        assert 0 < second.left <= OFFER
        granted = store.one(Acquire(key, "a", 10, client="A"))
        assert (granted.owner, granted.waiters) == ("a", 1)

    def test_any_attempt_of_the_client_can_take_its_offer(self, store: Harness) -> None:
        key = _contended(store, "A", "B")
        newer = fresh("newer")
        assert store.one(Acquire(key, newer, 10, client="A")).owner == newer

    def test_an_offer_that_nobody_takes_expires(self, store: Harness, clock: ManualClock) -> None:
        key = _contended(store, "A", "B")
        clock.advance(OFFER - TICK)
        assert store.one(Acquire(key, "b", 10, client="B")).state is State.CLOSED
        clock.advance(TICK)
        assert store.one(Read(key)).state is State.FREE
        assert store.one(Acquire(key, "b", 10, client="B")).owner == "b"

    def test_the_offer_of_a_waiter_that_withdraws_passes_to_the_next(self, store: Harness) -> None:
        key = _contended(store, "A", "B", "C")
        store.one(Release(key, "a"))
        assert store.one(Acquire(key, "c", 10, client="C")).state is State.CLOSED
        assert store.one(Acquire(key, "b", 10, client="B")).owner == "b"

    def test_a_waiter_that_withdrew_is_not_offered_the_key(self, store: Harness) -> None:
        key = fresh("lock/withdrawn")
        store.perform(Acquire(key, "holder", 10), *(Acquire(key, x.lower(), 10, client=x) for x in "AB"))
        store.perform(Release(key, "a"), Release(key, "holder"))
        assert store.one(Acquire(key, "b", 10, client="B")).owner == "b"

    def test_the_key_is_free_when_the_last_waiter_withdraws(self, store: Harness) -> None:
        key = _contended(store, "A")
        store.one(Release(key, "a"))
        assert store.one(Read(key)).state is State.FREE

    def test_a_newer_attempt_keeps_the_place_of_its_client(self, store: Harness) -> None:
        key = fresh("lock/place")
        store.perform(Acquire(key, "holder", 10), *(Acquire(key, x.lower(), 10, client=x) for x in "AB"))
        store.perform(Acquire(key, "newer", 10, client="A"), Release(key, "a"))  # the older attempt gave up
        store.one(Release(key, "holder"))
        assert store.one(Acquire(key, "b", 10, client="B")).owner == ""
        assert store.one(Acquire(key, "newer", 10, client="A")).owner == "newer"

    def test_waiters_are_served_in_order(self, store: Harness) -> None:
        key = fresh("lock/turns")
        names = "ABCDE"
        store.perform(Acquire(key, "holder", 10), *(Acquire(key, x.lower(), 10, client=x) for x in names))
        before = "holder"
        for name in names:
            store.one(Release(key, before))
            tries = [store.one(Acquire(key, x.lower(), 10, client=x)) for x in reversed(names) if x >= name]
            assert [entry.owner for entry in tries if entry.owner] == [name.lower()]
            before = name.lower()

    def test_a_release_with_delay_offers_nothing(self, store: Harness) -> None:
        key = fresh("lock/delayed")
        store.perform(Acquire(key, "holder", 10), Acquire(key, "a", 10, client="A"), Release(key, "holder", delay=5))
        entry = store.one(Acquire(key, "a", 10, client="A"))
        assert (entry.state, entry.owner) == (State.CLOSED, "")
        assert abs(entry.left - 5) <= TICK

    def test_an_expired_hold_goes_to_the_first_acquire(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("lock/expired")
        store.perform(Acquire(key, "holder", 10), Acquire(key, "a", 10, client="A"))
        clock.advance(10)
        granted = store.one(Acquire(key, "b", 10, client="B"))
        assert (granted.owner, granted.waiters) == ("b", 1)

    def test_a_waiter_that_is_granted_the_key_leaves_the_queue(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("lock/granted")
        store.perform(Acquire(key, "holder", 10), *(Acquire(key, x.lower(), 10, client=x) for x in "AB"))
        clock.advance(10)
        assert store.one(Acquire(key, "a", 10, client="A")).waiters == 1
        store.one(Release(key, "a"))
        assert store.one(Acquire(key, "b", 10, client="B")).owner == "b"

    def test_the_queue_of_waiters_is_bounded(self, store: Harness) -> None:
        key = fresh("lock/crowd")
        crowd = [Acquire(key, f"owner-{n}", 300, client=f"client-{n}") for n in range(MAX_WAITERS + 5)]
        store.one(Acquire(key, "holder", 300))
        for start in range(0, len(crowd), _AT_ONCE):
            some = crowd[start : start + _AT_ONCE]
            assert len(store.perform(*some)) == len(some)
        assert store.one(Read(key)).waiters == MAX_WAITERS

    def test_a_release_sends_a_hint_to_the_first_waiter_only(self, store: Harness) -> None:
        recorder, other = store.listen(), fresh("other-client")
        first, second = fresh("lock/first"), fresh("lock/second")
        for key, clients in ((second, (other, store.client)), (first, (store.client, other))):
            store.perform(Acquire(key, "holder", 10), *(Acquire(key, c, 10, client=c) for c in clients))
            store.one(Release(key, "holder"))
        assert recorder.received(first)
        _settle(store, recorder)
        assert recorder.hints.count(first) == 1
        assert second not in recorder.hints

    def test_the_next_waiter_receives_a_hint_when_an_offered_one_withdraws(self, store: Harness) -> None:
        recorder, key = store.listen(), fresh("lock/next")
        store.perform(Acquire(key, "holder", 10), Acquire(key, "a", 10, client=fresh("A")))
        store.perform(Acquire(key, "b", 10, client=store.client), Release(key, "holder"))
        store.one(Release(key, "a"))
        assert recorder.received(key)

    def test_a_finish_sends_a_hint_to_all_waiters(self, store: Harness) -> None:
        recorder, key = store.listen(), fresh("claim/finished")
        store.perform(Acquire(key, "winner", 10), Acquire(key, "a", 10, client=fresh("A")))
        store.one(Acquire(key, "b", 10, client=store.client))
        assert store.one(Finish(key, "winner", b"bresult", 10)).waiters == 0
        assert recorder.received(key)

    def test_a_clear_sends_a_hint_to_the_first_waiter(self, store: Harness) -> None:
        recorder, key = store.listen(), fresh("lock/cleared")
        fence = store.one(Acquire(key, "holder", 10)).fence
        store.one(Acquire(key, "a", 10, client=store.client))
        assert store.one(Clear(key, fence, "stuck"))
        assert recorder.received(key)
        assert store.one(Acquire(key, "a", 10, client=store.client)).owner == "a"

    def test_a_client_that_does_not_wait_receives_no_hint(self, store: Harness) -> None:
        recorder, key = store.listen(), fresh("lock/unheard")
        store.perform(Acquire(key, "holder", 10), Acquire(key, "a", 10), Renew(key, "holder", 10))
        store.perform(Acquire(key, "b", 10, client=store.client), Release(key, "b"), Release(key, "holder"))
        _settle(store, recorder)
        assert key not in recorder.hints

    def test_a_hint_reaches_a_waiter_on_another_client(self, connect: Callable[[], Harness]) -> None:
        here, there = connect(), connect()
        recorder, key = there.listen(), fresh("lock/far")
        here.one(Acquire(key, "holder", 10))
        there.one(Acquire(key, "a", 10, client=there.client))
        here.one(Release(key, "holder"))
        assert there.polls or recorder.received(key)  # a store that polls needs no hint
        assert there.one(Acquire(key, "a", 10, client=there.client)).owner == "a"

    def test_hints_contain_the_exact_key(self, store: Harness) -> None:
        recorder = store.listen()
        for name in ("with space", "ключ/鍵", "a:b*[c]?{d}", "é" * 256):
            key = fresh("lock/")[:18] + name
            store.perform(Acquire(key, "holder", 10), Acquire(key, "a", 10, client=store.client))
            store.one(Release(key, "holder"))
            assert recorder.received(key)


def _contended(store: Harness, *clients: str) -> str:
    """Returns a key that was just released while these clients waited for it; their owner ids are in lower case."""
    key = fresh("lock/contended")
    waiting = (Acquire(key, client.lower(), 10, client=client) for client in clients)
    store.perform(Acquire(key, "holder", 10), *waiting, Release(key, "holder"))
    return key


def _settle(store: Harness, recorder: HintRecorder) -> None:
    """Returns when every earlier hint has arrived: hints to one client arrive in order."""
    key = fresh("lock/settled")
    store.perform(Acquire(key, "holder", 10), Acquire(key, "a", 10, client=store.client), Release(key, "holder"))
    assert recorder.received(key)
