"""Every noun of the JSON API, against a service with its real connections, by way of the typed client."""

import base64
import math
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import httpx2
import pytest

import solely
from solely.http import Client
from solely.model import Entry
from solely.ops import Read
from solely.service.api.claims import BytesResult, FailureResult, JsonResult, Tombstone
from solely.service.api.reservations import GroupLimit, OwnLimit
from solely.testing.harness import fresh
from tests.service.serving import LINES, TOKENS, Running, bearer, running, until

SOON = 5.0  # seconds: an upper bound for what takes milliseconds


@pytest.fixture
def api(guarded: Running) -> Iterator[Client]:
    with Client(guarded.address, token=TOKENS["write"]) as client:
        yield client


@pytest.fixture
def admin(guarded: Running) -> Iterator[Client]:
    with Client(guarded.address, token=TOKENS["admin"]) as client:
        yield client


# -- locks and marks


def test_locks(api: Client) -> None:
    key = fresh("a")
    held = api.locks.acquire(key, ttl=30, purpose="tests")
    assert (held.key, held.fence > 0, 29 < held.left < 30) == (key, True, True)
    with pytest.raises(solely.Busy) as busy:
        api.locks.acquire(key)
    assert (busy.value.key, "tests" in busy.value.holder) == (key, True)
    assert api.locks.renew(held.token, ttl=60) == 60
    assert api.locks.release(held.token) == "released"
    both = api.locks.acquire_all([key, fresh("b")])
    assert both[0].fence > held.fence
    with pytest.raises(solely.LeaseLost):
        api.locks.renew(held.token)
    assert [api.locks.release(each.token) for each in both] == ["released"] * 2


def test_the_token_of_a_lock_is_resumed_once(api: Client) -> None:
    key = fresh("a")
    held = api.locks.acquire(key, ttl=300, purpose="tests")
    resumed = api.locks.resume(held.token)
    assert (resumed.key, resumed.fence > held.fence, 0 < resumed.left <= 300) == (key, True, True)
    with pytest.raises(solely.Busy) as busy:
        api.locks.resume(held.token)
    assert (busy.value.key, "tests" in busy.value.holder) == (key, True)
    with pytest.raises(solely.LeaseLost):
        api.locks.renew(held.token)
    assert api.locks.release(held.token) == "resumed"
    assert api.locks.renew(resumed.token, ttl=600) == 600
    assert api.locks.release(resumed.token) == "released"
    assert api.locks.release(resumed.token) == "released", "the same response, for a minute"


def test_the_token_of_a_claim_is_resumed_once(api: Client) -> None:
    key = fresh("charge")
    won = api.claims.claim(key, fingerprint={"amount": 5}, ttl=300)
    resumed = api.claims.resume(won.token)
    assert (resumed.key, resumed.won, resumed.fence > won.fence, resumed.attempt) == (key, True, True, 1)
    with pytest.raises(solely.Busy):
        api.claims.resume(won.token)
    late = api.claims.publish(won.token, JsonResult("late"))
    assert (late.published, late.superseded, late.pending) == (False, True, True)
    assert api.claims.release(won.token) == "resumed"
    assert api.claims.publish(resumed.token, JsonResult("mine")).published
    assert api.claims.publish(won.token, JsonResult("late")).result == JsonResult("mine")
    assert api.claims.claim(key, fingerprint={"amount": 5}).result == JsonResult("mine")


def test_the_id_of_a_reservation_is_resumed_once(api: Client) -> None:
    key = fresh("cpu")
    granted = api.reservations.reserve(key, hold=300, details={"message": "m-1"}, limit=OwnLimit(limit=1, per=600))
    resumed = api.reservations.resume(granted.id)
    assert (resumed.granted, resumed.key, resumed.details) == (True, key, {"message": "m-1"})
    assert resumed.fence > granted.fence
    with pytest.raises(solely.ReservationMismatch):
        api.reservations.resume(granted.id)
    with pytest.raises(solely.ReservationMismatch):
        api.reservations.record(granted.id)
    assert not api.reservations.release(granted.id)
    assert api.reservations.release(resumed.id)
    assert api.reservations.reserve(key, limit=OwnLimit(limit=1, per=600)).granted, "its hit was given back"


def test_a_resumed_lease_counts_for_who_resumed_it() -> None:
    with (
        running(max_holds=1, tokens=LINES) as service,
        Client(service.address, token=TOKENS["write"]) as one,
        Client(service.address, token=TOKENS["admin"]) as other,
    ):
        held = one.locks.acquire("a", ttl=300)
        held = one.locks.resume(held.token)  # no lease more
        with pytest.raises(solely.SolelyError, match="max_holds"):
            one.locks.acquire("b")
        taken = other.locks.resume(held.token)
        mine = one.locks.acquire("b", ttl=300)
        with pytest.raises(solely.SolelyError, match="max_holds"):
            other.locks.acquire("c")
        with pytest.raises(solely.SolelyError, match="max_holds"):
            other.locks.resume(mine.token)
        assert other.locks.release(taken.token) == "released"
        assert other.locks.resume(mine.token).key == "b"


def test_since_is_when_a_lock_or_claim_was_granted_not_when_the_request_came(
    guarded: Running, api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = [1_800_000_000.0]
    monkeypatch.setattr("solely.holder.time", lambda: wall[0])
    key = fresh("since")
    stored = [f"lock/{key}", f"claim/{key}"]
    lock, claim = api.locks.acquire(key, ttl=60), api.claims.claim(key, ttl=60)
    granted: list[object] = []

    def wait_for(acquire: Callable[..., object]) -> threading.Thread:
        thread = threading.Thread(target=lambda: granted.append(acquire(key, ttl=60, wait=SOON * 6)))
        thread.start()
        return thread

    with Client(guarded.address, token=TOKENS["write"]) as other:
        threads = [wait_for(other.locks.acquire), wait_for(other.claims.claim)]

        def is_waited_for() -> bool:
            entries = guarded.run(guarded.service.perform(*map(Read, stored)))
            return all(isinstance(entry, Entry) and entry.waiters for entry in entries)

        until(is_waited_for)
        wall[0] += 600.0
        api.locks.release(lock.token)
        api.claims.release(claim.token)
        for thread in threads:
            thread.join(SOON * 6)
    assert len(granted) == 2
    (listed,), (claimed,) = api.locks.list(key), api.claims.list(key)
    assert (listed.since, claimed.since) == (wall[0], wall[0])
    rows = guarded.get(f"/locks?prefix={key}&format=json", headers=bearer(TOKENS["read"])).json()["rows"]
    assert [row["since"] for row in rows] == [wall[0]]


def test_marks(api: Client) -> None:
    a, b = fresh("a"), fresh("b")
    assert api.marks.first([a, b, a]) == [True, True, False]
    assert api.marks.seen([a, fresh("c")]) == [True, False]
    assert api.marks.forget([a, fresh("c")]) == [True, False]
    assert api.marks.first([a, b]) == [True, False]
    assert api.marks.first([]) == api.marks.seen([]) == api.marks.forget([]) == []
    short, new = fresh("short"), fresh("new")
    assert api.marks.first([short], ttl=10) == [True]
    assert api.marks.mark([short, new, new], ttl=1_000) == [False, True, False]
    (entry,) = api.entries.list(f"mark/{short}")
    assert entry.left is not None
    assert entry.left > 100, "a mark that is there is extended"


# -- claims


def test_a_claim_is_won_once_and_its_result_is_everybodys(api: Client) -> None:
    key = fresh("charge")
    won = api.claims.claim(key, fingerprint={"amount": 5})
    assert (won.won, won.attempt, won.result) == (True, 1, None)
    with pytest.raises(solely.TimedOut) as running:
        api.claims.claim(key, fingerprint={"amount": 5})
    assert (running.value.left or 0) > 20
    with pytest.raises(solely.Mismatch):
        api.claims.claim(key, fingerprint={"amount": 6})
    assert api.claims.renew(won.token, ttl=60) == 60
    published = api.claims.publish(won.token, JsonResult(value={"id": 7}))
    assert (published.published, published.superseded, published.result) == (True, False, JsonResult(value={"id": 7}))
    again = api.claims.claim(key, fingerprint={"amount": 5})
    assert (again.won, again.token, again.result) == (False, "", JsonResult(value={"id": 7}))
    assert api.claims.publish(won.token, JsonResult(value={"id": 7})).published  # its answer may have been lost
    with pytest.raises(solely.Mismatch):
        api.claims.claim(key, fingerprint={"amount": 6})


def test_the_first_result_of_a_token_is_final(api: Client) -> None:
    key, first, failure = fresh("twice"), JsonResult(value=1), FailureResult(kind="CardDeclined", text="no")
    token = api.claims.claim(key).token
    assert api.claims.publish(token, first).published
    again = api.claims.publish(token, JsonResult(value=2))
    assert (again.published, again.superseded, again.pending, again.result) == (False, True, False, first)
    again = api.claims.publish(token, failure)
    assert (again.published, again.superseded, again.pending, again.result) == (False, True, False, None)
    assert api.claims.publish(token, first).published
    assert api.claims.claim(key).result == first


@pytest.mark.parametrize(
    "result",
    [
        BytesResult(value=b"\x00\xff"),
        Tombstone(why="too fluid"),
        FailureResult(kind="CardDeclined", text="no"),
        JsonResult(value=None),
    ],
    ids=lambda result: type(result).__name__,
)
def test_every_form_of_result_comes_back_and_can_be_reset(
    api: Client, admin: Client, result: BytesResult | Tombstone | FailureResult | JsonResult
) -> None:
    key = fresh("form")
    assert api.claims.publish(api.claims.claim(key).token, result).published
    told = api.claims.claim(key).result
    if isinstance(result, Tombstone):
        assert isinstance(told, Tombstone)
        assert "too fluid" in told.why
    else:
        assert told == result
    assert not admin.claims.reset(key, JsonResult(value="something else"), reason="a test")
    assert admin.claims.reset(key, result, reason="a test")
    assert api.claims.claim(key).won


def test_who_waits_for_a_claim_gets_the_result_as_soon_as_it_is_published(api: Client, guarded: Running) -> None:
    key = fresh("waited")
    won = api.claims.claim(key)
    results: list[object] = []

    def wait() -> None:
        with Client(guarded.address, token=TOKENS["write"]) as other:
            results.append(other.claims.claim(key, wait=20).result)

    waiters = [threading.Thread(target=wait) for _ in range(3)]
    for each in waiters:
        each.start()
    until(lambda: sum(guarded.service.waiters.now.values()) == 3)
    started = time.monotonic()
    api.claims.publish(won.token, JsonResult(value="done"))
    for each in waiters:
        each.join(SOON)
    assert time.monotonic() - started < SOON
    assert results == [JsonResult(value="done")] * 3


def test_a_released_claim_is_the_next_ones(api: Client) -> None:
    key = fresh("released")
    assert api.claims.release(api.claims.claim(key).token) == "released"
    assert api.claims.claim(key).won


def test_a_late_winner_is_told_whose_result_stands(api: Client, admin: Client) -> None:
    key = fresh("late")
    late = api.claims.claim(key, ttl=0.3)
    taken = api.claims.claim(key, wait=SOON)
    assert (taken.won, taken.attempt) == (True, 2)
    pending = api.claims.publish(late.token, JsonResult(value="late"))
    assert (pending.published, pending.superseded, pending.pending, pending.result) == (False, True, True, None)
    api.claims.publish(taken.token, JsonResult(value="in time"))
    superseded = api.claims.publish(late.token, JsonResult(value="late"))
    assert (superseded.superseded, superseded.result) == (True, JsonResult(value="in time"))


def test_a_lease_of_a_lock_is_no_claim(api: Client) -> None:
    token = api.locks.acquire(fresh("lock")).token
    with pytest.raises(solely.InvalidInput, match="not the token of a claim"):
        api.claims.publish(token, JsonResult(value=1))


# -- reservations, limits, watermarks


def test_reservations(api: Client, admin: Client) -> None:
    key = fresh("cpu")
    group = GroupLimit(name=fresh("mail"), limit=2, per=60)
    granted = api.reservations.reserve(key, quiet=60, limit=OwnLimit(limit=5, per=60), group=group)
    assert (granted.granted, granted.reason, 29 < granted.left <= 30) == (True, "", True)
    refused = api.reservations.reserve(key)
    assert (refused.granted, refused.reason, refused.id, 29 < refused.retry_after <= 30) == (
        False,
        "reserved",
        "",
        True,
    )
    api.reservations.record(granted.id)
    assert api.reservations.reserve(key).reason == "quiet"
    (listed,) = api.reservations.list(key)
    assert (listed.key, listed.reason, listed.suppressed, listed.sent) == (key, "quiet", 2, 1)
    assert admin.reservations.expire(key, reason="it is solved")
    assert not admin.reservations.expire(key, reason="it is solved")
    second = api.reservations.reserve(key, group=group)
    assert second.granted
    assert api.reservations.reserve(fresh("disk"), group=group).reason == "limited"
    assert api.reservations.release(second.id)
    assert not api.reservations.release(second.id)
    with pytest.raises(solely.UnknownReservation):
        api.reservations.record(second.id)


def test_details_of_a_reservation_are_fields(api: Client) -> None:
    key, details = fresh("cpu"), {"id": "msg_1", "trace": "00-a"}
    assert api.reservations.reserve(key, details=details).details == details
    assert api.reservations.reserve(key, details={"id": "msg_2"}).details == details
    (listed,) = api.reservations.list(key)
    assert listed.details == details
    for wrong in ({"id": "x" * 501}, {str(number): "" for number in range(9)}, {f"{n}": "x" * 400 for n in range(3)}):
        with pytest.raises(solely.InvalidInput, match="details"):
            api.reservations.reserve(fresh("cpu"), details=wrong)


def test_a_reservation_is_renewed_by_its_id(api: Client, guarded: Running) -> None:
    key = fresh("slow")
    granted = api.reservations.reserve(key, hold=20)
    assert 19 < api.reservations.renew(granted.id) <= 20, "as long as it was reserved for"
    assert 39 < api.reservations.renew(granted.id, hold=40) <= 40
    assert 39 < api.reservations.renew(granted.id, hold=1) <= 40, "never shortened"
    assert [told.event for told in guarded.service.feed.last(prefix=f"reservation/{key}")].count("renewed") == 3
    with pytest.raises(solely.InvalidInput, match="max_ttl"):
        api.reservations.renew(granted.id, hold=100_000)
    with pytest.raises(solely.InvalidInput):
        api.reservations.renew(granted.id, hold=-1)
    api.reservations.record(granted.id)
    with pytest.raises(solely.UnknownReservation, match="recorded"):
        api.reservations.renew(granted.id)
    with pytest.raises(solely.UnknownReservation, match="not a reservation id"):
        api.reservations.renew("made-up")


def test_a_reservation_that_another_has_is_not_renewed(api: Client, admin: Client) -> None:
    key = fresh("overtaken")
    first = api.reservations.reserve(key)
    assert admin.reservations.expire(key, reason="it hangs")
    assert api.reservations.reserve(key).granted
    with pytest.raises(solely.ReservationMismatch):
        api.reservations.renew(first.id)


def test_a_reservation_that_was_handed_over_is_not_told_as_lost(api: Client, guarded: Running) -> None:
    key = fresh("handed-over")
    api.reservations.reserve(key, hold=0.05)
    time.sleep(0.2)
    assert [told.event for told in guarded.service.feed.last(prefix=f"reservation/{key}")] == ["reserved"]


def test_limits(api: Client) -> None:
    key = fresh("tenant")
    assert [api.limits.hit(key, limit=2, per=60) for _ in range(2)] == [1, 2]
    with pytest.raises(solely.Limited) as limited:
        api.limits.hit(key, limit=2, per=60)
    assert 0 < (limited.value.left or 0) <= 60


def test_a_refused_hit_says_one_time_and_explain_agrees(api: Client, guarded: Running) -> None:
    key = fresh("tenant")
    api.limits.hit(key, limit=1, per=600)
    body = {"key": key, "limit": 1, "per": 600}
    refused = guarded.post("/v1/limits/hit", body, headers=bearer(TOKENS["write"]))
    told = refused.json()
    assert (refused.status_code, 590 < told["left"] <= 600) == (429, True)
    assert told["retry_after"] == int(refused.headers["retry-after"]) == math.ceil(told["left"])
    side = {side.kind: side for side in api.entries.explain(key).sides}["limit"]
    assert abs((side.left or 0) - told["left"]) < 10
    assert "limit() refuses calls" in side.why
    (listed,) = api.limits.list(key)
    assert (listed.key, listed.limit, listed.per, listed.hits) == (key, 1, 600.0, 1)


def test_locks_claims_and_marks_are_listed(api: Client) -> None:
    prefix = fresh("list")
    keys = [f"{prefix}/{number}" for number in range(3)]
    for key in keys:
        api.locks.acquire(key, purpose="deploy")
        api.claims.claim(key)
    api.marks.first(keys)
    locks, claims, marks = list(api.locks.list(prefix)), list(api.claims.list(prefix)), list(api.marks.list(prefix))
    assert [each.key for each in locks] == [each.key for each in claims] == [each.key for each in marks] == keys
    assert {(each.state, each.purpose, 0 < each.left <= 30) for each in locks} == {("held", "deploy", True)}
    assert {(each.state, each.attempts, each.outcome) for each in claims} == {("held", 1, "")}
    assert all(each.left > 86_000 and each.fence for each in marks)


def test_watermarks(api: Client, admin: Client) -> None:
    number, moment = fresh("a"), fresh("b")
    assert api.watermarks.advance(number, 5) == 5
    assert api.watermarks.advance(number, 3) == 5
    when = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert api.watermarks.advance(moment, when) == when
    with pytest.raises(solely.InvalidInput, match="holds a number"):
        api.watermarks.advance(number, when)
    assert admin.watermarks.rewind(number, 2, reason="a test") == 2
    listed = {each.key: each.value for each in api.watermarks.list()}
    assert (listed[number], listed[moment]) == (2, when)


# -- dead letters


def test_dead_letters_are_parked_looked_at_and_purged(api: Client, admin: Client, guarded: Running) -> None:
    group = fresh("signals/é")
    for number in range(3):
        api.dead_letters.push(group, {"n": number}, error="boom", id=f"letter {number}")
    assert group in list(api.dead_letters.groups())
    assert [each.id for each in api.dead_letters.list(group)] == ["letter 0", "letter 1", "letter 2"]
    letter = api.dead_letters.inspect(group, "letter 1")
    assert letter is not None
    assert (letter.payload, letter.first_error, letter.attempts) == ({"n": 1}, "boom", 1)
    assert abs(letter.first_at - time.time()) < 60
    assert api.dead_letters.inspect(group, "letter 9") is None
    assert admin.dead_letters.purge(group, "letter 1", reason="a test") == 1
    assert guarded.run(guarded.service.audit.records(limit=1))[0].key == f"{group}/letter 1"
    assert admin.dead_letters.purge(group, all=True, reason="a test") == 2
    assert list(api.dead_letters.list(group)) == []


def test_a_letter_of_bytes(api: Client, guarded: Running) -> None:
    group = fresh("bytes")
    guarded.run(guarded.service.once.dead_letters(group).push(b"\x00\xff", error="boom", id="raw"))
    letter = api.dead_letters.inspect(group, "raw")
    assert letter is not None
    assert (letter.payload, letter.raw) == (None, b"\x00\xff")


def test_a_letter_is_replayed_by_whoever_takes_it(api: Client) -> None:
    group, key = fresh("group"), fresh("work")
    api.dead_letters.push(group, [1], error="boom", key=key)
    taken = api.dead_letters.take(group)
    assert taken.letter is not None
    assert (taken.outcome, taken.letter.payload) == ("taken", [1])
    assert api.dead_letters.take(group, key).outcome == "busy"
    assert api.dead_letters.take(group).outcome == "none"
    assert api.locks.renew(taken.lease, ttl=90) == 90
    assert api.dead_letters.fail(group, taken.token, error="boom again") == "failed"
    again = api.dead_letters.take(group, key)
    assert again.letter is not None
    assert (again.letter.attempts, again.letter.last_error) == (2, "boom again")
    assert api.dead_letters.ack(group, again.token, {"ok": True}) == "replayed"
    assert api.dead_letters.ack(group, again.token, {"ok": True}) == "gone"
    assert api.claims.claim(key).result == JsonResult(value={"ok": True})
    assert api.marks.seen([key]) == [True]


def test_a_failure_that_a_claim_had_kept_stands_again_when_the_replay_fails(api: Client) -> None:
    group, key = fresh("group"), fresh("work")
    api.claims.publish(api.claims.claim(key).token, FailureResult(kind="Boom", text="é" * 1000))
    api.dead_letters.push(group, [1], error="boom", key=key)
    taken = api.dead_letters.take(group, key)
    with pytest.raises(solely.TimedOut):
        api.claims.claim(key)
    assert api.dead_letters.fail(group, taken.token, error="again") == "failed"
    assert api.claims.claim(key).result == FailureResult(kind="Boom", text="é" * 1000)


def test_a_token_that_is_none_is_refused(api: Client) -> None:
    for token in ("x", base64.b64encode(b"[1,2,3,4]").decode(), base64.b64encode(b"[" * 900).decode()):
        with pytest.raises(solely.InvalidInput, match="not the token"):
            api.dead_letters.ack(fresh("group"), token)


# -- entries


def test_entries_are_listed_explained_and_cleared(api: Client, admin: Client) -> None:
    key = fresh("looked-at")
    held = api.locks.acquire(key, purpose="deploying")
    api.watermarks.advance(key, 3)
    (entry,) = api.entries.list(f"lock/{key}")
    assert (entry.key, entry.state, entry.fence, entry.owner) == (f"lock/{key}", "held", held.fence, "")
    (mark,) = api.entries.list(f"watermark/{key}")
    assert (mark.left, mark.value) == (None, None)
    (mark,) = api.entries.list(f"watermark/{key}", values=True)
    assert mark.value
    told = api.entries.explain(key)
    sides = {side.kind: side for side in told.sides}
    assert "deploying" in sides["lock"].holder
    assert "lock() waits" in sides["lock"].why
    assert (sides["watermark"].left, sides["watermark"].since) == (None, None)
    assert sides["watermark"].value == "its value is 3"
    assert key in told.text
    assert not admin.entries.clear(f"lock/{key}", fence=held.fence - 1, reason="it moved on")
    assert admin.entries.clear(f"lock/{key}", fence=held.fence, reason="its host is gone")
    with pytest.raises(solely.LeaseLost, match="cleared"):
        api.locks.renew(held.token)


def test_what_an_admin_clears_is_in_the_audit_log_and_that_log_cannot_be_cleared(
    admin: Client, guarded: Running
) -> None:
    reason = fresh("because")
    admin.entries.clear(f"lock/{fresh('gone')}", fence=7, reason=reason)
    record = guarded.run(guarded.service.audit.records(limit=1))[0]
    assert (record.who, record.action, record.reason) == ("adminer", "entries.clear", reason)
    (entry,) = [each for each in admin.entries.list("item/audit/") if each.key.endswith(record.id)]
    with pytest.raises(solely.NameReserved, match="cannot be cleared"):
        admin.entries.clear(entry.key, fence=entry.fence, reason="to hide it")


def test_a_tokens_scope_is_what_it_may_do(guarded: Running, api: Client) -> None:
    with Client(guarded.address, token=TOKENS["read"]) as reader:
        assert reader.marks.seen([fresh("a")]) == [False]
        with pytest.raises(solely.StoreDenied):
            reader.locks.acquire(fresh("a"))
    with pytest.raises(solely.StoreDenied):
        api.entries.clear("lock/a", fence=1, reason="a test")
    with Client(guarded.address) as nobody, pytest.raises(solely.StoreDenied):
        nobody.entries.explain("a")


# -- events


def test_events_are_followed_from_where_the_reader_was(api: Client, guarded: Running) -> None:
    key = fresh("followed")
    api.locks.release(api.locks.acquire(key).token)
    following = api.events(f"lock/{key}", after=0)
    acquired, released = next(following), next(following)
    assert (acquired.event, acquired.kind, acquired.key) == ("acquired", "lock", key)
    assert released.event == "released_lease"
    with Client(guarded.address, token=TOKENS["write"]) as other:
        other.locks.acquire(key)
    live = next(following)
    assert (live.event, live.id > released.id) == ("acquired", True)
    following.close()  # type: ignore[attr-defined]
    again = {"last-event-id": str(released.id), **bearer(TOKENS["read"])}
    with guarded.http.stream("GET", "/v1/events", params={"prefix": f"lock/{key}"}, headers=again) as response:
        assert next(iter(httpx2.EventSource(response))).id == str(live.id)
    last = guarded.get("/v1/events/last", params={"prefix": f"lock/{key}", "count": 2}, headers=again).json()
    assert [each["id"] for each in last["events"]] == [live.id, released.id]


def test_a_reader_that_hangs_up_no_longer_counts(api: Client, guarded: Running) -> None:
    key = fresh("hung-up")
    api.locks.acquire(key)
    following = api.events(f"lock/{key}", after=0)
    next(following)
    assert guarded.service.waiters.now["writeer"] == 1
    following.close()  # type: ignore[attr-defined]
    until(lambda: guarded.service.waiters.now["writeer"] == 0)


def test_head_of_a_stream_ends_at_once(guarded: Running) -> None:
    response = guarded.http.head("/v1/events", headers=bearer(TOKENS["read"]), timeout=SOON)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
