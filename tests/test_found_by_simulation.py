"""Bugs that the simulator found in our own flows and transitions, each by name, without chance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from solely.breakers import flow as breaker
from solely.claims import flow as claim
from solely.claims import publish
from solely.claims.flights import Done, Flights
from solely.errors import Busy, Interrupted, Mismatch, StoreFull, StoreUnavailable, UnknownReservation
from solely.flow import Ask, Flow, Join, Wait, WakeAll
from solely.leases import flow as lock
from solely.leases.context import Context
from solely.leases.flow import LeaseTerms
from solely.leases.hold import Hold
from solely.locks.flow import acquire_all
from solely.marks import flow as dedup
from solely.model import Allowance, Entry, LeasedItem, Released, State
from solely.ops import Ack, Acquire, Advance, Clear, Finish, Hit, Mark, Push, Read, Release, Renew, Return, Take, Unhit
from solely.queues.waiting import TakeTerms, take
from solely.reservations import flow as reservation
from solely.resilience.circuit import Rule
from solely.rules import DRIFT_RATE, MAX_GONE, MIN_TTL, REMEMBER
from solely.schedules import flow as schedule
from solely.schedules.calls import plan_of
from solely.schedules.state import DueTick, ReplicaState, RunReport
from solely.stores import StoreBase
from solely.stores.memory import Memory
from solely.testing.clock import ManualClock
from solely.testing.simulator.observer import Observer
from solely.testing.simulator.simulation import SimulatedClient

KEY = "lock/key"
HELD = Entry(KEY, State.HELD, fence=7, left=5.0)


class Script:
    """Performs a flow by hand, as its Run: answers the small questions, and says what it asks of the store."""

    def __init__(self, flow: Flow[Any]) -> None:
        self.flow = flow
        self.arrived = self.sent = 100.0
        self.owner = "me"
        self.doubtful = False
        self.result: Any = None

    def now(self) -> float:
        return self.sent

    def fresh_owner(self) -> str:
        return self.owner

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
                    answer = self.owner
                case Ask.NOW:
                    answer = self.sent
                case Ask.RUN | Join():
                    answer = self
                case Wait():
                    self.sent += request.at_most
                    answer = None
                case _:
                    return request


def test_a_waiter_that_the_store_fails_leaves_the_queue() -> None:
    script = Script(lock.acquire(KEY, LeaseTerms(10.0, wait=60.0, client="C")))
    assert type(script.go()) is Acquire
    assert type(script.go(HELD)) is Acquire
    assert script.go(StoreFull("full")) == [Release(KEY, "me")]
    with pytest.raises(StoreFull):
        script.go([Released.RELEASED])


def test_an_unanswered_try_that_ends_in_a_store_error_is_revoked() -> None:
    script = Script(lock.acquire(KEY, LeaseTerms(10.0)))
    script.go()
    script.doubtful = True
    assert script.go(StoreFull("full")) == [Release(KEY, "me", revoke=True)]


def test_a_waiter_that_loses_an_earlier_key_leaves_the_queue_of_the_next() -> None:
    earlier = Hold("lock/earlier", "mine", 10.0, HELD, 0.0, False, lambda: 0.0)
    script = Script(lock.acquire(KEY, LeaseTerms(10.0, wait=60.0, client="C"), held=[earlier]))
    script.go()
    assert script.go(HELD) == [Renew("lock/earlier", "mine", 10.0)]
    assert script.go([Entry("lock/earlier", State.FREE, gone="expired")]) == [Release(KEY, "me")]
    with pytest.raises(Busy):
        script.go([Released.RELEASED])


def test_a_refused_lock_all_revokes_only_in_doubt_so_that_displaced_owners_stay_remembered() -> None:
    for doubtful in (False, True):
        script = Script(acquire_all([KEY], LeaseTerms(10.0)))
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


# -- claims

MINE = HELD._replace(owner="me", fence=8, left=10.0)


def _flights() -> Flights:
    """Of a client whose store is asked only by the flows themselves."""
    context = Context(cast(StoreBase, None), wake=lambda key: None, hook=None, cache=None, start_keeping=lambda: None)
    return Flights(context)


@pytest.mark.parametrize(("heard", "undone"), [(5, [Release(KEY, "me")]), (7, None)])
def test_a_waiter_that_hears_of_an_older_outcome_than_it_is_queued_behind_leaves_the_queue(
    heard: int, undone: object
) -> None:
    flights = _flights()
    script = Script(claim.claim(KEY, LeaseTerms(10.0, wait=60.0, client="C"), flights, "", str))
    assert type(script.go()) is Acquire
    flights.settle(KEY, Done(b"b", "", heard, 1), 60.0)  # by another of this process
    assert script.go(HELD) == undone


def test_who_is_refused_out_of_its_turn_has_the_first_of_the_line_take_the_place_in_the_queue_anew() -> None:
    script = Script(claim.claim(KEY, LeaseTerms(10.0, wait=60.0, client="C"), _flights(), "one", str))
    script.go()
    assert script.go(HELD._replace(fingerprint="two")) == [Release(KEY, "me")]
    assert script.go([Released.RELEASED]) == WakeAll(KEY)
    with pytest.raises(Mismatch):
        script.go()


@pytest.mark.parametrize("short", [True, False])
def test_a_late_copy_of_a_winners_try_cannot_take_the_claim_once_its_outcome_is_forgotten(short: bool) -> None:
    hold = Hold(KEY, "me", 10.0, MINE, 100.0, True, lambda: 100.0)
    script = Script(publish.finish(hold, b"b", 5.0 if short else REMEMBER, _flights()))
    assert type(script.go()) is Finish
    assert script.go(MINE._replace(state=State.DONE)) == ([Release(KEY, "me", revoke=True)] if short else None)


@pytest.mark.parametrize("error", [StoreFull("full"), Interrupted(StoreUnavailable("gone"), unanswered=True)])
def test_a_late_publish_that_the_store_fails_leaves_no_claim_of_its_own(error: BaseException) -> None:
    hold = Hold(KEY, "late", 10.0, HELD, 0.0, False, lambda: 0.0)
    script = Script(publish.publish(hold, b"b", 3600.0, LeaseTerms(10.0), _flights(), lambda: ""))
    assert type(script.go()) is Finish
    assert type(script.go(Entry(KEY, State.FREE, gone="expired"))) is Acquire
    assert script.go(MINE) == Finish(KEY, "me", b"b", 3600.0)
    assert script.go(error) == [Release(KEY, "me", revoke=True)]
    with pytest.raises(type(error)):
        script.go([Released.RELEASED])


RESERVED = Entry("reservation/key", State.HELD, fence=8, left=10.0, owner="me")


@pytest.mark.parametrize("doubtful", [True, False])
def test_a_refusal_that_is_counted_under_an_id_of_its_own_leaves_no_hold_under_it(doubtful: bool) -> None:
    script = Script(reservation.reserve("reservation/key", reservation.ReservationTerms(10.0, 60.0, own=(1, 5.0)), ""))
    assert type(script.go()) is Acquire
    assert script.go(RESERVED) == [Hit("hits/key", "me", 1, 5.0)]
    script.owner = "counter"
    assert type(script.go([Allowance(False, 1, 2.0)])) is Acquire
    script.doubtful = doubtful
    assert script.go(RESERVED._replace(owner="", refused=1)) == [
        Release("reservation/key", "me", revoke=doubtful, keep=2.0),
        Release("reservation/key", "counter", revoke=doubtful, keep=2.0),
        Unhit("hits/key", "me"),
    ]


def test_a_reservation_that_ran_out_while_it_was_released_was_not_freed() -> None:
    ticket = reservation.ReservationTicket("reservation/key", "me", 8, 60.0, ("hits/key",), 30.0, "me")
    script = Script(reservation.release(ticket, revoke=False))
    assert type(script.go()) is Renew
    assert script.go(RESERVED) == [Release("reservation/key", "me", fence=8), Unhit("hits/key", "me")]
    assert script.go([Released.EXPIRED, True]) is None
    assert script.result is False


@pytest.mark.parametrize("answer", [Released.LOST, Released.ABSENT])
def test_a_reservation_that_the_store_lost_between_two_looks_is_not_recorded(answer: Released) -> None:
    ticket = reservation.ReservationTicket("reservation/key", "me", 8, 0.0, (), 30.0, "me")
    script = Script(reservation.record(ticket, "now"))
    assert script.go() == Renew("reservation/key", "me", MIN_TTL)
    finish, read = script.go(RESERVED)
    assert (type(finish), read) == (Finish, Read("sent/key"))
    lost = [Entry("reservation/key", State.FREE), Entry("sent/key", State.FREE)]
    assert script.go(lost) == Release("reservation/key", "me", fence=8)
    if answer is Released.LOST:
        with pytest.raises(UnknownReservation):
            script.go(answer)
    else:  # its outcome was there for no time at all, as was asked
        assert script.go(answer) is not None


@pytest.mark.parametrize(("later", "counted"), [(7, True), (9, False)])
def test_a_repeated_record_does_not_count_again_what_a_later_one_has_followed(later: int, counted: bool) -> None:
    script = Script(
        reservation.record(reservation.ReservationTicket("reservation/key", "me", 8, 0.3, (), 30.0, "me"), "now")
    )
    finish, _ = script.go()
    assert type(finish) is Finish
    script.doubtful = True  # an earlier try may have recorded it
    counts = b'{"sent": 2, "last": "2026-01-01T12:00:00+00:00", "fence": %d}' % later
    free = [Entry("reservation/key", State.FREE), Entry("sent/key", State.DONE, fence=later, value=counts)]
    assert type(script.go(free)) is Release
    ops = script.go(Released.ABSENT)
    assert [type(op) for op in ops or ()] == ([Clear, Acquire, Finish] if counted else [])
    assert script.result is (None if counted else True)


def test_nobody_tries_at_a_standing_on_which_a_verdict_may_be_under_way() -> None:
    current = breaker.BreakerState(1)
    trial = Hold("trial/name@1.0", "me", 10.0, MINE, 100.0, False, lambda: 100.0)
    rule = Rule(threshold=3, per=60.0, cooldown=0.1, successes=2, on=Exception)
    verdict = Script(breaker.judge("name", rule, breaker.SharedPass(current, trial), worked=True)).go()
    assert type(verdict) is Finish
    assert verdict.keep >= REMEMBER


@pytest.mark.parametrize(("late_copy", "correct"), [(False, False), (True, True)])
def test_the_checker_knows_the_hold_of_a_late_copy_after_a_loss_of_data(late_copy: bool, correct: bool) -> None:
    lost, again = (SimpleNamespace(ended=how, forgotten=how == "lost") for how in ("lost", "cleared"))
    hold, found = SimpleNamespace(key=KEY, owner="me", fence=7, deadline=0.0), list[str]()
    observer = SimpleNamespace(grants={(KEY, 7): lost}, holds={(KEY, "me"): again if late_copy else lost})
    client = SimpleNamespace(
        simulation=SimpleNamespace(observer=observer),
        driver=SimpleNamespace(clock=lambda: 0.0),
        violated=lambda promise, how: found.append(promise),
    )
    SimulatedClient.check_released(cast(Any, client), cast(Any, hold), Released.CLEARED)
    assert found == ([] if correct else ["correct release replies"])


def test_a_tick_whose_long_run_let_the_key_open_early_is_not_run_again() -> None:
    plan = plan_of("job", 3.0, "UTC", 0.0, "skip", 5.0)
    first = plan.timetable.next_after(1_000_000_000_000)
    second = plan.timetable.next_after(first)
    known = ReplicaState(last=first - 3_000_000, ahead=second / 1e6 - 100.0)
    script = Script(schedule.attempt(plan, known, ""))
    assert type(script.go()) is Acquire
    early = second - 13_000  # µs: the clock of the replica that ran the first tick had drifted
    assert script.go(Entry(plan.tick_key, State.HELD, fence=early, left=5.0, owner="me", attempts=1)) == Read(plan.key)
    facts: dict[str, Any] = {"tick": first, "next": second, "opens": second, "began": first, "took": 2.5}
    ran = RunReport(settled=first, outcome="", by="", plan=plan.text, missed=0, **facts)
    closing = script.go(Entry(plan.key, State.DONE, fence=first, left=9.0, value=ran.written()))
    assert [type(op) for op in closing] == [Finish, Advance]
    assert script.result is None


@pytest.mark.parametrize("refused", [False, True])
def test_a_long_run_is_noted_before_its_end_and_a_refused_note_keeps_the_key_closed_longer(refused: bool) -> None:
    plan = plan_of("job", 60.0, "UTC", 0.0, "skip", 5.0)
    tick, keeps = plan.timetable.next_after(1_000_000_000_000), list[float]()
    for took in (0.1, 2.5):
        hold = Hold(plan.tick_key, "me", 5.0, HELD._replace(key=plan.tick_key), 100.0 - took, False, lambda: 100.0)
        known = ReplicaState(last=tick - 60_000_000, ahead=tick / 1e6 - 100.0, noted=99.0)
        script = Script(schedule.finish(plan, known, DueTick(hold, tick, 1, tick), "", ""))
        ops = script.go()
        if took > 1.0:
            assert [type(op) for op in ops] == [Advance]
            ops = script.go([StoreFull("full") if refused else True])
        assert [type(op) for op in ops] == [Finish]
        keeps.append(ops[0].keep)
        script.go([Entry(plan.tick_key, State.DONE, fence=7, owner="me")])
        assert isinstance(script.result, RunReport)
    assert keeps[1] - keeps[0] == pytest.approx(2.5 * DRIFT_RATE if refused else 0.0)


def test_an_item_is_taken_under_another_owner_after_one_was_parked_or_came_too_late() -> None:
    """Otherwise a late copy of the ack or of the return would meet the item that was taken next under the same id."""
    owners = iter(f"{number:032d}" for number in range(10))
    parked = Push("dead", "1", b"")
    script = Script(take("queue/jobs", TakeTerms(5.0, 60.0, 2, "client"), lambda item, body, why: parked))
    script.fresh_owner = lambda: next(owners)  # type: ignore[method-assign]
    script.owner = next(owners)
    body, taken, left = b"0" * 32 + b'j{"n":0}', list[str](), list[str]()
    op = script.go()
    too_often, late, fine = (LeasedItem("1", body, attempts, left) for attempts, left in ((3, 5.0), (1, 0.0), (1, 5.0)))
    for item in (None, too_often, late, fine):
        assert type(op) is Take
        taken.append(op.owner)
        op = script.go(item)
        while type(op) in (Push, Ack, Return, Release):
            assert op == parked or op.owner == taken[-1]
            left += [op.owner] if type(op) is Release else []
            op = script.go(True)
    assert taken[0] == taken[1], "nothing was taken under the first owner"
    assert left == taken[1:]
    assert len(set(left)) == 3
    assert script.result.owner == taken[-1]


def test_the_ack_of_a_parked_item_names_its_fence() -> None:
    """A late copy of the take may take the next item of its id, and a late copy of the ack must not remove that."""
    parked = Push("dead", "1", b"")
    script = Script(take("queue/jobs", TakeTerms(5.0, 0.0, 2), lambda item, body, why: parked))
    assert type(script.go()) is Take
    assert script.go(LeasedItem("1", b"0" * 32 + b'j{"n":0}', 3, 5.0, fence=9)) == parked
    assert script.go(True) == Ack("queue/jobs", "1", "me", fence=9)


class _AnyRun:
    over = False
    driver = SimpleNamespace(dead=False)


@pytest.mark.parametrize("forgotten", [False, True])
def test_the_checker_calls_no_hold_of_a_late_copy_after_a_loss_of_data_a_deadlock(forgotten: bool) -> None:
    run, found = _AnyRun(), list[str]()
    observer = SimpleNamespace(
        latest={KEY: SimpleNamespace(owner="before", live=lambda now: True)},
        forgotten={"before"} if forgotten else set(),
        runs={"before": run},
        history=SimpleNamespace(violated=lambda promise, how: found.append(promise)),
        _waits_for={run: KEY},
    )
    Observer._find_deadlock(cast(Any, observer), cast(Any, run), 0)
    assert found == ([] if forgotten else ["no deadlock"])
