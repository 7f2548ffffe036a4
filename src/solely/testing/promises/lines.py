"""Promises about waiting for an item: a client that finds none is put in line, and a Push or a Return notifies it."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import StoreError
from ...model import Entry, LeasedItem, NoItem, State, line_key
from ...ops import Ack, Push, Read, Release, Reply, Return, Take
from ...rules import REMEMBER
from ..clock import ManualClock
from ..harness import TICK, Harness, fresh


class LinePromises:
    """Take with a client, and the line of a queue."""

    def test_a_client_that_finds_no_item_is_put_in_line_once(self, store: Harness) -> None:
        queue = fresh("line")
        assert _wait(store, queue, "a", "A") == NoItem(float("inf"))
        assert _wait(store, queue, "a", "A") == NoItem(float("inf"))
        assert _wait(store, queue, "newer", "A") == NoItem(float("inf"))
        assert _wait(store, queue, "b", "B") == NoItem(float("inf"))
        line = store.one(Read(line_key(queue)))
        assert (line.state, line.waiters, line.fence) == (State.FREE, 2, 0)
        assert store.scan(line_key(queue)) == []

    def test_a_client_that_finds_an_item_takes_it_and_does_not_wait(self, store: Harness) -> None:
        queue = fresh("at-once")
        store.one(Push(queue, "job", b"1"))
        item = _wait(store, queue, "a", "A")
        assert isinstance(item, LeasedItem)
        assert (item.id, item.payload) == ("job", b"1")
        assert _wait(store, queue, "a", "A") == item  # a repeat
        assert store.one(Read(line_key(queue))).waiters == 0

    def test_a_client_learns_when_the_next_item_becomes_available(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("next")
        store.perform(Push(queue, "later", b"", delay=7), Push(queue, "taken", b""), Take(queue, "owner", 5))
        for passed, left in ((0, 5), (3, 2)):
            clock.advance(passed)
            found = _wait(store, queue, "a", "A")
            assert isinstance(found, NoItem)
            assert abs(found.left - left) <= TICK
        store.one(Ack(queue, "taken", "owner"))
        found = _wait(store, queue, "a", "A")
        assert isinstance(found, NoItem)
        assert abs(found.left - 4) <= TICK
        clock.advance(4)
        assert isinstance(_wait(store, queue, "a", "A"), LeasedItem)

    def test_what_a_batch_does_with_a_queue_is_seen_by_what_comes_after_it_on_the_line(self, store: Harness) -> None:
        queue = fresh("line-in-a-batch")
        key = line_key(queue)
        wait = Take(queue, "a", 10, client="A")
        assert [_waiters(reply) for reply in store.perform(wait, Read(key), wait, Read(key))] == [None, 1, None, 1]
        replies = store.perform(Release(key, "a"), Read(key), wait, Push(queue, "job", b""), Read(key))
        assert [_waiters(reply) for reply in replies] == [None, 0, None, None, 0]

    def test_a_push_sends_a_hint_to_the_first_in_line(self, store: Harness) -> None:
        recorder, queue = store.listen(), fresh("pushed")
        _wait(store, queue, "a", store.client)
        assert store.one(Push(queue, "job", b"")) is True
        assert recorder.received(line_key(queue))
        assert isinstance(_wait(store, queue, "a", store.client), LeasedItem)
        assert store.one(Read(line_key(queue))).waiters == 0

    def test_a_return_sends_a_hint_to_the_first_in_line(self, store: Harness) -> None:
        recorder, queue = store.listen(), fresh("returned")
        store.perform(Push(queue, "job", b""), Take(queue, "owner", 10))
        _wait(store, queue, "a", store.client)
        assert store.one(Return(queue, "job", "owner")) is True
        assert recorder.received(line_key(queue))

    def test_a_hint_reaches_a_client_elsewhere_for_every_name_of_a_queue(self, connect: Callable[[], Harness]) -> None:
        here, there = connect(), connect()
        recorder = there.listen()
        for name in ("plain", "with space", "ключ/鍵", "a:b*[c]?{d}%2F"):
            queue = fresh("") + name
            _wait(there, queue, "a", there.client)
            here.one(Push(queue, "job", b""))
            assert there.polls or recorder.received(line_key(queue))  # a store that polls needs no hint

    def test_a_batch_of_pushes_takes_as_many_clients_out_of_the_line(self, store: Harness) -> None:
        queue = fresh("batch")
        for client in ("A", "B", "C"):
            _wait(store, queue, client.lower(), client)
        assert store.one(Read(line_key(queue))).waiters == 3
        assert store.perform(Push(queue, "1", b""), Push(queue, "2", b""), Push(queue, "1", b"")) == [True, True, False]
        assert store.one(Read(line_key(queue))).waiters <= 1  # fewer where nobody listens as A or B

    def test_what_is_not_available_yet_notifies_nobody(self, store: Harness) -> None:
        queue = fresh("delayed")
        store.perform(Push(queue, "job", b""), Take(queue, "owner", 10))
        _wait(store, queue, "a", "A")
        store.perform(Push(queue, "later", b"", delay=5), Push(queue, "job", b""))
        store.perform(Return(queue, "job", "stranger"), Return(queue, "job", "owner", delay=5))
        assert store.one(Read(line_key(queue))).waiters == 1

    def test_a_client_that_leaves_the_line_is_not_notified(self, store: Harness) -> None:
        queue = fresh("left")
        for client in ("A", "B"):
            _wait(store, queue, client.lower(), client)
        store.one(Release(line_key(queue), "stranger"))
        assert store.one(Read(line_key(queue))).waiters == 2
        store.one(Release(line_key(queue), "a"))
        store.one(Release(line_key(queue), "a"))
        assert store.one(Read(line_key(queue))).waiters == 1
        store.one(Release(line_key(queue), "b"))
        assert store.one(Read(line_key(queue))).waiters == 0

    def test_a_line_is_forgotten_unless_its_clients_look_again(self, store: Harness, clock: ManualClock) -> None:
        queue = fresh("forgotten")
        for _ in range(3):
            _wait(store, queue, "a", "A")
            clock.advance(REMEMBER - 1)
            assert store.one(Read(line_key(queue))).waiters == 1
        clock.advance(1)
        assert store.one(Read(line_key(queue))).waiters == 0


def _wait(store: Harness, queue: str, owner: str, client: str) -> Reply | StoreError:
    """The reply to a Take of this client."""
    return store.perform(Take(queue, owner, 10, client=client))[0]


def _waiters(reply: Reply | StoreError) -> int | None:
    """The waiters that an entry counts; None of any other reply."""
    return reply.waiters if isinstance(reply, Entry) else None
