"""Promises about Finish: whose result counts, who sees it, and for how long."""

from __future__ import annotations

from ...model import Gone, Released, State
from ...ops import Acquire, Finish, Read, Release, Renew
from ...rules import MAX_VALUE_BYTES, REMEMBER
from ..clock import ManualClock
from ..harness import TICK, Harness, fresh


class ResultPromises:
    """Finish, and the result in the replies to Acquire and Read."""

    def test_every_read_and_acquire_of_a_finished_key_returns_its_result(
        self, store: Harness, clock: ManualClock
    ) -> None:
        key, owner = fresh("claim/done"), fresh("owner")
        held = store.one(Acquire(key, owner, 10, fingerprint="f", info="who"))
        done = store.one(Finish(key, owner, b"bresult", keep=100))
        assert (done.state, done.owner, done.value, done.fence) == (State.DONE, owner, b"bresult", held.fence)
        clock.advance(50)
        for entry in (store.one(Read(key)), store.one(Acquire(key, fresh("other"), 10, value=True))):
            assert (entry.state, entry.owner, entry.value, entry.fence) == (State.DONE, "", b"bresult", held.fence)
            assert (entry.fingerprint, entry.info, entry.attempts) == ("f", "who", 1)
            assert abs(entry.left - 50) <= TICK

    def test_the_result_is_returned_only_if_requested(self, store: Harness) -> None:
        key, owner = fresh("claim/unasked"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Finish(key, owner, b"blarge", 100))
        entry = store.one(Acquire(key, fresh("other"), 10, client="C", counted=True))
        assert (entry.state, entry.value, entry.waiters, entry.refused) == (State.DONE, None, 0, 1)

    def test_a_result_is_kept_for_its_ttl_and_not_a_tick_longer(self, store: Harness, clock: ManualClock) -> None:
        key, owner, other = fresh("claim/kept"), fresh("owner"), fresh("other")
        fence = store.one(Acquire(key, owner, 10)).fence
        store.one(Finish(key, owner, b"bresult", keep=100))
        clock.advance(100 - TICK)
        assert store.one(Acquire(key, other, 10)).state is State.DONE
        clock.advance(TICK)
        assert store.one(Read(key)) == (key, State.FREE, 0, 0.0, "", 0, 0, 0, "", "", None, "")
        again = store.one(Acquire(key, other, 10, value=True))
        assert (again.owner, again.attempts, again.refused, again.value) == (other, 1, 0, None)
        assert again.fence > fence

    def test_an_old_result_does_not_show_in_the_next_hold(self, store: Harness, clock: ManualClock) -> None:
        key, other = fresh("claim/next"), fresh("other")
        store.one(Release(key, fresh("revoked"), revoke=True))  # the store remembers it: the record outlives its result
        store.perform(Acquire(key, "first", 10), Finish(key, "first", b"bold", 1))
        clock.advance(1)
        assert store.one(Acquire(key, other, 10, value=True)).value is None
        assert store.one(Read(key)).value is None
        clock.advance(10)
        assert store.scan(key) == []

    def test_a_hold_that_expired_long_ago_cannot_be_finished(self, store: Harness, clock: ManualClock) -> None:
        for acquire in (
            Acquire(fresh("claim/late"), "o", 10, fingerprint="f", value=True),
            Acquire(fresh("claim/later"), "o", 10),
        ):
            store.one(acquire)
            clock.advance(10 + REMEMBER + TICK)
            late = store.one(Finish(acquire.key, "o", b"bresult", 100))
            assert (late.state, late.owner, late.value) == (State.FREE, "", None)
            assert store.one(Read(acquire.key)).state is State.FREE

    def test_counted_refusals_leave_the_hold_and_the_result_as_they_are(
        self, store: Harness, clock: ManualClock
    ) -> None:
        key, counted = fresh("claim/counted"), Acquire("", "", 10, counted=True, value=True)
        store.one(Acquire(key, "o", 10, fingerprint="f", info="who", counted=True))
        refusals = [store.one(counted._replace(key=key, owner=fresh("other"))) for _ in range(3)]
        assert [(e.state, e.refused, e.owner, e.value) for e in refusals] == [
            (State.HELD, n, "", None) for n in (1, 2, 3)
        ]
        clock.advance(5)
        done = store.one(Finish(key, "o", b"bsent\0sent", 100))
        assert (done.state, done.refused, done.fingerprint, done.info, done.owner) == (State.DONE, 3, "f", "who", "o")
        clock.advance(50)
        late = store.one(counted._replace(key=key, owner=fresh("other")))
        assert (late.state, late.refused, late.value, late.fingerprint) == (State.DONE, 4, b"bsent\0sent", "f")
        assert abs(late.left - 50) <= TICK

    def test_a_repeated_finish_changes_nothing(self, store: Harness, clock: ManualClock) -> None:
        key, owner = fresh("claim/twice"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Finish(key, owner, b"bfirst", 100))
        clock.advance(30)
        again = store.one(Finish(key, owner, b"bsecond", 100))
        assert (again.state, again.owner, again.value) == (State.DONE, owner, b"bfirst")
        assert abs(again.left - 70) <= TICK

    def test_a_late_copy_of_the_acquire_returns_the_result(self, store: Harness) -> None:
        key, owner = fresh("claim/late"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Finish(key, owner, b"bresult", 100))
        late = store.one(Acquire(key, owner, 10, value=True, counted=True))
        assert (late.state, late.owner, late.value, late.refused) == (State.DONE, owner, b"bresult", 0)

    def test_a_finish_is_accepted_after_expiry_until_another_took_the_key(
        self, store: Harness, clock: ManualClock
    ) -> None:
        key, owner = fresh("claim/expired"), fresh("owner")
        store.one(Acquire(key, owner, 10, delay=5))
        clock.advance(60)
        done = store.one(Finish(key, owner, b"blate", 100))
        assert (done.state, done.owner, done.value) == (State.DONE, owner, b"blate")
        assert store.one(Acquire(key, fresh("other"), 10)).state is State.DONE

    def test_a_superseded_finish_returns_the_winning_entry(self, store: Harness, clock: ManualClock) -> None:
        key, loser, winner = fresh("claim/superseded"), fresh("loser"), fresh("winner")
        store.one(Acquire(key, loser, 10))
        clock.advance(10)
        fence = store.one(Acquire(key, winner, 10)).fence
        held = store.one(Finish(key, loser, b"blost", 100))
        assert (held.state, held.owner, held.fence, held.value) == (State.HELD, "", fence, None)
        assert held.gone == Gone.EXPIRED
        store.one(Finish(key, winner, b"bwon", 100))
        done = store.one(Finish(key, loser, b"blost", 100))
        assert (done.state, done.owner, done.fence, done.value) == (State.DONE, "", fence, b"bwon")

    def test_a_late_failure_does_not_remove_the_result_of_its_successor(
        self, store: Harness, clock: ManualClock
    ) -> None:
        key, loser, winner = fresh("claim/late-failure"), fresh("loser"), fresh("winner")
        store.one(Acquire(key, loser, 10))
        clock.advance(10)
        store.perform(Acquire(key, winner, 10), Finish(key, winner, b"bwon", 100))
        assert store.one(Release(key, loser)) is Released.EXPIRED
        assert store.one(Read(key)).value == b"bwon"

    def test_a_finish_after_the_release_is_not_accepted(self, store: Harness) -> None:
        key, owner = fresh("claim/released"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Release(key, owner))
        entry = store.one(Finish(key, owner, b"bresult", 100))
        assert (entry.state, entry.owner, entry.value) == (State.FREE, "", None)

    def test_a_finish_by_a_stranger_is_not_accepted(self, store: Harness) -> None:
        key, owner = fresh("claim/stranger"), fresh("owner")
        assert store.one(Finish(key, fresh("stranger"), b"bforged", 100)).state is State.FREE
        store.one(Acquire(key, owner, 10))
        entry = store.one(Finish(key, fresh("stranger"), b"bforged", 100))
        assert (entry.state, entry.owner, entry.value) == (State.HELD, "", None)
        assert store.one(Renew(key, owner, 10)).owner == owner

    def test_release_and_renew_leave_a_result_as_it_is(self, store: Harness) -> None:
        key, owner = fresh("claim/stays"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Finish(key, owner, b"b", 100))
        assert store.one(Release(key, owner)) is Released.RELEASED
        assert abs(store.one(Renew(key, owner, 999)).left - 100) <= TICK
        entry = store.one(Read(key))
        assert (entry.state, entry.value) == (State.DONE, b"b")

    def test_values_are_kept_byte_for_byte(self, store: Harness) -> None:
        for value in (b"", b"\0", bytes(range(256)), "ключ\r\n$-1\r\n".encode(), b"x" * MAX_VALUE_BYTES):
            key, owner = fresh("claim/bytes"), fresh("owner")
            store.one(Acquire(key, owner, 10))
            assert store.one(Finish(key, owner, b"b" + value, 100)).value == b"b" + value
            assert store.one(Read(key)).value == b"b" + value
            assert store.one(Acquire(key, fresh("other"), 10, value=True)).value == b"b" + value

    def test_a_result_may_be_empty(self, store: Harness) -> None:
        key, owner = fresh("reservation/empty"), fresh("owner")
        store.one(Acquire(key, owner, 10))
        assert store.one(Finish(key, owner, b"", 100)).value == b""
        assert store.one(Read(key)).value == b""
        assert store.one(Acquire(key, fresh("other"), 10, value=True)).value == b""

    def test_the_result_includes_the_number_of_failed_attempts(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("claim/attempts")
        store.one(Acquire(key, "first", 10))
        clock.advance(10)
        store.perform(Acquire(key, "second", 10), Release(key, "second", keep=60), Acquire(key, "third", 10))
        assert store.one(Finish(key, "third", b"bat last", 100)).attempts == 3
