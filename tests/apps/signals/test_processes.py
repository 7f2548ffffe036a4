"""Many processes poll the same data at once: each signal is written exactly once. A process that is killed between any
two steps loses no signal, and repeats none."""

from __future__ import annotations

import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from solely import Client
from solely.apps.signals import GroupResult, IdempotentSignalGenerator, SignalOptions
from tests.apps.signals.pollers import CREDENTIALS, GROUPS, PATIENT, Pollers, credentials, signals_of
from tests.apps.signals.sinks import SINKS, Sink
from tests.conftest import STORES

PROCESSES = 8
KINDS = [kind for kind in SINKS if kind in STORES]
ONCE = Counter(dict.fromkeys(credentials(), 1))


@pytest.fixture(scope="module")
def pollers() -> Iterator[Pollers]:
    with Pollers() as it:
        yield it


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A store with a place for signals beside it; the test runs once per kind of database."""
    url = STORES[request.param](request)
    url = f"{url}?shared=true" if request.param == "sqlite" else url
    return {"kind": request.param, "url": url, "sink": f"s{secrets.token_hex(6)}"}


@pytest.fixture
def sink(place: dict[str, Any]) -> Iterator[Sink]:
    """The place for signals."""
    it = SINKS[place["kind"]](place["url"], place["sink"])
    yield it
    it.close()


def test_the_unprotected_path_writes_duplicates(pollers: Pollers, place: dict[str, Any], sink: Sink) -> None:
    results = pollers.poll(PROCESSES, path="unprotected", **place)
    assert len(results) == PROCESSES
    assert sink.counts() == Counter(dict.fromkeys(credentials(), PROCESSES))


@pytest.mark.parametrize("path", ["by_id", "transaction"])
def test_eight_processes_write_each_signal_exactly_once(
    pollers: Pollers, place: dict[str, Any], sink: Sink, path: str
) -> None:
    results = pollers.poll(PROCESSES, path=path, **place)
    assert sink.counts() == ONCE
    assert sum(result["generated"] for result in results) == len(GROUPS) * CREDENTIALS
    assert sum(result["deduplicated"] for result in results) == (PROCESSES - 1) * len(GROUPS) * CREDENTIALS


@pytest.mark.only_with_all
@pytest.mark.parametrize("turn", range(10))
def test_eight_processes_again_and_again(pollers: Pollers, place: dict[str, Any], sink: Sink, turn: int) -> None:
    pollers.poll(PROCESSES, path="by_id", **place)
    assert sink.counts() == ONCE


# -- SIGKILL


def later(place: dict[str, Any], sink: Sink, seconds: float) -> list[GroupResult]:
    """What a process gets that polls all groups so many seconds later, on the clock of the store."""
    options = SignalOptions(window=300)
    with Client(place["url"], timeout=PATIENT, clock=lambda: time.time() + seconds) as once:
        return IdempotentSignalGenerator(signals_of, sink.write, once, options=options).generate_signals(GROUPS)


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_holder_that_is_killed_loses_no_signal_and_repeats_none(
    pollers: Pollers, place: dict[str, Any], sink: Sink, dies: str
) -> None:
    (killed,) = pollers.poll(1, path="by_id", dies=dies, **place)
    assert killed["exit"] == -signal.SIGKILL
    written = sink.counts()
    assert written.total() == (9 if dies == "before" else 10)
    assert later(place, sink, 20.0)[0].outcome == "contended"  # the dead one still has the lock of the first group
    first = later(place, sink, 30.0 + 1.0)[0]
    assert (first.outcome, first.generated) == ("generated", CREDENTIALS)
    assert sink.counts() == ONCE


@pytest.mark.parametrize("place", [kind for kind in KINDS if kind != "mongo"], indirect=True)
def test_a_holder_that_is_killed_in_its_transaction_has_written_nothing(
    pollers: Pollers, place: dict[str, Any], sink: Sink
) -> None:
    pollers.poll(1, path="transaction", dies="after", **place)
    assert sink.counts().total() == 0
    later(place, sink, 31.0)
    assert sink.counts() == ONCE


def test_a_holder_that_wakes_up_late_repeats_nothing(place: dict[str, Any], sink: Sink) -> None:
    """Its lock expired while it was suspended before a write, and another process has written everything since."""
    options = SignalOptions(window=300, backoff=(0.0,))
    done: list[GroupResult] = []

    def write(signal_: dict[str, Any], id: str) -> object:
        if not done:
            done.extend(later(place, sink, 31.0))
        return sink.write(signal_, id)

    with Client(place["url"], timeout=PATIENT, clock=time.time) as once:
        IdempotentSignalGenerator(signals_of, write, once, options=options).generate_signals(GROUPS)
    assert done[0].generated == CREDENTIALS
    assert sink.counts() == ONCE
