"""Promises about finishing: whose result counts, who sees it, and for how long."""

from __future__ import annotations

from ...model import Gone, Released, State
from ...ops import Acquire, Finish, Read, Release, Renew
from ...rules import MAX_VALUE_BYTES, REMEMBER
from ..clock import ManualClock
from ..face import Face, fresh

_TICK = 0.001  # the resolution of a store's clock


class ResultPromises:
    """Finish, and what Acquire and Read show of it."""

    def test_a_finished_key_shows_its_result_to_all_who_ask(self, store: Face, clock: ManualClock) -> None:
        key, owner = fresh("claim/done"), fresh("owner")
        held = store.one(Acquire(key, owner, 10, fingerprint="f", info="who"))
        done = store.one(Finish(key, owner, b"bresult", keep=100))
        assert (done.state, done.owner, done.value, done.fence) == (State.DONE, owner, b"bresult", held.fence)
        clock.advance(50)
        for entry in (store.one(Read(key)), store.one(Acquire(key, fresh("other"), 10, value=True))):
            assert (entry.state, entry.owner, entry.value, entry.fence) == (State.DONE, "", b"bresult", held.fence)
            assert (entry.fingerprint, entry.info, entry.attempts) == ("f", "who", 1)
            assert abs(entry.left - 50) <= _TICK

    def test_the_result_is_sent_only_to_who_asked_for_it(self, store: Face) -> None:
        key, owner = fresh("claim/unasked"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Finish(key, owner, b"blarge", 100))
        entry = store.one(Acquire(key, fresh("other"), 10, client="C", counted=True))
        assert (entry.state, entry.value, entry.waiters, entry.refused) == (State.DONE, None, 0, 1)

    def test_a_result_is_kept_for_its_time_and_not_a_tick_longer(self, store: Face, clock: ManualClock) -> None:
        key, owner, other = fresh("claim/kept"), fresh("owner"), fresh("other")
        fence = store.one(Acquire(key, owner, 10)).fence
        store.one(Finish(key, owner, b"bresult", keep=100))
        clock.advance(100 - _TICK)
        assert store.one(Acquire(key, other, 10)).state is State.DONE
        clock.advance(_TICK)
        assert store.one(Read(key)) == (key, State.FREE, 0, 0.0, "", 0, 0, 0, "", "", None, "")
        again = store.one(Acquire(key, other, 10, value=True))
        assert (again.owner, again.attempts, again.refused, again.value) == (other, 1, 0, None)
        assert again.fence > fence

    def test_an_old_result_does_not_show_in_the_next_hold(self, store: Face, clock: ManualClock) -> None:
        key, other = fresh("claim/next"), fresh("other")
        store.one(Release(key, fresh("revoked"), revoke=True))  # remembered, so the record outlives its result
        store.perform(Acquire(key, "first", 10), Finish(key, "first", b"bold", 1))
        clock.advance(1)
        assert store.one(Acquire(key, other, 10, value=True)).value is None
        assert store.one(Read(key)).value is None
        clock.advance(10)
        assert store.scan(key) == []

    def test_a_hold_that_ran_out_long_ago_is_not_finished(self, store: Face, clock: ManualClock) -> None:
        for asked in (
            Acquire(fresh("claim/late"), "o", 10, fingerprint="f", value=True),
            Acquire(fresh("claim/later"), "o", 10),
        ):
            store.one(asked)
            clock.advance(10 + REMEMBER + _TICK)
            late = store.one(Finish(asked.key, "o", b"bresult", 100))
            assert (late.state, late.owner, late.value) == (State.FREE, "", None)
            assert store.one(Read(asked.key)).state is State.FREE

    def test_counted_refusals_leave_the_hold_and_the_result_as_they_are(self, store: Face, clock: ManualClock) -> None:
        key, asked = fresh("claim/counted"), Acquire("", "", 10, counted=True, value=True)
        store.one(Acquire(key, "o", 10, fingerprint="f", info="who", counted=True))
        refusals = [store.one(asked._replace(key=key, owner=fresh("other"))) for _ in range(3)]
        assert [(e.state, e.refused, e.owner, e.value) for e in refusals] == [
            (State.HELD, n, "", None) for n in (1, 2, 3)
        ]
        clock.advance(5)
        done = store.one(Finish(key, "o", b"bsent\0sent", 100))
        assert (done.state, done.refused, done.fingerprint, done.info, done.owner) == (State.DONE, 3, "f", "who", "o")
        clock.advance(50)
        late = store.one(asked._replace(key=key, owner=fresh("other")))
        assert (late.state, late.refused, late.value, late.fingerprint) == (State.DONE, 4, b"bsent\0sent", "f")
        assert abs(late.left - 50) <= _TICK

    def test_a_repeated_finish_changes_nothing(self, store: Face, clock: ManualClock) -> None:
        key, owner = fresh("claim/twice"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Finish(key, owner, b"bfirst", 100))
        clock.advance(30)
        again = store.one(Finish(key, owner, b"bsecond", 100))
        assert (again.state, again.owner, again.value) == (State.DONE, owner, b"bfirst")
        assert abs(again.left - 70) <= _TICK

    def test_a_late_copy_of_the_acquire_is_answered_by_the_result(self, store: Face) -> None:
        key, owner = fresh("claim/late"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Finish(key, owner, b"bresult", 100))
        late = store.one(Acquire(key, owner, 10, value=True, counted=True))
        assert (late.state, late.owner, late.value, late.refused) == (State.DONE, owner, b"bresult", 0)

    def test_a_finish_is_accepted_after_expiry_until_another_took_the_key(
        self, store: Face, clock: ManualClock
    ) -> None:
        key, owner = fresh("claim/expired"), fresh("owner")
        store.one(Acquire(key, owner, 10, delay=5))
        clock.advance(60)
        done = store.one(Finish(key, owner, b"blate", 100))
        assert (done.state, done.owner, done.value) == (State.DONE, owner, b"blate")
        assert store.one(Acquire(key, fresh("other"), 10)).state is State.DONE

    def test_a_superseded_finish_is_answered_by_who_won(self, store: Face, clock: ManualClock) -> None:
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

    def test_a_late_failure_does_not_take_the_result_of_its_successor_away(
        self, store: Face, clock: ManualClock
    ) -> None:
        key, loser, winner = fresh("claim/late-failure"), fresh("loser"), fresh("winner")
        store.one(Acquire(key, loser, 10))
        clock.advance(10)
        store.perform(Acquire(key, winner, 10), Finish(key, winner, b"bwon", 100))
        assert store.one(Release(key, loser)) is Released.EXPIRED
        assert store.one(Read(key)).value == b"bwon"

    def test_a_finish_after_the_release_is_not_accepted(self, store: Face) -> None:
        key, owner = fresh("claim/released"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Release(key, owner))
        entry = store.one(Finish(key, owner, b"bresult", 100))
        assert (entry.state, entry.owner, entry.value) == (State.FREE, "", None)

    def test_a_finish_by_a_stranger_is_not_accepted(self, store: Face) -> None:
        key, owner = fresh("claim/stranger"), fresh("owner")
        assert store.one(Finish(key, fresh("stranger"), b"bforged", 100)).state is State.FREE
        store.one(Acquire(key, owner, 10))
        entry = store.one(Finish(key, fresh("stranger"), b"bforged", 100))
        assert (entry.state, entry.owner, entry.value) == (State.HELD, "", None)
        assert store.one(Renew(key, owner, 10)).owner == owner

    def test_release_and_renew_leave_a_result_as_it_is(self, store: Face) -> None:
        key, owner = fresh("claim/stays"), fresh("owner")
        store.perform(Acquire(key, owner, 10), Finish(key, owner, b"b", 100))
        assert store.one(Release(key, owner)) is Released.RELEASED
        assert abs(store.one(Renew(key, owner, 999)).left - 100) <= _TICK
        entry = store.one(Read(key))
        assert (entry.state, entry.value) == (State.DONE, b"b")

    def test_values_are_kept_byte_for_byte(self, store: Face) -> None:
        for value in (b"", b"\0", bytes(range(256)), "ключ\r\n$-1\r\n".encode(), b"x" * MAX_VALUE_BYTES):
            key, owner = fresh("claim/bytes"), fresh("owner")
            store.one(Acquire(key, owner, 10))
            assert store.one(Finish(key, owner, b"b" + value, 100)).value == b"b" + value
            assert store.one(Read(key)).value == b"b" + value
            assert store.one(Acquire(key, fresh("other"), 10, value=True)).value == b"b" + value

    def test_a_result_may_be_empty(self, store: Face) -> None:
        key, owner = fresh("reservation/empty"), fresh("owner")
        store.one(Acquire(key, owner, 10))
        assert store.one(Finish(key, owner, b"", 100)).value == b""
        assert store.one(Read(key)).value == b""
        assert store.one(Acquire(key, fresh("other"), 10, value=True)).value == b""

    def test_attempts_that_failed_are_shown_with_the_result(self, store: Face, clock: ManualClock) -> None:
        key = fresh("claim/attempts")
        store.one(Acquire(key, "first", 10))
        clock.advance(10)
        store.perform(Acquire(key, "second", 10), Release(key, "second", keep=60), Acquire(key, "third", 10))
        assert store.one(Finish(key, "third", b"bat last", 100)).attempts == 3
