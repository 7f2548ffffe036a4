"""Bugs that the simulator found in our own flows and transitions, each by name, without chance."""

from __future__ import annotations

from typing import Any

import pytest

from solely.errors import Busy, Interrupted, StoreFull, StoreUnavailable
from solely.flows import dedup, lock
from solely.flows.hold import Hold
from solely.flows.lock import Terms
from solely.flows.requests import Ask, Flow, Join, Wait
from solely.model import Entry, Released, State
from solely.ops import Acquire, Mark, Release, Renew
from solely.rules import MAX_GONE
from solely.stores.memory import Memory
from solely.testing.clock import ManualClock

KEY = "lock/key"
HELD = Entry(KEY, State.HELD, fence=7, left=5.0)


class Script:
    """Performs a flow by hand: answers the small questions, and says what it asks of the store."""

    def __init__(self, flow: Flow[Any]) -> None:
        self.flow = flow
        self.now = 100.0
        self.doubtful = False
        self.result: Any = None

    def go(self, answer: Any = None) -> Any:
        """Sends the answer (throws it, if it is an error) and returns the next request that needs the store."""
        while True:
            try:
                request = self.flow.throw(answer) if isinstance(answer, BaseException) else self.flow.send(answer)
            except StopIteration as end:
                self.result = end.value
                return None
            match request:
                case Ask.OWNER:
                    answer = "me"
                case Ask.ATTEMPT:
                    answer = ("me", self.now)
                case Ask.NOW:
                    answer = self.now
                case Ask.SENT:
                    answer = (self.now, self.doubtful, self.now)
                case Join():
                    answer = True
                case Wait():
                    self.now += request.at_most
                    answer = None
                case _:
                    return request


def test_a_waiter_that_the_store_fails_leaves_the_queue() -> None:
    script = Script(lock.acquire(KEY, Terms(10.0, wait=60.0, client="C")))
    assert type(script.go()) is Acquire
    assert type(script.go(HELD)) is Acquire
    assert script.go(StoreFull("full")) == [Release(KEY, "me")]
    with pytest.raises(StoreFull):
        script.go([Released.RELEASED])


def test_an_unanswered_try_that_ends_in_a_store_error_is_revoked() -> None:
    script = Script(lock.acquire(KEY, Terms(10.0)))
    script.go()
    script.doubtful = True
    assert script.go(StoreFull("full")) == [Release(KEY, "me", revoke=True)]


def test_a_waiter_that_loses_an_earlier_key_leaves_the_queue_of_the_next() -> None:
    earlier = Hold("lock/earlier", "mine", 10.0, HELD, 0.0, False)
    script = Script(lock.acquire(KEY, Terms(10.0, wait=60.0, client="C"), held=[earlier]))
    script.go()
    assert script.go(HELD) == [Renew("lock/earlier", "mine", 10.0)]
    assert script.go([Entry("lock/earlier", State.FREE, gone="expired")]) == [Release(KEY, "me")]
    with pytest.raises(Busy):
        script.go([Released.RELEASED])


def test_a_refused_lock_all_revokes_only_in_doubt_so_that_displaced_owners_stay_remembered() -> None:
    for doubtful in (False, True):
        script = Script(lock.acquire_all([KEY], Terms(10.0)))
        script.go()
        script.doubtful = doubtful
        assert script.go([HELD]) == [Release(KEY, "me", revoke=doubtful)]


def test_a_late_copy_of_a_mark_that_was_told_seen_cannot_mark() -> None:
    script = Script(dedup.first("mark/key", 60.0))
    assert type(script.go()) is Mark
    script.doubtful = True
    assert script.go(False) == [Release("mark/key", "me", revoke=True)]
    assert script.go([Released.RELEASED]) is None
    assert script.result is False


def test_marks_are_taken_back_if_the_revoking_of_their_neighbours_fails() -> None:
    script = Script(dedup.first_many(["mark/new", "mark/old"], 60.0))
    script.go()
    script.doubtful = True
    assert script.go([True, False]) == [Release("mark/old", "me", revoke=True)]
    gave_up = Interrupted(StoreUnavailable("gone"), unanswered=True)
    assert script.go(gave_up) == [Release("mark/old", "me", revoke=True)]
    assert script.go(None) == [Release("mark/new", "me", revoke=True), Release("mark/old", "me", revoke=True)]
    with pytest.raises(Interrupted):
        script.go(None)


def test_an_overtaken_renewal_never_shortens_what_its_holder_relies_on() -> None:
    clock = ManualClock()
    memory = Memory(clock=clock)
    memory.perform([Acquire(KEY, "me", 1.0), Renew(KEY, "me", 30.0)])
    late = memory.perform([Renew(KEY, "me", 1.0)])[0]
    assert isinstance(late, Entry)
    assert late.left == 30.0


def test_many_cancelled_attempts_do_not_make_the_store_forget_a_revoked_one() -> None:
    memory = Memory(clock=ManualClock())
    memory.perform([Release(KEY, f"owner-{n}", revoke=True) for n in range(MAX_GONE)])
    assert MAX_GONE >= 100
    assert memory.perform([Acquire(KEY, "owner-0", 1.0)])[0].owner == ""  # type: ignore[union-attr]
