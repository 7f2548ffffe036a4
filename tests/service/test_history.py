"""The history: what happened to a key is kept over workers and restarts, within bounds, and never delays a request."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from solely import AsyncClient, Client, events
from solely.cli.history import history as history_command
from solely.data import open_database
from solely.http import Client as HttpClient
from solely.service.api.claims import JsonResult
from solely.service.history.journal import EventHistory
from solely.service.history.recorder import ALARMS, BUDGET, SAMPLES, HistoryRecorder
from solely.service.history.records import HistoryEvent
from solely.service.history.timeline import timeline
from solely.service.metrics import Metrics
from tests.conftest import STORES
from tests.service.serving import LINES, TOKENS, Process, Running, running, until, workers_of


@pytest.fixture(params=[name for name in ("sqlite", "postgres") if name in STORES])
def data_url(request: pytest.FixtureRequest) -> str:
    return STORES[request.param](request)


@pytest.fixture
def api(guarded: Running) -> Any:
    with HttpClient(guarded.address, token=TOKENS["write"]) as client:
        yield client


def words(found: list[dict[str, Any]]) -> list[str]:
    return [each["event"] for each in found]


def lines(it: Running, kind: str, key: str, scope: str = "read") -> list[dict[str, Any]]:
    headers = {"authorization": f"Bearer {TOKENS[scope]}"}
    answer = it.get("/v1/history", params={"kind": kind, "key": key}, headers=headers)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["timeline"]
    return found


# -- what is kept


def test_the_timeline_of_a_lock_says_what_happened_and_by_whom(guarded: Running, api: HttpClient) -> None:
    lease = api.locks.acquire("repo/42", ttl=60, purpose="deploy")
    for _ in range(14):
        api.locks.renew(lease.token)
    refused = guarded.post(
        "/v1/locks/acquire", {"key": "repo/42"},
        headers={"authorization": f"Bearer {TOKENS['write']}", "solely-holder": "nightly"},
    )  # fmt: skip
    assert refused.status_code == 409
    api.locks.release(lease.token)
    found = lines(guarded, "lock", "repo/42")
    assert words(found) == ["released", "refused", "renewed", "acquired"]
    assert found[2]["text"].startswith("14 times")
    assert found[1]["who"] == "writeer, nightly from 127.0.0.1"
    assert found[3]["who"].startswith("writeer, ")
    assert found[3]["who"].endswith(" from 127.0.0.1")
    assert "deploy" in found[1]["text"]
    assert found[0]["fence"] == found[3]["fence"] == lease.fence
    with HttpClient(guarded.address, token=TOKENS["read"]) as reader:
        told = [(each.event, each.times) for each in reader.history.list("repo/42", kind="lock")]
    assert told == [("released_lease", 1), ("contended", 1), ("renewed", 14), ("acquired", 1)]


def test_claims_reservations_items_and_admin_acts_are_in_it(guarded: Running, api: HttpClient) -> None:
    won = api.claims.claim("charge-1")
    api.claims.publish(won.token, JsonResult(value=7))
    assert words(lines(guarded, "claim", "charge-1")) == ["published", "claimed"]
    hold = api.reservations.reserve("cpu-high", quiet=60)
    api.reservations.record(hold.id)
    api.reservations.reserve("cpu-high", quiet=60)
    assert words(lines(guarded, "reservation", "cpu-high")) == ["suppressed", "recorded", "reserved"]
    api.queues.push("mails", "m1", {"to": "a"})
    item = api.queues.take("mails")
    assert item is not None
    api.queues.ack("mails", item.token)
    assert words(lines(guarded, "item", "queue%3Amails/m1")) == ["acked", "taken", "pushed"]
    lease = api.locks.acquire("stuck")
    body = {"key": "lock/stuck", "fence": lease.fence, "reason": "its host is gone"}
    admin = {"authorization": f"Bearer {TOKENS['admin']}"}
    assert guarded.post("/v1/entries/clear", body, headers=admin).json() == {"cleared": True}
    cleared = lines(guarded, "lock", "stuck")[0]
    assert (cleared["event"], cleared["who"]) == ("cleared", "adminer from 127.0.0.1")
    assert "its host is gone" in cleared["text"]


def test_a_client_that_uses_the_service_as_a_store_is_seen(guarded: Running) -> None:
    host = guarded.address.removeprefix("http://")
    with Client(f"http://{TOKENS['write']}@{host}") as once:
        with once.lock("remote", ttl=30) as lease:
            assert once.try_lock("remote") is None
            lease.renew()
        once.first("remote-mark")
        claim = once.claim("remote-claim")
        claim.publish(1)
    found = lines(guarded, "lock", "remote")
    assert words(found) == ["released", "renewed", "refused", "acquired"]
    assert {each["who"] for each in found} == {"writeer from 127.0.0.1"}
    assert words(lines(guarded, "mark", "remote-mark")) == ["marked"]
    assert words(lines(guarded, "claim", "remote-claim")) == ["published", "claimed"]


def test_who_resumed_a_token_is_in_it(guarded: Running, api: HttpClient) -> None:
    token = api.locks.acquire("handed", ttl=30).token
    resumed = api.locks.resume(token)
    api.locks.release(token)
    api.locks.release(resumed.token)
    found = lines(guarded, "lock", "handed")
    assert words(found) == ["released", "released", "resumed", "acquired"]
    assert "too late: it was resumed before" in found[1]["text"]
    assert (found[2]["fence"], found[2]["text"]) == (resumed.fence, "by another holder, with its token, for 30.0 s")
    host = guarded.address.removeprefix("http://")
    with Client(f"http://{TOKENS['write']}@{host}") as once:
        once.resume(once.lock("remote-handed", ttl=30).hand_over()).release()
        once.queue("handed").push("a", 1)
        item = once.queue("handed").take(ttl=30)
        assert item is not None
        assert once.queue("handed").resume(item.hand_over()).ack()
    assert words(lines(guarded, "lock", "remote-handed")) == ["released", "resumed", "acquired"]
    assert words(lines(guarded, "item", "queue%3Ahanded/a")) == ["acked", "resumed", "taken", "pushed"]


def test_an_expiry_that_nobody_reported_is_inferred() -> None:
    def event(at: float, word: str, fence: int, **facts: Any) -> HistoryEvent:
        return HistoryEvent(str(at), at, "lock", "a", word, "web-1 pid 1", fence, 1, at, facts)

    told = [event(100.0, "acquired", 2, left=30.0), event(20.0, "renewed", 1, left=10.0), event(10.0, "acquired", 1)]
    found = timeline(told, now=110.0)
    assert [(each.event, each.at, each.inferred) for each in found] == [
        ("acquired", 100.0, False), ("expired", 30.0, True), ("renewed", 20.0, False), ("acquired", 10.0, False),
    ]  # fmt: skip
    assert timeline(told, now=200.0)[0].event == "expired"  # the current hold, too


# -- who holds, who waits


def test_a_hold_taken_over_http_shows_its_caller_and_not_the_service(guarded: Running, api: HttpClient) -> None:
    api.locks.acquire("mine", purpose="deploy")
    api.claims.claim("mine")
    api.reservations.reserve("mine")
    admin = {"authorization": f"Bearer {TOKENS['admin']}"}
    for kind in ("lock", "claim", "reservation"):
        holder = guarded.get(f"/keys/{kind}/mine?format=json", headers=admin).json()["holder"]
        assert holder["name"] == "writeer"
        assert holder["address"] == "127.0.0.1"
        assert holder["pid"] > 0
    listed = next(each for each in api.locks.list("mine"))
    assert listed.holder.startswith("writeer, ")
    assert listed.purpose == "deploy"


@pytest.mark.parametrize(("given", "host", "pid"), [("nightly", "nightly", None), ("web-3 pid 4711", "web-3", 4711)])
def test_a_caller_names_itself_in_a_header(open_service: Running, given: str, host: str, pid: int | None) -> None:
    open_service.post("/v1/locks/acquire", {"key": given}, headers={"solely-holder": given})
    holder = open_service.get(f"/keys/lock/{given}?format=json").json()["holder"]
    assert (holder["name"], holder["host"], holder["pid"], holder["address"]) == ("", host, pid, "127.0.0.1")


@pytest.mark.parametrize("given", [b"x" * 65, "a\x9fb".encode()])
def test_an_invalid_name_is_refused_with_a_sentence(open_service: Running, given: bytes) -> None:
    refused = open_service.post("/v1/locks/acquire", {"key": "bad-name"}, headers=[(b"solely-holder", given)])
    assert refused.status_code == 400
    assert "Solely-Holder must be" in refused.json()["detail"]
    assert open_service.get("/keys/lock/bad-name?format=json").json()["state"] == "free"


def test_the_service_holds_its_own_leases_itself(open_service: Running) -> None:
    """A background loop that a request has started does not act for that caller."""

    async def hold() -> str:
        once: AsyncClient = open_service.service.once
        async with await once.lock("own", ttl=30) as lease:
            await lease.renew()
        return ""

    open_service.run(hold())
    found = open_service.get("/v1/history", params={"kind": "lock", "key": "own"}).json()["timeline"]
    assert found[-1]["event"] == "acquired"
    assert all(each["who"].startswith("the service, ") for each in found)


def test_waiters_are_named(guarded: Running, api: HttpClient) -> None:
    lease = api.locks.acquire("busy", ttl=60)
    headers = {"authorization": f"Bearer {TOKENS['write']}", "solely-holder": "web-9 pid 3"}
    body = {"key": "busy", "wait": 50}
    waiter = threading.Thread(target=lambda: guarded.post("/v1/locks/acquire", body, headers=headers))
    waiter.start()

    def waiting() -> Any:
        shown = {"authorization": f"Bearer {TOKENS['read']}"}
        return guarded.get("/keys/lock/busy?format=json", headers=shown).json()["waiting"]

    (found,) = until(waiting)
    assert found["who"] == "writeer, web-9 pid 3 from 127.0.0.1"
    assert found["since"] <= time.time()
    api.locks.release(lease.token)
    waiter.join(60)
    until(lambda: not waiting())


# -- the page


@pytest.mark.parametrize("key", ["a/b", "/a//b/", "..", "a/../b", "ü ?&#%2F", "'\"<script>", "x" * 512])
def test_every_key_has_a_page(open_service: Running, key: str) -> None:
    from solely.service.dashboard.links import key_link

    open_service.post("/v1/locks/acquire", {"key": key, "ttl": 60})
    shown = open_service.get(key_link(key, "lock"), headers={"accept": "application/json"})
    assert shown.status_code == 200
    assert (shown.json()["key"], shown.json()["state"]) == (key, "held")
    page = open_service.get(key_link(key, "lock"), headers={"accept": "text/html"}).text
    assert 'href="/locks" aria-current="page"' in page
    assert "<script>" not in page.replace('<script src="', "")


def test_lists_and_events_link_to_it(open_service: Running) -> None:
    open_service.post("/v1/locks/acquire", {"key": "linked/1", "ttl": 60})
    for path in ("/locks", "/"):
        assert 'href="/keys/lock/linked/1"' in open_service.get(path, headers={"accept": "text/html"}).text


def test_an_unknown_kind_is_not_found(open_service: Running) -> None:
    assert open_service.get("/keys/nonsense/a").status_code == 404


def test_the_timeline_is_paged(open_service: Running) -> None:
    for _ in range(60):
        lease = open_service.post("/v1/locks/acquire", {"key": "often"}).json()
        open_service.post("/v1/locks/release", {"token": lease["token"]})
    first = open_service.get("/keys/lock/often?format=json").json()
    rest = open_service.get("/keys/lock/often", params={"format": "json", "after": first["next"]}).json()
    assert (len(first["timeline"]), len(rest["timeline"]), rest["next"]) == (100, 20, None)
    refused = open_service.get("/v1/history", params={"after": "nonsense"})
    assert refused.status_code == 422 or refused.status_code == 400


# -- kept over restarts and workers, within bounds


def test_it_outlives_restarts_and_is_one_for_all_workers(tmp_path: Path, data_url: str) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    variables = {
        "SOLELY_URL": store,
        "SOLELY_DATA_URL": data_url,
        "SOLELY_APPS": "none",
        "SOLELY_TOKENS": ",".join(LINES),
    }

    def acquire_and_release(address: str, times: int) -> None:
        for _ in range(times):  # each on a new connection, so that every worker gets some
            with HttpClient(address, token=TOKENS["write"]) as client:
                client.locks.release(client.locks.acquire("nightly", ttl=60).token)

    def kept(address: str) -> list[str]:
        with HttpClient(address, token=TOKENS["read"]) as client:
            found = client.get("/v1/history", dict[str, Any], kind="lock", key="nightly", limit=1000)
        return [each["event"] for each in found["events"]]

    with Process(tmp_path, "--workers", "2", **variables) as service:
        address = service.address()
        until(lambda: len(workers_of(service.pid)) >= 2)
        acquire_and_release(address, 10)
        until(lambda: kept(address).count("acquired") == 10)
        service.signal(signal.SIGTERM)
        service.wait(60)
    with Process(tmp_path, "--workers", "2", **variables) as service:
        address = service.address()
        acquire_and_release(address, 2)
        until(lambda: kept(address) == ["released_lease", "acquired"] * 12)


async def test_it_is_bounded_in_time_and_number(data_url: str) -> None:
    data = open_database(data_url)
    history = EventHistory(Metrics(), keep=100.0, most=1000)
    await history.open(data)
    try:
        for number in range(700):
            history.recorder(events.Acquired(f"lock/{number % 7}", number, 0.0))
            history.recorder(events.Lost(f"lock/{number % 7}", number, "expired"))
            if number % 50 == 0:
                await history.flush()
        await history.flush()
        await history.sweep()
        found = await history.events(limit=1000)
        counted = {word: sum(each.event == word for each in found) for word in ("acquired", "lost")}
        assert 490 <= counted["acquired"] <= 500  # some may have the same moment
        assert 240 <= counted["lost"] <= 250
        assert max(each.fence for each in found) == 699  # the newest are kept
        history.keep = 0.0
        await history.sweep()
        assert await history.events() == []
    finally:
        await data.close()


async def test_a_database_that_is_away_costs_events_and_nothing_else(tmp_path: Path) -> None:
    data = open_database(f"sqlite:///{tmp_path / 'data.db'}")
    history = EventHistory(Metrics(), keep=100.0, most=1000)
    await history.open(data)
    await data.run("ALTER TABLE service_events RENAME TO elsewhere")
    history.recorder(events.Acquired("lock/a", 1, 0.0))
    with pytest.raises(Exception, match="service_events"):
        await history.flush()
    await data.run("ALTER TABLE elsewhere RENAME TO service_events")
    assert [each.event for each in await history.events("lock", "a")] == ["acquired"]  # kept meanwhile
    await data.close()


def test_a_service_without_a_usable_database_runs_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "data.db").write_bytes(b"this is not a database, but a file of somebody else" * 100)
    with running(apps=("none",), data_url=f"sqlite:///{tmp_path / 'data.db'}") as it:
        assert it.post("/v1/locks/acquire", {"key": "a"}).status_code == 200
        shown = until(
            lambda: it.get("/keys/lock/a?format=json").json()["history"]["problem"] and it.get("/keys/lock/a")
        )
        assert "not kept at the moment" in shown.text
        assert it.get("/readyz").status_code == 200


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    with running(history=0) as it:
        it.post("/v1/locks/acquire", {"key": "a"})
        found = it.get("/v1/history").json()
        assert (found["events"], found["problem"]) == ([], "it is turned off (history = 0)")


# -- under load


def test_marks_are_sampled_and_what_went_wrong_is_not() -> None:
    recorder = HistoryRecorder()
    for number in range(10 * SAMPLES):
        recorder(events.Marked(f"mark/{number}", True))
        recorder(events.Lost(f"lock/{number}", number, "expired"))
    found = recorder.rows()
    assert sum(row["event"] == "marked" for row in found) == SAMPLES
    assert sum(row["event"] == "lost" for row in found) == 10 * SAMPLES <= ALARMS
    assert recorder.dropped == 0  # samples are no loss


def test_under_load_the_timelines_that_are_kept_are_complete() -> None:
    """All events of some keys, none of the others; and nothing is lost again when the load is over."""
    recorder, kept = HistoryRecorder(), list[dict[str, Any]]()
    for round in range(20):
        for number in range(5 * BUDGET):
            recorder(events.Acquired(f"lock/{number}", number, 0.0))
            recorder(events.ReleasedLease(f"lock/{number}", number, 0.1, "released"))
        kept = recorder.rows() if round < 19 else kept + recorder.rows()
    assert 0 < len(kept) <= 2 * BUDGET
    by_key: dict[str, int] = {}
    for row in kept:
        by_key[row["name"]] = by_key.get(row["name"], 0) + 1
    complete = sum(count % 2 == 0 for count in by_key.values())
    assert complete >= len(by_key) - 1
    assert recorder.dropped > 0
    for _ in range(20):
        recorder.rows()
    recorder(events.Acquired("lock/after", 1, 0.0))
    assert [row["name"] for row in recorder.rows()] == ["after"]


def test_renewals_of_a_lease_are_one_row_over_many_writes() -> None:
    recorder = HistoryRecorder()
    rows = []
    for _ in range(5):
        for _ in range(3):
            recorder(events.Renewed("lock/a", 7, 30.0))
        rows += recorder.rows()
    assert len(rows) == 5
    assert len({(row["at"], row["id"]) for row in rows}) == 1
    assert [row["times"] for row in rows] == [3, 6, 9, 12, 15]


# -- the command


def test_the_command_prints_the_timeline(guarded: Running, api: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    api.locks.release(api.locks.acquire("from the command").token)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["read"])
    told = CliRunner().invoke(history_command, ["from the command", "--at", guarded.address])
    assert told.exit_code == 0, told.output
    assert "released" in told.output
    assert "writeer, " in told.output
