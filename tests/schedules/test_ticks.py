"""Each tick happens once: over replicas that join, leave, die, are paused or have wrong clocks, on every store."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from solely.model import Entry
from solely.ops import Clear, Read
from solely.rules import LOOK_AGAIN
from solely.schedules.flow import NOTED
from solely.schedules.state import GRACE, DueTick
from solely.schedules.timetable import US
from solely.testing.clock import ManualClock
from tests.schedules.replica import Replica

Start = Callable[..., Replica]
MINUTE = 60 * US


def begin(*replicas: Replica) -> int:
    """Has all replicas look at the schedule for the first time; returns its next tick."""
    for each in replicas:
        assert not isinstance(each.attempt(), DueTick), "a new schedule begins with its next tick"
    return replicas[0].plan.timetable.next_after(replicas[0].known.last)


def go_to(clock: ManualClock, tick: int, late: float = 0.01) -> None:
    """Moves the clock of the store to this tick."""
    clock.advance(tick / US - clock() + late)


def due(replica: Replica) -> DueTick:
    """The tick that this replica must win now."""
    found = replica.attempt()
    assert isinstance(found, DueTick), f"asks again in {found} s"
    return found


def backlog(clock: ManualClock, *replicas: Replica, rounds: int) -> list[int]:
    """The ticks that these replicas run one after the other, almost without time in between."""
    ran = []
    for each in replicas * rounds:
        clock.advance(0.005)
        ran += [done for done in (each.run(),) if done]
    return ran


def test_each_tick_is_run_by_one_of_many_replicas_for_two_ops(replica: Start, clock: ManualClock) -> None:
    replicas = [replica(skew=skew) for skew in (0.0, 3_600.0, -86_400.0)]
    tick, order = begin(*replicas), random.Random(7)
    for each in replicas:
        each.ops = 0
    ran = []
    for n in range(20):
        go_to(clock, tick + n * MINUTE)
        order.shuffle(replicas)
        ran += [done for each in replicas if (done := each.run())]
    assert ran == [tick + n * MINUTE for n in range(20)]
    notes = 20 * 60 / NOTED  # of a schedule that misses nothing: at most one in a minute
    assert sum(each.ops for each in replicas) <= 20 * (2 + len(replicas) - 1) + notes


def test_a_replica_asks_nothing_while_nothing_is_due(replica: Start, clock: ManualClock) -> None:
    only = replica()
    tick = begin(only)
    only.ops = 0
    for _ in range(10):
        clock.advance(1.0)
        wait = only.attempt()
        assert isinstance(wait, float)
        assert wait == pytest.approx(tick / US - clock(), abs=0.1)
    assert only.ops == 0


def test_a_tick_whose_replica_died_is_taken_over_when_its_lease_expires(replica: Start, clock: ManualClock) -> None:
    dying, other = replica(ttl=10.0), replica(ttl=10.0)
    tick = begin(dying, other)
    go_to(clock, tick)
    died = due(dying)
    wait = other.attempt()
    assert wait == pytest.approx(10.0, abs=0.1)
    clock.advance(9.0)
    assert other.attempt() == pytest.approx(1.0, abs=0.1)
    clock.advance(1.1)
    taken = due(other)
    assert (taken.tick, taken.attempts) == (died.tick, 2)
    assert taken.hold.fence > died.hold.fence
    assert other.finish(taken) is not None
    assert dying.finish(died) is None, "the result of the replica that was too late is refused"


def test_a_lease_that_is_renewed_is_not_taken_over(replica: Start, clock: ManualClock) -> None:
    slow, other = replica(ttl=10.0, when=300.0), replica(ttl=10.0, when=300.0)
    tick = begin(slow, other)
    go_to(clock, tick)
    running = due(slow)
    for _ in range(20):
        clock.advance(5.0)
        assert not isinstance(other.attempt(), DueTick)
        slow.renew(running.hold)
    assert slow.finish(running) is not None
    assert not isinstance(other.attempt(), DueTick)


def test_a_tick_that_ended_is_never_run_again_by_anyone(replica: Start, clock: ManualClock) -> None:
    first = replica()
    tick = begin(first)
    go_to(clock, tick)
    assert first.run() == tick
    for skew in (0.0, -7_200.0, 7_200.0):  # replicas that join, with clocks that are hours wrong
        clock.advance(5.0)
        joined = replica(skew=skew)
        assert isinstance(joined.attempt(), float)
        assert joined.known.last == tick
    go_to(clock, tick + MINUTE)
    assert joined.run() == tick + MINUTE
    assert first.run() == 0


def test_a_tick_that_was_lost_before_it_ended_counts_if_nobody_took_it_over(replica: Start, clock: ManualClock) -> None:
    slow, other = replica(ttl=5.0), replica(ttl=5.0)
    tick = begin(slow, other)
    go_to(clock, tick)
    running = due(slow)
    clock.advance(20.0)
    assert slow.finish(running) is not None
    assert other.run() == 0


def test_an_interrupted_tick_is_taken_over_at_once(replica: Start, clock: ManualClock) -> None:
    stopping, other = replica(), replica()
    tick = begin(stopping, other)
    go_to(clock, tick)
    stopping.give_back(due(stopping))
    taken = due(other)
    assert taken.tick == tick
    assert other.finish(taken) is not None


def test_skip_runs_no_tick_that_nobody_began_in_time(replica: Start, clock: ManualClock) -> None:
    before = replica(when=600.0)
    tick = begin(before)
    go_to(clock, tick)
    assert before.run() == tick
    go_to(clock, tick + 5 * 600 * US + 2 * GRACE)  # all replicas were away
    after = replica(when=600.0)
    assert isinstance(after.attempt(), float)
    assert after.known.report is not None
    assert after.known.report.missed == 5
    go_to(clock, tick + 6 * 600 * US)
    assert after.run() == tick + 6 * 600 * US


def test_skip_runs_a_tick_that_is_a_little_late(replica: Start, clock: ManualClock) -> None:
    only = replica(when=600.0)
    tick = begin(only)
    go_to(clock, tick, late=GRACE / US / 2)
    assert only.run() == tick


def test_once_runs_the_last_of_the_missed_ticks_in_place_of_all(replica: Start, clock: ManualClock) -> None:
    before = replica(misfire="once")
    tick = begin(before)
    go_to(clock, tick)
    assert before.run() == tick
    go_to(clock, tick + 5 * MINUTE, late=20.0)
    after = replica(misfire="once")
    assert after.run() == tick + 5 * MINUTE
    assert after.known.report is not None
    assert after.known.report.missed == 4
    assert after.run() == before.run() == 0
    go_to(clock, tick + 6 * MINUTE)
    assert before.run() == tick + 6 * MINUTE


def test_all_runs_every_missed_tick_in_order(replica: Start, clock: ManualClock) -> None:
    before = replica(misfire="all")
    tick = begin(before)
    go_to(clock, tick + 5 * MINUTE, late=20.0)
    replicas = [before, replica(misfire="all"), replica(misfire="all")]
    assert backlog(clock, *replicas, rounds=6) == [tick + n * MINUTE for n in range(6)]


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_ticks_that_pass_while_one_runs_follow_the_policy(misfire: str, replica: Start, clock: ManualClock) -> None:
    slow, other = replica(misfire=misfire, ttl=300.0), replica(misfire=misfire, ttl=300.0)
    tick = begin(slow, other)
    go_to(clock, tick)
    running = due(slow)
    go_to(clock, tick + 2 * MINUTE, late=30.0)
    assert not isinstance(other.attempt(), DueTick), "two ticks of one schedule never run at the same time"
    report = slow.finish(running)
    assert report is not None
    following = backlog(clock, slow, rounds=3)
    expected = {"skip": [], "once": [2], "all": [1, 2]}[misfire]
    assert following == [tick + n * MINUTE for n in expected]
    assert report.missed == (2 if misfire == "skip" else 0)


def test_behind_a_backlog_the_lease_of_a_replica_that_left_is_not_waited_for(
    replica: Start, clock: ManualClock
) -> None:
    """Found with processes: the other one waited for the whole lease of a tick that ended at once."""
    leaving, other = replica(misfire="all", ttl=300.0), replica(misfire="all", ttl=300.0)
    tick = begin(leaving, other)
    go_to(clock, tick + 2 * MINUTE)
    running = due(leaving)
    wait = other.attempt()
    assert isinstance(wait, float)
    assert wait <= LOOK_AGAIN
    assert leaving.finish(running) is not None  # and runs no more
    clock.advance(wait)
    assert backlog(clock, other, rounds=3) == [tick + MINUTE, tick + 2 * MINUTE]


@pytest.mark.parametrize(("misfire", "expected"), [("skip", [2]), ("once", [2]), ("all", [0, 1, 2])])
def test_a_crash_while_later_ticks_pass_follows_the_policy(
    misfire: str, expected: list[int], replica: Start, clock: ManualClock
) -> None:
    """All takes the interrupted tick over and runs each that passed; else the last one takes the place of all."""
    dying, other = replica(misfire=misfire, ttl=150.0), replica(misfire=misfire, ttl=150.0)
    tick = begin(dying, other)
    go_to(clock, tick)
    due(dying)
    for n in range(3):
        go_to(clock, tick + n * MINUTE)
        assert not isinstance(other.attempt(), DueTick)
    clock.advance(31.0)
    assert backlog(clock, other, rounds=4) == [tick + n * MINUTE for n in expected]


def test_a_tick_whose_two_replicas_died_is_taken_over_again(replica: Start, clock: ManualClock) -> None:
    ttl = 2 * GRACE / US  # so that the tick is later than one that nobody began may be
    replicas = [replica(ttl=ttl, when=6_000.0) for _ in range(3)]
    tick = begin(*replicas)
    go_to(clock, tick)
    for n, each in enumerate(replicas):
        running = due(each)
        assert (running.tick, running.attempts) == (tick, n + 1)
        for other in replicas[n + 1 :]:
            assert not isinstance(other.attempt(), DueTick)
        clock.advance(ttl + 1.0)


def test_a_replica_that_was_paused_repeats_nothing(replica: Start, clock: ManualClock) -> None:
    paused, dying = replica(ttl=30.0), replica(ttl=30.0)
    tick = begin(paused, dying)
    go_to(clock, tick)
    running = due(dying)
    assert not isinstance(paused.attempt(), DueTick)  # it saw this tick run, and is paused now
    assert dying.finish(running) is not None
    go_to(clock, tick + MINUTE)
    due(dying)  # and dies in the next one
    go_to(clock, tick + MINUTE, late=31.0)
    taken = due(paused)
    assert taken.tick == tick + MINUTE


def test_clocks_of_replicas_do_not_matter(replica: Start, clock: ManualClock) -> None:
    """A replica whose clock is hours wrong, and gains or loses a percent, runs ticks by the clock of the store."""
    wrong = [replica(skew=3 * 3_600.0, rate=1.01), replica(skew=-3 * 3_600.0 / 4, rate=0.99)]
    tick = begin(*wrong)
    ran: list[tuple[int, float]] = []
    while len(ran) < 20:
        clock.advance(0.5)
        ran += [(done, clock()) for each in wrong if (done := each.run())]
    assert [done for done, _ in ran] == [tick + n * MINUTE for n in range(20)]
    assert all(0 <= at - done / US <= 1.5 for done, at in ran), "each within the second in which it was due"


def test_a_changed_timetable_is_followed_at_once(replica: Start, clock: ManualClock) -> None:
    before = replica(when=86_400.0)
    begin(before)
    after = replica(when=10.0)
    wait = after.attempt()
    assert isinstance(wait, float)
    assert wait <= 10.1
    ran = []
    for _ in range(6):
        clock.advance(10.0)
        ran += [done for each in (after, before) if (done := each.run())]
    assert len(ran) == 6
    assert {later - earlier for earlier, later in pairwise(ran)} == {10 * US}


def test_what_an_admin_removed_or_the_store_lost_begins_anew(replica: Start, clock: ManualClock) -> None:
    only = replica()
    tick = begin(only)
    go_to(clock, tick)
    assert only.run() == tick
    for key in (only.plan.key, only.plan.tick_key):
        (entry,) = only._store.perform([Read(key)])
        assert isinstance(entry, Entry)
        assert only._store.perform([Clear(key, entry.fence, "test")]) == [True]
    joined = replica()
    assert joined.run() == 0
    go_to(clock, tick + MINUTE)
    assert joined.run() == tick + MINUTE
    assert only.run() == 0


def test_jitter_delays_each_tick_alike_for_all_replicas(replica: Start, clock: ManualClock) -> None:
    replicas = [replica(jitter=30.0), replica(jitter=30.0)]
    begin(*replicas)
    ran: list[tuple[int, float]] = []
    for _ in range(600):
        clock.advance(1.0)
        ran += [(done, clock()) for each in replicas if (done := each.run())]
    delays = [at - done / US for done, at in ran]
    assert len({done for done, _ in ran}) == len(ran)
    assert len(ran) in (9, 10)
    assert all(0 <= delay <= 31 for delay in delays)
    assert max(delays) - min(delays) > 5
