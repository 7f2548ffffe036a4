"""A process that dies between any two steps: the hold heals it, nothing is granted twice, and no limit is exceeded."""

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import solely
from solely import Client
from solely.flow import Ask, Flow
from solely.model import State
from solely.ops import Read
from solely.owner import fresh_owner
from solely.reservations import flow as flows
from solely.reservations.ids import id_of
from solely.rules import local_clock
from solely.stores import open_store
from solely.testing.clock import ManualClock

HOUR = 3_600
TERMS = flows.ReservationTerms(hold=30.0, quiet=300.0, own=(3, HOUR), group=("group/all", 3, HOUR))


class Dying:
    """A process that performs a flow up to its n-th question to the store; then it is gone without a word."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.store = open_store(url, clock=clock)

    def perform(self, *ops: Any) -> list[Any]:
        """The replies to these ops."""
        return self.store.perform(ops)

    def run(self, flow: Flow[Any], questions: float = math.inf) -> Any:
        """The flow's result, or None if the process died before it knew."""
        asked = 0
        answer: Any = None
        while asked < questions:
            try:
                request = flow.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(request, Ask):
                now = local_clock()
                run = SimpleNamespace(sent=now, doubtful=False, now=local_clock, fresh_owner=fresh_owner)
                answer = {Ask.OWNER: fresh_owner(), Ask.NOW: now, Ask.RUN: run}[request]
            else:
                asked += 1
                replies = self.perform(*request) if isinstance(request, list) else self.perform(request)
                answer = replies if isinstance(request, list) else replies[0]
        return None


@pytest.fixture
def dying(store_url: str, clock: ManualClock) -> Iterator[Dying]:
    process = Dying(store_url, clock)
    yield process
    process.store.close()


@pytest.fixture
def mode() -> str:
    return "blocking"


def send_all(once: Client, key: str) -> int:
    """How many can be sent until a limit is reached."""
    for n in range(10):
        reservation = once.reserve(key, quiet=0, limit=3, per=HOUR, group=("all", 3, HOUR))
        if not reservation:
            assert reservation.reason == "limited"
            return n
        reservation.record()
    raise AssertionError("no limit was reached")


@pytest.mark.parametrize("questions", [1, 2])
def test_a_crash_while_reserving(dying: Dying, once: Client, clock: ManualClock, questions: int) -> None:
    assert dying.run(flows.reserve("reservation/cpu", TERMS, ""), questions) is None
    refused = once.reserve("cpu")
    assert (refused.reason, refused.retry_after) == ("reserved", 30.0)
    clock.advance(30)
    assert send_all(once, "cpu") == (3 if questions == 1 else 2)  # the hit of who may have sent stays


@pytest.mark.parametrize("questions", [1, 2, 3, 4])
def test_a_crash_while_being_limited(dying: Dying, once: Client, clock: ManualClock, questions: int) -> None:
    assert send_all(once, "cpu") == 3
    dying.run(flows.reserve("reservation/cpu", TERMS, ""), questions)
    clock.advance(30)
    assert once.reserve("cpu", limit=3, per=HOUR).reason == "limited"
    clock.advance(HOUR - 30)
    assert send_all(once, "cpu") == 3


@pytest.mark.parametrize("questions", [0, 1, 2])
def test_a_crash_while_recording(dying: Dying, once: Client, clock: ManualClock, questions: int) -> None:
    ticket = dying.run(flows.reserve("reservation/cpu", TERMS, "")).ticket
    dying.run(flows.record(ticket, "2026-01-01T00:00:00+00:00"), questions)
    recorded = questions > 0
    clock.advance(29)
    assert once.reserve("cpu").reason == ("quiet" if recorded else "reserved")
    once.record_reservation(id_of(ticket))  # whoever takes its work up may say it again
    once.record_reservation(id_of(ticket))
    (info,) = once.reservations()
    assert (info.reason, info.sent) == ("quiet", 1)
    clock.advance(300)
    assert send_all(once, "cpu") == 2


@pytest.mark.parametrize("questions", [1, 2])
def test_a_crash_while_releasing(dying: Dying, once: Client, clock: ManualClock, questions: int) -> None:
    ticket = dying.run(flows.reserve("reservation/cpu", TERMS, "")).ticket
    dying.run(flows.release(ticket, True), questions)
    released = questions > 1
    assert bool(once.reserve("other")) is True
    assert dying.perform(Read("reservation/cpu"))[0].state is (State.FREE if released else State.HELD)
    clock.advance(30)
    if released:
        with pytest.raises(solely.UnknownReservation):
            once.record_reservation(id_of(ticket))
    assert send_all(once, "cpu") == (3 if released else 2)
