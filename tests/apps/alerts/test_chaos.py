"""Workers, stores and databases die at the worst moments: nothing is lost, and nothing gets a second id.

The moment is that of a delivery: the inbox has it in hand, knows which worker waits for the answer, and acts before
that can go on. So nothing in the product has to know of these tests.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from solely.testing.proxy import FaultProxy
from tests.apps.alerts.fleet import HOLD, POST, Fleet, alert, fleet, holding
from tests.apps.fleet import BEGINS, SOON, Tried
from tests.apps.inbox import Delivery, Meeting, connections, inbox
from tests.conftest import in_schema
from tests.postgres_server import PYPI_POSTGRES, Postgres
from tests.servers import Valkey
from tests.service.serving import until

STORES = ("valkey", "postgres") if PYPI_POSTGRES is not None else ("valkey",)
ON_VALKEY = pytest.mark.parametrize("city", ["valkey"], indirect=True)
AWAY = 503


class City(NamedTuple):
    """A fleet, the server of its store, that of its history if it is another, and what is between it and its store, if
    anything is."""

    fleet: Fleet
    store: Valkey | Postgres
    history: Postgres | None
    between: FaultProxy | None

    def sent_once(self, fingerprint: str, deliveries: int) -> None:
        """Returns when the alert is sent, recorded and out of the outbox: so often, and under one id."""
        until(lambda: len(self.fleet.inbox.of(fingerprint)) >= deliveries, SOON)
        until(lambda: not self.fleet.waiting(fingerprint), SOON)
        assert len(self.fleet.inbox.of(fingerprint)) == deliveries
        assert len(self.fleet.inbox.ids(fingerprint)) == 1
        assert self.fleet.send(fingerprint)["reason"] == "quiet"


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(scope="module", params=STORES)
def city(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[City]:
    """Four workers on a server that keeps what it said it has, and that the tests may kill."""
    folder, quick = tmp_path_factory.mktemp("fleet"), {"store_timeout": "1", **holding(HOLD)}
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("database")
        with fleet(in_schema(server.url), folder, quick) as it:
            yield City(it, server, None, None)
        return
    other = request.getfixturevalue("database") if PYPI_POSTGRES is not None else None
    if other is not None:
        quick["data_url"] = in_schema(other.url)
    with (
        Valkey(appendonly="yes", appendfsync="always") as store,
        FaultProxy(store.host, store.port) as between,
        fleet(between.url(store.url), folder, quick) as it,
    ):
        yield City(it, store, other, between)


@pytest.fixture(autouse=True)
def enough_workers(request: pytest.FixtureRequest) -> None:
    """Those that were killed before are replaced by and by; two are enough for one to take over from the other."""
    if "city" in request.fixturenames:
        request.getfixturevalue("city").fleet.until_serving(2)


@pytest.fixture
def senders() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as threads:
        yield threads


# -- workers


@ON_VALKEY
def test_a_worker_killed_as_soon_as_it_reserved_is_replaced_by_the_one_that_was_suppressed(city: City) -> None:
    assert city.between is not None
    city.fleet.send("the-first")  # with which the store learns the scripts: the next answer is to the reservation
    granted = city.between.drop_replies(answering=lambda ops: b"reservation/" in ops and b"only-reserved" in ops)
    with closing(HTTPConnection("127.0.0.1", city.fleet.port, timeout=SOON)) as sender:
        headers = {**city.fleet.headers, "content-type": "application/json"}
        sender.request("POST", POST, json.dumps(alert("only-reserved")), headers)
        assert granted.wait()
        os.kill(city.fleet.answerer(sender.sock.getsockname()[1]), signal.SIGKILL)
        with pytest.raises(ConnectionError):
            sender.getresponse()
    assert city.fleet.waiting("only-reserved") == 0
    assert city.fleet.send("only-reserved").get("reason") == "reserved"
    city.sent_once("only-reserved", deliveries=1)  # though its sender has been answered, and does not come again


def test_a_worker_killed_before_it_published_is_taken_over(city: City) -> None:
    city.fleet.inbox.meet_next(city.fleet.kill_publishing, kept=False)
    with pytest.raises(httpx2.TransportError):
        city.fleet.send("unpublished")
    assert city.fleet.inbox.of("unpublished") == []
    city.sent_once("unpublished", deliveries=1)  # though its sender, who knows of nothing, never comes again


def test_a_worker_killed_after_it_published_is_taken_over_under_the_same_id(city: City) -> None:
    city.fleet.inbox.meet_next(city.fleet.kill_publishing, kept=True)
    began = time.monotonic()
    with pytest.raises(httpx2.TransportError):
        city.fleet.send("unanswered")
    repeat = city.fleet.send("unanswered")
    assert repeat.get("reason") == "reserved" or time.monotonic() - began > HOLD
    city.sent_once("unanswered", deliveries=2)


def test_a_worker_killed_after_it_was_answered_and_before_it_recorded_is_taken_over(
    city: City, senders: ThreadPoolExecutor
) -> None:
    met: list[Delivery] = []

    def stop_store(delivery: Delivery) -> bool:
        worker.append(city.fleet.publishing_worker(delivery))
        city.store.pause()
        met.append(delivery)
        return True

    worker: list[int] = []
    city.fleet.inbox.meet_next(stop_store, kept=True)
    sending = senders.submit(city.fleet.send, "unrecorded")
    try:
        until(lambda: met and city.fleet.inbox.has_read_answer(met[0]), SOON)
        os.kill(worker[0], signal.SIGKILL)
    finally:
        city.store.resume()
    with pytest.raises(httpx2.TransportError):
        sending.result(SOON)
    city.sent_once("unrecorded", deliveries=2)


@ON_VALKEY
def test_a_worker_that_stood_still_past_its_hold_finds_that_another_has_sent_it(
    city: City, senders: ThreadPoolExecutor
) -> None:
    taken_over = threading.Event()

    def stand_still(delivery: Delivery) -> bool:
        worker = city.fleet.publishing_worker(delivery)
        os.kill(worker, signal.SIGSTOP)
        try:
            return taken_over.wait(SOON)
        finally:
            os.kill(worker, signal.SIGCONT)

    city.fleet.inbox.meet_next(stand_still, kept=True)
    sending = senders.submit(city.fleet.send, "stood-still")
    until(lambda: len(city.fleet.inbox.of("stood-still")) == 2, SOON)
    taken_over.set()
    assert sending.result(SOON)["outcome"] == "published"
    city.sent_once("stood-still", deliveries=2)
    assert "Reservation ID mismatch" in city.fleet.service.log.read_text()
    until(lambda: city.fleet.counters()["reservations_expired"] >= 1)


# -- the store


def any_unread(port: int) -> bool:
    """True if something was asked that the server on this port has not looked at."""
    return any(connection.unread for _, connection in connections(port))


def test_a_store_killed_during_reservations_loses_no_alert_that_was_acknowledged(
    city: City, senders: ThreadPoolExecutor
) -> None:
    city.fleet.until_serving()
    names = [f"outage-{number}" for number in range(20)]
    city.store.pause()
    tries: dict[str, list[Tried]] = {name: [] for name in names}
    sending = [senders.submit(city.fleet.insist, name, tries[name]) for name in names]
    until(lambda: all(each.running() for each in sending) and any_unread(city.store.port), SOON)
    city.store.kill()
    killed = time.monotonic()
    until(lambda: all(them and them[-1].at > killed for them in tries.values()), SOON)  # all have met the outage
    back = time.monotonic()
    city.store.start()
    for each in sending:
        each.result(SOON)
    assert {each.status for them in tries.values() for each in them if killed < each.at < back} == {AWAY}
    until(lambda: all(city.fleet.inbox.ids(name) for name in names), SOON)
    for name in names:
        city.sent_once(name, deliveries=len(city.fleet.inbox.of(name)))


def test_a_store_killed_during_a_publish_leads_to_a_repeat_under_the_same_id(city: City) -> None:
    def kill_store(_: Delivery) -> bool:
        city.store.kill()
        return True

    city.fleet.until_serving()
    city.fleet.inbox.meet_next(kill_store, kept=True)
    answer = city.fleet.send("killed-while-publishing")
    city.store.start()
    assert answer["outcome"] == "published"  # it was; that could not be written down
    city.sent_once("killed-while-publishing", deliveries=2)


# -- the history


@ON_VALKEY
def test_without_the_database_of_the_history_alerts_are_sent_and_recorded_later(city: City) -> None:
    assert city.history is not None, "there is a server of its own for the history where the store is Valkey"
    city.history.kill()
    try:
        for number in range(10):
            assert city.fleet.send(f"unwritten-{number}")["outcome"] == "published"
        assert city.fleet.send("unwritten-0", status="resolved")["outcome"] == "published"
    finally:
        city.history.start()
    assert [len(city.fleet.inbox.ids(f"unwritten-{number}")) for number in range(10)] == [2] + [1] * 9
    until(lambda: len(city.fleet.history("unwritten-0")) == 2, SOON)
    until(lambda: all(city.fleet.history(f"unwritten-{number}") for number in range(10)), SOON)


@ON_VALKEY
def test_a_worker_that_cannot_start_again_without_that_database_stops_no_other(city: City) -> None:
    assert city.history is not None
    city.fleet.until_serving()
    city.history.kill()
    try:
        before = set(city.fleet.workers)
        os.kill(min(before), signal.SIGKILL)
        seen: set[int] = set()

        def tried_twice() -> bool:
            seen.update(set(city.fleet.workers) - before)
            return len(seen) >= 2

        until(tried_twice, BEGINS)
        for number in range(3):
            assert city.fleet.send(f"still-there-{number}")["outcome"] == "published"
    finally:
        city.history.start()
    city.fleet.until_serving()


# -- a stop in order


def waiting_for(event: threading.Event) -> Meeting:
    """A receiver that answers when the event comes."""
    return lambda _: event.wait(SOON)


def test_a_service_that_is_stopped_while_it_publishes_finishes_that_or_leaves_it_to_the_next(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    # Twenty seconds to stop: eight were too few once to finish a publish at a load of 16. The other waits all of them.
    patience = {"stop_timeout": "20", "alerts_answer_within": "0.1", **holding(HOLD)}
    stopping, over = threading.Event(), threading.Event()
    with inbox("fingerprint") as receiver:
        with fleet(url, tmp_path, patience, workers=1, receiver=receiver) as it:
            for name, answered in (("finished", stopping), ("left-over", over)):
                receiver.meet_next(waiting_for(answered), kept=True)
                assert it.send(name)["reason"] == "publishing"
            it.service.signal(signal.SIGTERM)
            until(lambda: "Waiting for application shutdown" in it.service.log.read_text(), SOON)
            stopping.set()  # one receiver answers now, the other does not
            assert it.service.wait() == 0
            over.set()
            assert (it.waiting("finished"), it.waiting("left-over")) == (0, 1)
        with fleet(url, tmp_path, holding(HOLD), workers=1, receiver=receiver) as it:
            until(lambda: not it.waiting(), SOON)
        assert len(receiver.of("finished")) == 1
        assert (len(receiver.of("left-over")), len(receiver.ids("left-over"))) == (2, 1)
