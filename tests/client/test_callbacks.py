"""Callbacks of lost leases run apart from the keeper of the others, in order, a bounded number at a time."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from solely import Client, events
from solely.leases.callbacks import CallbackThreads

SOON = 60.0  # seconds: far more than any of this takes


def _until(happened: object, ends: float = SOON) -> None:
    assert callable(happened)
    deadline = time.monotonic() + ends
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["expired", "cleared"])  # found by the loop that watches, or by the one that renews
def test_a_hanging_callback_stops_neither_renewals_nor_other_callbacks(how: str) -> None:
    go_on, called, renewed = threading.Event(), list[str](), list[str]()

    def note(event: events.Event, /) -> None:
        if isinstance(event, events.Renewed):
            renewed.append(event.key)

    def hang() -> None:
        called.append("hangs")
        go_on.wait(SOON)

    with Client("memory://", hooks=[note]) as once:
        kept = once.lock("kept", ttl=3.0)
        once.lock("hangs", ttl=0.4, renew=how == "cleared", on_lost=hang)
        if how == "cleared":
            once.clear_lock("hangs", reason="test")
        _until(lambda: called == ["hangs"])
        once.lock("other", ttl=0.2, renew=False, on_lost=lambda: called.append("other"))
        _until(lambda: called == ["hangs", "other"])
        before = len(renewed)
        _until(lambda: len(renewed) >= before + 3)  # 4.5 s, longer than the ttl
        assert not kept.lost
        go_on.set()


def test_close_waits_for_a_callback_that_runs() -> None:
    began, ended = threading.Event(), threading.Event()

    def callback() -> None:
        began.set()
        time.sleep(0.2)
        ended.set()

    with Client("memory://") as once:
        once.lock("a", ttl=0.1, renew=False, on_lost=callback)
        assert began.wait(SOON)
    assert ended.is_set()


def test_a_callback_may_close_the_client() -> None:
    once, closed = Client("memory://"), threading.Event()

    def close() -> None:
        once.close()
        closed.set()

    once.lock("a", ttl=0.1, renew=False, on_lost=close)
    assert closed.wait(SOON)


def test_callbacks_run_in_order_and_a_bounded_number_at_a_time() -> None:
    threads, go_on, begun = CallbackThreads(), threading.Event(), list[int]()
    others = set(threading.enumerate())

    def callback(n: int) -> None:
        begun.append(n)
        go_on.wait(SOON)

    for n in range(50):
        threads.run(lambda n=n: callback(n))  # type: ignore[misc]
    _until(lambda: len(begun) == 8)
    assert len(set(threading.enumerate()) - others) == 8
    threads.close(0.01)  # does not wait for those that hang
    go_on.set()
    threads.close(SOON)
    assert sorted(begun) == list(range(50))
    assert sorted(begun[:8]) == list(range(8))
    _until(lambda: not set(threading.enumerate()) - others)


def test_a_callback_that_comes_while_all_threads_are_ending_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ending, go_on, done = threading.Semaphore(0), threading.Event(), threading.Event()

    class Ending(CallbackThreads):
        """Its threads stop for a while just after they found nothing to do."""

        def _next(self, *given: Any) -> Callable[[], object] | None:
            callback = super()._next(*given)
            if callback is None:
                ending.release()
                go_on.wait(SOON)
            return callback

    monkeypatch.setattr("solely.leases.callbacks._IDLE", 0.01)
    threads, all_run = Ending(), threading.Barrier(8)
    for _ in range(8):
        threads.run(lambda: all_run.wait(SOON))
    for _ in range(8):
        assert ending.acquire(timeout=SOON)
    threads.run(done.set)
    assert done.wait(5.0)
    go_on.set()
    threads.close(SOON)


def test_an_interpreter_that_starts_no_threads_runs_it_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refused)
    done = list[int]()
    CallbackThreads().run(lambda: done.append(1))
    assert done == [1]
