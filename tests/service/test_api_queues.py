"""Queues and limits of the JSON API, against a service with its real connections, by way of the typed client."""

import threading
import time
from collections.abc import Iterator

import pytest

import solely
from solely.http import Client
from solely.names import reserved
from solely.testing.harness import fresh
from tests.service.serving import LINES, TOKENS, Running, bearer, running, until


@pytest.fixture
def api(guarded: Running) -> Iterator[Client]:
    with Client(guarded.address, token=TOKENS["write"], timeout=30) as client:
        yield client


@pytest.fixture
def admin(guarded: Running) -> Iterator[Client]:
    with Client(guarded.address, token=TOKENS["admin"], timeout=30) as client:
        yield client


def test_an_item_is_pushed_taken_and_acked(api: Client) -> None:
    queue = fresh("queue")
    assert api.queues.push(queue, "a", {"n": 1})
    assert not api.queues.push(queue, "a", {"n": 2})
    taken = api.queues.take(queue, ttl=30)
    assert taken is not None
    assert (taken.id, taken.payload, taken.raw, taken.attempts) == ("a", {"n": 1}, None, 1)
    assert 0 < taken.left < 30
    assert api.queues.take(queue) is None
    assert api.queues.count(queue) == 1
    assert api.queues.ack(queue, taken.token)
    assert api.queues.ack(queue, taken.token), "safe to repeat"
    assert api.queues.count(queue) == 0


def test_bytes_travel_in_raw(api: Client, guarded: Running) -> None:
    queue = fresh("queue")
    assert api.queues.push(queue, "a", b"\x00\xff")
    read = api.queues.read(queue, "a")
    assert read is not None
    assert (read.raw, read.payload, read.state) == (b"\x00\xff", None, "free")
    taken = api.queues.take(queue, id="a")
    assert taken is not None
    assert taken.raw == b"\x00\xff"
    both = {"queue": queue, "id": "b", "payload": 1, "raw": "AAAA"}
    refused = guarded.post("/v1/queues/push", both, headers=bearer(TOKENS["write"]))
    assert (refused.status_code, refused.json()["detail"]) == (400, "give either payload or raw, not both")


def test_a_lease_is_renewed_by_its_token_until_it_is_lost(api: Client) -> None:
    queue = fresh("queue")
    api.queues.push(queue, "a", 1)
    taken = api.queues.take(queue, ttl=30)
    assert taken is not None
    assert 30 < api.queues.renew(queue, taken.token, ttl=60) <= 60
    assert api.queues.give_back(queue, taken.token)
    with pytest.raises(solely.LeaseLost):
        api.queues.renew(queue, taken.token)
    assert not api.queues.give_back(queue, taken.token)
    assert not api.queues.ack(queue, taken.token)


def test_a_token_is_resumed_once_and_the_old_one_settles_nothing(api: Client) -> None:
    queue = fresh("queue")
    api.queues.push(queue, "a", {"n": 1})
    taken = api.queues.take(queue, ttl=300)
    assert taken is not None
    resumed = api.queues.resume(queue, taken.token)
    assert (resumed.id, resumed.payload, resumed.attempts, resumed.fence) == ("a", {"n": 1}, 1, taken.fence)
    assert 0 < resumed.left <= 300
    with pytest.raises(solely.Busy):
        api.queues.resume(queue, taken.token)
    with pytest.raises(solely.LeaseLost):
        api.queues.renew(queue, taken.token)
    assert not api.queues.give_back(queue, taken.token)
    assert not api.queues.ack(queue, taken.token)
    assert api.queues.ack(queue, resumed.token)
    assert not api.queues.ack(queue, taken.token), "it was done by another"
    assert api.queues.ack(queue, resumed.token), "safe to repeat"


def test_an_item_is_given_back_with_a_delay_and_uncounted(api: Client) -> None:
    queue = fresh("queue")
    api.queues.push(queue, "a", 1)
    first = api.queues.take(queue)
    assert first is not None
    assert api.queues.give_back(queue, first.token, uncounted=True)
    second = api.queues.take(queue)
    assert second is not None
    assert second.attempts == 1
    assert api.queues.give_back(queue, second.token, delay=600)
    (row,) = api.queues.items(queue)
    assert (row.id, row.state, row.attempts, 0 < row.left <= 600) == ("a", "closed", 1, True)
    assert abs(row.pushed_at - time.time()) < 600


def test_a_take_waits_for_a_push(api: Client, guarded: Running) -> None:
    queue, taken = fresh("queue"), list[object]()
    thread = threading.Thread(target=lambda: taken.append(api.queues.take(queue, wait=30)))
    thread.start()
    until(lambda: guarded.service.waiters.now["writeer"])
    api.queues.push(queue, "a", 1)
    thread.join(30)
    assert [getattr(each, "id", None) for each in taken] == ["a"]


def test_a_caller_that_hangs_up_while_it_waits_takes_nothing(api: Client, guarded: Running) -> None:
    queue = fresh("queue")
    with guarded.connect() as connection:
        body = f'{{"queue": "{queue}", "wait": 60}}'.encode()
        token = TOKENS["write"].encode()
        connection.sendall(
            b"POST /v1/queues/take HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b" % (token, len(body), body)
        )
        until(lambda: guarded.service.waiters.now["writeer"])
    until(lambda: not guarded.service.waiters.now["writeer"])
    api.queues.push(queue, "a", 1)
    (row,) = api.queues.items(queue)
    assert (row.state, row.attempts) == ("free", 0)


def test_an_item_that_was_taken_too_often_becomes_a_dead_letter(api: Client) -> None:
    queue = fresh("queue")
    api.queues.push(queue, "a", {"n": 1})
    first = api.queues.take(queue)
    assert first is not None
    api.queues.give_back(queue, first.token)
    assert api.queues.take(queue, max_attempts=1) is None
    (letter,) = api.dead_letters.list(queue)
    assert api.dead_letters.inspect(queue, letter.id).payload == {"n": 1}  # type: ignore[union-attr]


def test_queues_are_listed_with_their_states(api: Client) -> None:
    prefix = fresh("list")
    for number in range(3):
        for id in ("a", "b", "c"):
            api.queues.push(f"{prefix}/{number}:x y", id, 1, delay=600 if id == "b" else 0)
    api.queues.take(f"{prefix}/1:x y")
    rows = list(api.queues.list(prefix))
    assert [row.queue for row in rows] == [f"{prefix}/{number}:x y" for number in range(3)]
    assert [(row.items, row.waiting, row.delayed, row.taken, row.more) for row in rows] == [
        (3, 2, 1, 0, False), (3, 1, 1, 1, False), (3, 2, 1, 0, False),
    ]  # fmt: skip
    page = api.get("/v1/queues", dict, prefix=prefix, limit=2)
    assert page["next"] == rows[1].queue
    assert [each["queue"] for each in api.get("/v1/queues", dict, prefix=prefix, after=page["next"])["queues"]] == [
        rows[2].queue
    ]


def test_a_long_queue_is_counted_whole(api: Client, guarded: Running) -> None:
    queue = fresh("long")

    async def fill() -> None:
        for number in range(203):
            await guarded.service.once.queue(queue).push(f"{number:03}", number)

    guarded.run(fill())
    (row,) = api.queues.list(queue)
    assert (row.items, row.waiting, row.more) == (203, 200, True)
    assert [each.id for each in api.queues.items(queue)] == [f"{number:03}" for number in range(203)]


def test_only_an_admin_removes_an_item_as_it_was_seen(api: Client, admin: Client, guarded: Running) -> None:
    queue = fresh("queue")
    api.queues.push(queue, "a", 1)
    seen = api.queues.read(queue, "a")
    assert seen is not None
    with pytest.raises(solely.StoreDenied):
        api.queues.remove(queue, "a", fence=seen.fence, reason="a test")
    assert not admin.queues.remove(queue, "a", fence=seen.fence + 1, reason="a test")
    taken = api.queues.take(queue)
    assert taken is not None
    assert not admin.queues.remove(queue, "a", fence=seen.fence, reason="a test"), "it is taken"
    api.queues.give_back(queue, taken.token)
    assert admin.queues.remove(queue, "a", fence=seen.fence, reason="a test")
    assert api.queues.read(queue, "a") is None
    records = guarded.get("/audit?format=json", headers=bearer(TOKENS["admin"])).json()["records"]
    assert ("queues.remove", f"{queue}/a", "a test") in [
        (each["action"], each["key"], each["reason"]) for each in records
    ]


def test_reserved_queues_are_read_and_not_written(api: Client, admin: Client, guarded: Running) -> None:
    name = reserved("alerts", fresh("x"))

    async def fill() -> None:
        await guarded.service._client.queue(name).push("a", 1)

    guarded.run(fill())
    for call in (
        lambda: api.queues.push(name, "b", 1),
        lambda: api.queues.take(name),
        lambda: admin.queues.remove(name, "a", fence=api.queues.read(name, "a").fence, reason="a test"),  # type: ignore[union-attr]
    ):
        with pytest.raises(solely.NameReserved):
            call()
    assert [each.id for each in api.queues.items(name)] == ["a"]
    assert api.queues.count(name) == 1


def test_a_client_takes_no_more_items_than_it_may_hold() -> None:
    with running(tokens=LINES, max_holds=2) as service, Client(service.address, token=TOKENS["write"]) as api:
        for id in ("a", "b", "c"):
            api.queues.push("jobs", id, 1)
        first, second = api.queues.take("jobs"), api.queues.take("jobs")
        assert first is not None
        assert second is not None
        with pytest.raises(solely.Limited, match="max_holds"):
            api.queues.take("jobs")
        api.queues.ack("jobs", first.token)
        assert api.queues.take("jobs") is not None
        api.queues.give_back("jobs", second.token, delay=600)  # counts for as long as nobody can take it
        with pytest.raises(solely.Limited, match="max_holds"):
            api.queues.take("jobs")


@pytest.mark.parametrize("path", ["renew", "ack", "give-back"])
def test_a_token_that_is_none_is_refused(api: Client, guarded: Running, path: str) -> None:
    lease = api.locks.acquire(fresh("lock")).token
    for token in ("x", lease):
        body = {"queue": "jobs", "token": token}
        answer = guarded.post(f"/v1/queues/{path}", body, headers=bearer(TOKENS["write"]))
        assert (answer.status_code, answer.json()["type"]) == (400, "/policy#invalid")


def test_what_takes_longer_than_the_service_allows_is_refused(api: Client, guarded: Running) -> None:
    most = guarded.service.settings.max_ttl
    with pytest.raises(solely.InvalidInput, match="max_ttl"):
        api.queues.push("jobs", "a", 1, delay=most + 1)
    with pytest.raises(solely.InvalidInput, match="max_ttl"):
        api.queues.take("jobs", ttl=most + 1)


# -- limits


def test_limits_that_refuse_calls_are_listed(api: Client) -> None:
    key = fresh("limit")
    assert api.limits.hit(key, limit=1, per=600) == 1
    assert list(api.limits.list(key)) == []
    with pytest.raises(solely.Limited):
        api.limits.hit(key, limit=1, per=600)
    (listed,) = api.limits.list(key)
    assert (listed.key, listed.limit, listed.per, listed.hits) == (key, 1, 600.0, 1)
    assert 0 < listed.left <= 600
