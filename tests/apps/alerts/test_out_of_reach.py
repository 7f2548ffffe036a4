"""Who may send alerts may not hide them: what the alert receiver keeps is out of reach of the general API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import solely
from solely.apps.alerts.model import Alert, key_of, part_of, reservation_key
from solely.apps.alerts.notifications.publishing import GROUP, QUEUE
from solely.dead_letters.flow import queue_of as letters_of
from solely.model import item_key
from solely.queues.flow import queue_of
from solely.testing.harness import fresh
from tests.apps.alerts.operator import BECAUSE, LOG, Operator, operating
from tests.apps.alerts.working import FakePublisher, alert, working
from tests.corrupt_entries import write_raw
from tests.service.serving import TOKENS, bearer, until

YEAR = 300 * 86_400.0
AWAY = {"type": "command", "name": "away", "argv": ["/bin/false"]}
MANY = 300  # items that cannot be read, as in the attack


@pytest.fixture(scope="module")
def desk() -> Iterator[Operator]:
    with operating((LOG,)) as it:
        yield it


@pytest.fixture(scope="module")
def stuck() -> Iterator[Operator]:
    """No publisher can send: notifications wait."""
    with operating((AWAY,), backoff=[300]) as it:
        yield it


def firing(fingerprint: str) -> Alert:
    return Alert(name="Disk full", source="db-1", severity="critical", fingerprint=fingerprint)


def perform(desk: Operator, *ops: dict[str, Any], scope: str = "write") -> Any:
    return desk.post("/v1/ops", {"ops": list(ops)}, scope)


def waiting(desk: Operator) -> list[str]:
    """The ids in the outbox."""
    service = desk.service.service
    return [item.id for item in desk.service.run(service.once.queue(QUEUE).list(limit=1_000))]


def test_a_quiet_window_that_a_sender_records_itself_hides_no_alert(desk: Operator) -> None:
    """Reserve and record the key of an alert, with a quiet window of 300 days."""
    fingerprint = fresh("db-down")
    for key in (key_of(firing(fingerprint)), f"alerts/{fingerprint}/critical"):
        granted = desk.post("/v1/reservations/reserve", {"key": key, "hold": 60, "quiet": YEAR}, "write")
        if granted.status_code == 200:
            desk.post("/v1/reservations/record", {"id": granted.json()["id"]}, "write")
    assert desk.send(fingerprint)["outcome"] == "published"


def test_a_limit_that_a_sender_uses_up_itself_hides_no_alert(desk: Operator) -> None:
    fingerprint = fresh("limited")
    key = key_of(firing(fingerprint))
    hits = [{"op": "hit", "key": f"hits/{key}", "owner": fresh("hit"), "limit": 20, "per": 3600.0} for _ in range(20)]
    perform(desk, *hits)
    assert desk.send(fingerprint)["outcome"] == "published"


def test_a_waiting_notification_cannot_be_taken_out_by_a_sender(stuck: Operator) -> None:
    """Take and ack on the queue of alerts."""
    fingerprint, owner = fresh("waits"), fresh("thief")
    assert stuck.send(fingerprint)["outcome"] == "queued"
    id = key_of(firing(fingerprint))
    for scope in ("write", "admin"):
        taken = perform(stuck, {"op": "take", "queue": queue_of(QUEUE), "owner": owner, "ttl": 60}, scope=scope)
        acked = perform(stuck, {"op": "ack", "queue": queue_of(QUEUE), "id": id, "owner": owner}, scope=scope)
        assert (taken.status_code, acked.status_code) == (403, 403), taken.text
    assert id in waiting(stuck)


def test_a_sender_that_takes_the_record_of_an_open_alert_hides_no_resolved_message(desk: Operator) -> None:
    fingerprint, owner = fresh("over"), fresh("thief")
    assert desk.send(fingerprint)["outcome"] == "published"
    record = {"queue": queue_of("~alerts/open"), "id": part_of(fingerprint), "owner": owner}
    assert desk.service.run(desk.service.service.once.queue("~alerts/open").read(record["id"])) is not None
    for answer in (perform(desk, {"op": "take", **record, "ttl": 60}), perform(desk, {"op": "ack", **record})):
        assert answer.status_code == 403, answer.text
        assert answer.json()["type"].endswith("#reserved-name")
    assert desk.send(fingerprint, status="resolved")["outcome"] == "published"


def test_a_dead_letter_of_alerts_is_neither_taken_nor_acked_by_a_sender(desk: Operator) -> None:
    id = fresh("letter")
    box = desk.service.service.apps["alerts"].once.dead_letters(GROUP)
    desk.service.run(box.push({"publisher": "pager"}, error="refused", id=id))
    for path, body in (
        ("take", {"group": GROUP, "id": id}),
        ("push", {"group": GROUP, "payload": 1, "error": "forged", "id": id}),
    ):
        answer = desk.post(f"/v1/dead-letters/{path}", body, "write")
        assert answer.status_code == 403, (path, answer.text)
    (known,) = desk.service.run(box.list(where=lambda letter: letter.id == id))
    assert known.attempts == 1


def _general(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Every noun of the general API that writes under a name."""
    return [
        ("/v1/locks/acquire", {"key": name}),
        ("/v1/locks/acquire", {"keys": ["free", name]}),
        ("/v1/marks", {"keys": ["one", name]}),
        ("/v1/claims/claim", {"key": name}),
        ("/v1/reservations/reserve", {"key": name}),
        ("/v1/reservations/reserve", {"key": fresh("mine"), "group": {"name": name, "limit": 1, "per": 60.0}}),
        ("/v1/limits/hit", {"key": name, "limit": 1, "per": 60.0}),
        ("/v1/watermarks/advance", {"key": name, "value": 1}),
        ("/v1/watermarks/rewind", {"key": name, "to": 1, "reason": BECAUSE}),
        ("/v1/dead-letters/push", {"group": name, "payload": 1, "error": "forged"}),
    ]


@pytest.mark.parametrize("scope", ["write", "admin"])
@pytest.mark.parametrize("name", ["~alerts/x", "~anything", "~"])
def test_no_noun_of_the_general_api_writes_a_reserved_name(desk: Operator, scope: str, name: str) -> None:
    for path, body in _general(name):
        answer = desk.post(path, body, "admin" if path.endswith("rewind") else scope)
        assert answer.status_code == 403, (path, answer.text)
        problem = answer.json()
        assert problem["type"].endswith("#reserved-name"), problem
        assert "~" in problem["detail"], problem
    entries = desk.ask("/v1/entries", limit=1_000)["entries"]
    assert [each["key"] for each in entries if each["key"].partition("/")[2] == name] == []


def test_ids_and_tokens_of_a_reserved_name_are_of_no_use_to_others(desk: Operator) -> None:
    """Who got hold of the id of an application's reservation, or of a lease's token, can do nothing with it."""
    app = desk.service.service.apps["alerts"]
    key = reservation_key(fresh("held"), "critical")

    async def hold() -> tuple[str, str, str]:
        reserved = await app.once.reserve(key, hold=60, quiet=60)
        lease = await app.once.lock(key, ttl=60, renew=False)
        claim = await app.once.claim(key, ttl=60, renew=False)
        return reserved.hand_over(), lease.hand_over(), claim.hand_over()

    id, token, claimed = desk.service.run(hold())
    for path, body in (
        ("/v1/reservations/renew", {"id": id}),
        ("/v1/reservations/record", {"id": id}),
        ("/v1/reservations/release", {"id": id}),
        ("/v1/locks/renew", {"token": token}),
        ("/v1/locks/release", {"token": token}),
        ("/v1/claims/renew", {"token": claimed}),
        ("/v1/claims/release", {"token": claimed}),
        ("/v1/claims/publish", {"token": claimed, "result": {"form": "json", "value": 1}}),
    ):
        answer = desk.post(path, body, "write")
        assert answer.status_code == 403, (path, answer.text)


def test_admins_look_at_what_an_application_keeps_and_clear_it_audited(desk: Operator) -> None:
    fingerprint = fresh("cleared")
    desk.send(fingerprint)
    stored = f"reservation/{key_of(firing(fingerprint))}"
    (entry,) = desk.ask("/v1/entries", prefix=stored)["entries"]
    body = {"key": stored, "fence": entry["fence"], "reason": fresh("because")}
    assert desk.post("/v1/entries/clear", body, "write").status_code == 403
    assert desk.post("/v1/entries/clear", body).json() == {"cleared": True}
    (record, *_) = desk.service.run(desk.service.service.audit.records(limit=1))
    assert (record.who, record.key, record.reason) == ("adminer", stored, body["reason"])
    until(lambda: desk.send(fingerprint)["outcome"] == "published")  # a worker remembers for a fifth of a second


def test_admins_clear_a_reserved_mark_by_an_op_and_writers_do_not(desk: Operator) -> None:
    desk.send(fresh("marked"))
    entry, *_ = desk.ask("/v1/entries", prefix="mark/~alerts/sent/")["entries"]
    stored = entry["key"]
    clear = {"op": "clear", "key": stored, "fence": entry["fence"], "reason": fresh("because")}
    assert perform(desk, clear).status_code == 403
    assert perform(desk, clear, scope="admin").json()["replies"] == [{"reply": "yes_no", "yes": True}]
    (record, *_) = desk.service.run(desk.service.service.audit.records(limit=1))
    assert (record.action, record.key, record.reason) == ("ops.clear", stored, clear["reason"])


def test_admins_purge_dead_letters_of_an_application_and_end_its_reservations(desk: Operator) -> None:
    app, fingerprint = desk.service.service.apps["alerts"], fresh("purged")
    desk.service.run(app.once.dead_letters(GROUP).push({"x": 1}, error="refused", id=fingerprint))
    purge = {"group": GROUP, "id": fingerprint, "reason": BECAUSE}
    assert desk.post("/v1/dead-letters/purge", purge, "write").status_code == 403
    assert desk.post("/v1/dead-letters/purge", purge).json() == {"purged": 1}
    desk.send(fingerprint)
    expire = {"key": key_of(firing(fingerprint)), "reason": BECAUSE}
    assert desk.post("/v1/reservations/expire", expire).json() == {"expired": True}


def test_an_application_keeps_everything_below_its_own_name(desk: Operator) -> None:
    app = desk.service.service.apps["alerts"]
    with pytest.raises(solely.NameReserved, match="~alerts/"):
        desk.service.run(app.once.first("not-mine", ttl=60))
    with pytest.raises(solely.NameReserved, match="~alerts/"):
        desk.service.run(app.once.first("~another/x", ttl=60))
    for fingerprint in (fresh("kept"), fresh("kept")):
        desk.send(fingerprint)
        desk.send(fingerprint, status="resolved")
    ours = [
        each["key"]
        for each in desk.ask("/v1/entries", limit=1_000)["entries"]
        if "kept-" in each["key"] or "msg_" in each["key"]
    ]
    assert ours
    assert [key for key in ours if "~alerts" not in key] == []


def test_what_is_kept_for_an_idempotency_key_cannot_be_forged(desk: Operator) -> None:
    """What another caller's repeat is answered with is the service's own."""
    key, marked = fresh("once"), fresh("marked")
    headers = {"idempotency-key": f'"{key}"', **bearer(TOKENS["write"])}
    first = desk.service.post("/v1/marks", {"keys": [marked]}, headers=headers)
    assert first.json() == {"first": [True]}
    (kept,) = [each for each in desk.ask("/v1/entries", prefix="claim/", limit=1_000)["entries"] if key in each["key"]]
    owner, name = fresh("forger"), kept["key"].removeprefix("claim/")
    forged = [
        ("/v1/claims/claim", {"key": name}),
        ("/v1/ops", {"ops": [{"op": "acquire", "key": kept["key"], "owner": owner, "ttl": 60}]}),
        ("/v1/ops", {"ops": [{"op": "finish", "key": kept["key"], "owner": owner, "value": "YQ==", "keep": 60}]}),
    ]
    for path, body in forged:
        assert desk.post(path, body, "write").status_code == 403, path
    assert desk.service.post("/v1/marks", {"keys": [marked]}, headers=headers).json() == {"first": [True]}


# -- what cannot be read


async def test_items_that_cannot_be_read_delay_no_notification(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with working(f"sqlite:///{path}") as open_one:
        worker = await open_one(FakePublisher())
        await worker.once.seen("anything")  # makes the file
        for number in range(MANY):
            write_raw(path, item_key(queue_of(QUEUE), f"!{number:03}"), b"\xff\xfe no item of ours")
        waits = alert(fresh("good"))
        await worker.parts.outbox.ensure_queued(key_of(waits), worker.parts.receiver._notification(waits))
        await worker.sweep_until(lambda: worker.publisher.ids)
        await worker.sweep_until_empty()
        found = await worker.once.dead_letters(GROUP).list(limit=MANY + 1)
        assert len(found) == MANY
        assert {letter.payload for letter in found} == {b"\xff\xfe no item of ours"}


async def test_an_item_that_cannot_be_read_under_the_key_of_an_alert_does_not_keep_it_back(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with working(f"sqlite:///{path}") as open_one:
        worker = await open_one(FakePublisher())
        await worker.once.seen("anything")
        one = alert(fresh("blocked"))
        write_raw(path, item_key(queue_of(QUEUE), key_of(one)), b"poison")
        assert (await worker.receive(one)).outcome == "published"


async def test_notes_that_cannot_be_read_are_as_none(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with working(f"sqlite:///{path}") as open_one:
        worker = await open_one(FakePublisher())
        await worker.once.seen("anything")
        one = alert(fresh("noted"))
        await worker.receive(one)
        shapes = [b"\xff", b"0" * 32 + b"j[]", b"0" * 32 + b'j{"ends":1e12,"fact":{"no":1}}']
        for bad in shapes:
            for kind in ("~alerts/acknowledged", "~alerts/open"):
                write_raw(path, item_key(queue_of(kind), one.fingerprint), bad)
            assert await worker.parts.acknowledgements.list() == []
            assert await worker.parts.acknowledgements.of_fingerprint(one.fingerprint) is None
            await worker.parts.acknowledgements.add(one.fingerprint, lasts=60, by="me")
            assert len(await worker.parts.acknowledgements.list()) == 1
            assert (await worker.parts.open_alerts.list(), await worker.parts.open_alerts.read(one)) == ([], None)
            for notes in (worker.parts.acknowledgements, worker.parts.open_alerts):
                await notes.sweep()
            await worker.parts.acknowledgements.remove(one.fingerprint)


def test_the_pages_of_alerts_show_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with operating((AWAY,), service={"url": f"sqlite:///{path}"}) as desk:
        desk.send("a")
        for queue in (queue_of(QUEUE), letters_of(GROUP), queue_of("~alerts/acknowledged")):
            for number in range(3):
                write_raw(path, item_key(queue, f"bad-{number}"), b"\xff")
        for page in ("/alerts", "/alerts/why?fingerprint=a", "/dead-letters", f"/dead-letters?group={GROUP}", "/"):
            answer = desk.get(page)
            assert answer.status_code == 200, (page, answer.text)
        assert "unreadable" in desk.get(f"/dead-letters?group={GROUP}").text
        assert desk.ask("/api/alerts/why", fingerprint="a")["verdict"]


def test_the_names_are_readable_in_the_store() -> None:
    assert item_key(queue_of(QUEUE), "x").startswith("item/queue%3A~alerts%2F")
    assert key_of(firing("a")).startswith("~alerts/")
