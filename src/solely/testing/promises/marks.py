"""Promises about marks, which record that a key was seen, and watermarks, which only move forward."""

from __future__ import annotations

from datetime import UTC, datetime

from ...formats import write_watermark
from ...model import Released, State
from ...ops import Advance, Clear, Mark, Read, Release
from ..clock import ManualClock
from ..harness import TICK, Harness, fresh


class MarkPromises:
    """Mark and Advance."""

    def test_only_the_first_to_mark_is_first(self, store: Harness, clock: ManualClock) -> None:
        key, first, second = fresh("mark/first"), fresh("first"), fresh("second")
        assert store.one(Mark(key, first, 100)) is True
        clock.advance(40)
        assert store.one(Mark(key, second, 100)) is False
        assert store.one(Mark(key, first, 100)) is True  # a repeat of a lost reply
        entry = store.one(Read(key))
        assert (entry.state, entry.value, entry.owner) == (State.DONE, None, "")
        assert abs(entry.left - 60) <= TICK

    def test_a_thousand_ops_of_one_call_are_performed_in_their_order(self, store: Harness) -> None:
        keys = [fresh("mark/many") for _ in range(500)]
        again = [Mark(key, "second", 100) for key in keys]
        assert store.perform(*(Mark(key, "first", 100) for key in keys), *again) == [True] * 500 + [False] * 500

    def test_a_mark_that_extends_makes_the_mark_last_longer(self, store: Harness, clock: ManualClock) -> None:
        key, first, second = fresh("mark/longer"), fresh("first"), fresh("second")
        store.one(Mark(key, first, 100))
        fence = store.one(Read(key)).fence
        assert store.one(Mark(key, second, 1_000, extend=True)) is False
        assert store.one(Mark(key, second, 10, extend=True)) is False, "never shorter"
        assert store.one(Mark(key, second, 5_000)) is False, "without extend"
        entry = store.one(Read(key))
        assert (entry.fence, entry.left) == (fence, 1_000)
        assert store.one(Mark(key, first, 100)) is True, "its owner stays"
        clock.advance(999)
        assert store.one(Mark(key, fresh("third"), 100)) is False
        clock.advance(1)
        assert store.one(Mark(key, fresh("fourth"), 100, extend=True)) is True

    def test_marks_that_extend_can_share_a_batch_with_others(self, store: Harness, clock: ManualClock) -> None:
        keys = [fresh("mark/batch") for _ in range(20)]
        store.perform(*(Mark(key, "before", 10) for key in keys[:10]))
        longer = [Mark(key, "owner", 100, extend=True) for key in keys]
        others = [Mark(fresh("mark/batch"), "owner", 100) for _ in range(10)]
        assert store.perform(*longer, *others) == [False] * 10 + [True] * 20
        clock.advance(99)
        assert store.perform(*(Mark(key, "after", 100) for key in keys)) == [False] * 20

    def test_a_revoked_owner_extends_nothing(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("mark/revoked")
        store.perform(Mark(key, "first", 10), Release(key, "late", revoke=True))
        assert store.one(Mark(key, "late", 1_000, extend=True)) is False
        clock.advance(10)
        assert store.one(Mark(key, "next", 10)) is True

    def test_a_mark_lasts_for_its_ttl_and_not_a_tick_longer(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("mark/expiry")
        store.one(Mark(key, "first", 100))
        fence = store.one(Read(key)).fence
        clock.advance(100 - TICK)
        assert store.one(Mark(key, "second", 100)) is False
        clock.advance(TICK)
        assert store.one(Read(key)).state is State.FREE
        assert store.one(Mark(key, "third", 100)) is True
        assert store.one(Read(key)).fence > fence

    def test_a_mark_of_days_lasts_for_days(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("mark/days")
        store.one(Mark(key, "first", 86_400))
        clock.advance(86_399)
        assert store.one(Mark(key, "second", 86_400)) is False

    def test_a_forgotten_mark_can_be_made_again_but_not_by_a_late_copy(self, store: Harness) -> None:
        key = fresh("mark/forgotten")
        store.one(Mark(key, "first", 100))
        assert store.one(Clear(key, store.one(Read(key)).fence, "forget"))
        assert store.one(Read(key)).state is State.FREE
        assert store.one(Mark(key, "first", 100)) is False
        assert store.one(Mark(key, "second", 100)) is True

    def test_release_takes_back_the_mark_of_its_owner_only(self, store: Harness) -> None:
        key = fresh("mark/undone")
        store.one(Mark(key, "first", 100))
        assert store.one(Release(key, "second")) is Released.RELEASED
        assert store.one(Mark(key, "second", 100)) is False
        assert store.one(Release(key, "first")) is Released.RELEASED
        assert store.one(Release(key, "first")) is Released.RELEASED
        assert store.one(Mark(key, "second", 100)) is True

    def test_a_revoke_that_arrives_before_its_mark_refuses_it(self, store: Harness) -> None:
        key = fresh("mark/overtaken")
        store.one(Release(key, "first", revoke=True))
        assert store.one(Mark(key, "first", 100)) is False
        assert store.one(Mark(key, "second", 100)) is True

    def test_marks_in_one_batch_of_the_same_key_have_one_first(self, store: Harness) -> None:
        key = fresh("mark/batch")
        assert store.perform(*(Mark(key, f"owner-{n}", 100) for n in range(5))) == [True, False, False, False, False]

    def test_a_watermark_keeps_the_greatest_value_compared_as_bytes(self, store: Harness) -> None:
        for kind, written in (("watermark", _times_and_numbers()), ("letter", _failures())):
            key, least, middle, most = fresh(f"{kind}/greatest"), *sorted(written)
            given = (middle, least, middle, most, least)
            assert [store.one(Advance(key, value)).value for value in given] == [middle, middle, middle, most, most]

    def test_a_watermark_never_expires(self, store: Harness, clock: ManualClock) -> None:
        key = fresh("watermark/forever")
        before, value = write_watermark(2024), write_watermark(2025)
        entry = store.one(Advance(key, value))
        assert (entry.state, entry.left, entry.owner) == (State.DONE, float("inf"), "")
        clock.advance(20 * 366 * 86_400.0)
        entry = store.one(Read(key))
        assert (entry.state, entry.left, entry.value) == (State.DONE, float("inf"), value)
        assert store.one(Advance(key, before)).value == value

    def test_a_watermark_goes_back_only_by_a_clear(self, store: Harness) -> None:
        key, least, more = fresh("watermark/back"), write_watermark(-(2**63)), write_watermark(0)
        assert store.one(Advance(key, least)).value == least
        fence = store.one(Advance(key, more)).fence
        assert store.one(Clear(key, fence, "replay"))
        assert store.one(Read(key)).state is State.FREE
        assert store.one(Advance(key, least)).value == least


def _times_and_numbers() -> list[bytes]:
    return [write_watermark(value) for value in (9, 10, datetime(2025, 1, 1, tzinfo=UTC))]


def _failures() -> list[bytes]:
    """Returns values that a store would order wrongly if it compared text by a language's collation."""
    facts = '{"last_error":"%s","attempts":1,"last_at":"2025-01-01T00:00:00+00:00","mark":0}'
    return [b"%020d %010d " % (1, 1) + (facts % error).encode() for error in ("a", "B", "é")]
