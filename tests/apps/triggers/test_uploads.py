"""Large payloads, which trigger.dev's client uploads before it triggers, on either database: the run has the payload as
if it had been sent with the trigger, and nobody else gets at it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from solely.apps.triggers.uploads import LEAST_SIZE, MOST_UPLOAD, UploadTicket
from tests.apps.operator import operating
from tests.apps.triggers.test_work_http import LINE, STAGING, Desk
from tests.service.serving import LINES, TOKENS, bearer

STORED, PACKED = "application/store", "application/super+json"
NAME = "trigger/packet_1/payload.json"
LARGE = {"text": "é" * 100_000, "nul": "\0"}  # 200 KiB
SOON = 4e9  # a moment that is not over


class Uploader(Desk):
    """Uploads and triggers as the client does."""

    @property
    def app(self) -> Any:
        return self.service.service.apps["triggers"]

    def address(self, name: str = NAME, token: str = TOKENS["write"]) -> str:
        answer = self.service.http.put(f"/api/v2/packets/{name.replace('/', '%2F')}", headers=bearer(token))
        assert (answer.status_code, answer.json()["storagePath"]) == (200, name)
        return str(answer.json()["presignedUrl"])

    def put(self, address: str, body: bytes | str, kind: str = "application/json") -> httpx2.Response:
        """The upload itself, which has no token."""
        return self.service.http.put(address, content=body, headers={"content-type": kind})

    def upload(self, body: bytes | str, name: str = NAME, kind: str = "application/json") -> None:
        answer = self.put(self.address(name), body, kind)
        assert answer.status_code == 204, answer.text

    def trigger_uploaded(self, name: Any = NAME, token: str = TOKENS["write"], **options: Any) -> httpx2.Response:
        body = {"payload": name, "options": {"payloadType": STORED, **options}}
        return self.service.post("/api/v1/tasks/large/trigger", body, headers=bearer(token))

    def rows(self) -> int:
        row = self.service.run(self.app.service.data.row("SELECT COUNT(*) AS rows FROM triggers_uploads"))
        return int(row["rows"])


@pytest.fixture(scope="module")
def shared(data_url: str) -> Iterator[Uploader]:
    settings = {"environments": {"stager": "staging"}}
    with operating("triggers", settings, data_url=data_url, tokens=(*LINES, LINE), max_body=1 << 20) as it:
        yield Uploader(it.service)


@pytest.fixture
def desk(shared: Uploader) -> Iterator[Uploader]:
    yield shared
    shared.service.run(shared.app.service.data.run("DELETE FROM triggers_uploads"))


def test_the_worker_gets_an_uploaded_payload_as_if_it_had_been_sent(desk: Uploader) -> None:
    desk.upload(json.dumps(LARGE))
    answer = desk.trigger_uploaded()
    assert answer.status_code == 200, answer.text
    run = desk.take("large")
    assert (run["id"], run["payload"]) == (answer.json()["id"], LARGE)
    desk.settle(run, "complete", output=None)
    assert desk.ask(f"/api/v3/runs/{run['id']}")["payload"] == LARGE
    stored = desk.service.run(desk.app.table.find("default", run["id"]))
    assert stored.options["payloadType"] == "application/json", "nothing names the upload any more"


@pytest.mark.parametrize(
    ("kind", "body", "payload"),
    [
        (PACKED, '{"json": {"at": "1970"}, "meta": {"values": {"at": ["Date"]}}}', {"at": "1970"}),
        ("application/json; charset=utf-8", "[1]", [1]),
        ("text/plain", "a\0b", "a\0b"),
    ],
)
def test_an_upload_is_read_by_its_media_type(desk: Uploader, kind: str, body: str, payload: Any) -> None:
    desk.upload(body, kind=kind)
    assert desk.ask(f"/api/v3/runs/{desk.trigger_uploaded().json()['id']}")["payload"] == payload


def test_the_same_key_with_the_same_payload_under_another_name_gets_the_same_run(desk: Uploader) -> None:
    names = ("trigger/packet_a/payload.json", "trigger/packet_b/payload.json", "trigger/packet_c/payload.json")
    for name, payload in zip(names, (LARGE, LARGE, {**LARGE, "other": 1}), strict=True):
        desk.upload(json.dumps(payload), name)
    first, again, other = (desk.trigger_uploaded(name, idempotencyKey="k").json() for name in names)
    assert (again["id"], again["isCached"], "payloadMismatch" in again) == (first["id"], True, False)
    assert (other["id"], other["payloadMismatch"]) == (first["id"], True)
    sent = desk.post("/api/v1/tasks/large/trigger", {"payload": LARGE, "options": {"idempotencyKey": "k"}}, "write")
    assert (sent.json()["id"], "payloadMismatch" in sent.json()) == (first["id"], False)


def test_a_retried_trigger_finds_the_upload_again(desk: Uploader) -> None:
    desk.upload(json.dumps(LARGE))
    ids = {desk.trigger_uploaded(idempotencyKey="retried").json()["id"] for _ in range(2)}
    assert len(ids) == 1


def test_items_of_batches_may_be_uploaded_up_to_the_size_of_a_batch(desk: Uploader) -> None:
    desk.upload(json.dumps(LARGE))
    item = {"task": "many", "payload": NAME, "options": {"payloadType": STORED}}
    answer = desk.post("/api/v2/tasks/batch", {"items": [item, {"task": "many", "payload": 2}]}, "write").json()
    payloads = [desk.ask(f"/api/v3/runs/{run['id']}")["payload"] for run in answer["runs"]]
    assert payloads == [LARGE, 2]
    batch = desk.post("/api/v3/batches", {"runCount": 1}, "write").json()["id"]
    lines = {**bearer(TOKENS["write"]), "content-type": "application/x-ndjson"}
    line = json.dumps({"index": 0, **item})
    sent = desk.service.http.post(f"/api/v3/batches/{batch}/items", content=line, headers=lines)
    assert sent.json()["sealed"]
    desk.upload(json.dumps("x" * (MOST_UPLOAD - 2)))
    refused = desk.post("/api/v2/tasks/batch", {"items": [item] * 5}, "write")
    assert (refused.status_code, "smaller batches" in refused.json()["detail"]) == (400, True)
    missing = desk.post("/api/v2/tasks/batch", {"items": [{**item, "payload": "no"}]}, "write")
    assert (missing.status_code, "items[0]" in missing.json()["detail"]) == (400, True)


def test_an_upload_belongs_to_its_token_and_its_environment(desk: Uploader) -> None:
    desk.upload(json.dumps(LARGE))
    for token in (STAGING, TOKENS["admin"]):
        refused = desk.trigger_uploaded(token=token)
        assert (refused.status_code, "has uploaded no" in refused.json()["detail"]) == (400, True)
    assert desk.put(desk.address(token=STAGING), "1").status_code == 204
    assert desk.ask(f"/api/v3/runs/{desk.trigger_uploaded().json()['id']}")["payload"] == LARGE
    assert desk.service.http.put("/api/v2/packets/a", headers=bearer(TOKENS["read"])).status_code == 403
    assert desk.service.http.put("/api/v2/packets/a").status_code == 401


def test_an_address_that_is_forged_or_has_expired_stores_nothing(desk: Uploader) -> None:
    address = desk.address()
    ticket = UploadTicket("default", "writeer", NAME, SOON)
    base, forged = address.rpartition("/")[0], f"{'0' * 64}"
    signed = desk.app.uploads.ticket(ticket).partition(".")
    other = desk.app.uploads.ticket(UploadTicket("staging", "stager", NAME, SOON)).partition(".")
    past = desk.app.uploads.ticket(UploadTicket("default", "writeer", NAME, 1.0))
    csrf = desk.service.service.sessions.csrf(signed[0])
    bad = (f"{other[0]}.{signed[2]}", f"{signed[0]}.{forged}", signed[0], f"{signed[0]}.{csrf}", past, "a.", "%FF.a")
    for each in bad:
        answer = desk.put(f"{base}/{each}", "1")
        assert (answer.status_code, answer.json()["type"]) == (401, "/policy#no-token"), each
    assert desk.rows() == 0
    assert desk.put(f"{base}/{''.join(signed)}", "1").status_code == 204


def test_an_upload_is_bounded_and_text(desk: Uploader) -> None:
    address = desk.address()
    assert desk.put(address, json.dumps("x" * (MOST_UPLOAD - 2))).status_code == 204
    assert desk.trigger_uploaded().status_code == 200
    assert desk.put(address, b"x" * (MOST_UPLOAD + 1)).status_code == 413
    refused = desk.put(address, b"\xff")
    assert (refused.status_code, "UTF-8" in refused.json()["error"]) == (400, True)
    for name in ("a%00", "%C3%A9", "a" * 300, "a b"):
        assert desk.service.http.put(f"/api/v2/packets/{name}", headers=bearer(TOKENS["write"])).status_code == 400


def test_the_uploads_of_an_environment_are_bounded_together(desk: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solely.apps.triggers.uploads.MOST_UPLOADS", 2 * LEAST_SIZE)
    for number in range(2):
        desk.upload("1", f"name-{number}")
    refused = desk.put(desk.address("name-2"), "1")
    assert (refused.status_code, refused.json()["type"]) == (429, "/policy#limited")
    assert desk.put(desk.address(token=STAGING), "1").status_code == 204, "another environment has its own"


def test_an_upload_that_no_trigger_names_is_deleted(desk: Uploader) -> None:
    desk.upload("1")
    desk.service.run(desk.app.uploads.forget())
    assert desk.rows() == 1
    desk.service.run(desk.app.service.data.run("UPDATE triggers_uploads SET at = at - 901"))
    assert desk.trigger_uploaded().status_code == 400, "it is as good as deleted"
    desk.service.run(desk.app.uploads.forget())
    assert desk.rows() == 0


def test_a_trigger_that_names_no_upload_is_refused(desk: Uploader) -> None:
    names: tuple[Any, ...] = ("never", "a\0b", "", None, {"a": 1}, [[]])
    for name in names:
        assert desk.trigger_uploaded(name).status_code == 400, name


def test_the_address_is_that_of_the_caller_or_of_the_proxy_before_it(data_url: str) -> None:
    public = "https://triggers.example.org/solely/"
    given: dict[str, Any] = {"public_base_url": public, "allowed_hosts": ("triggers.example.org",)}
    with operating("triggers", {}, data_url=data_url, **given) as it:
        desk = Uploader(it.service)
        assert desk.address().startswith(f"{it.service.address}/api/v2/uploads/")
        headers = {**bearer(TOKENS["write"]), "host": "triggers.example.org"}
        answer = it.service.http.put("/api/v2/packets/a", headers=headers)
        assert answer.json()["presignedUrl"].startswith(f"{public}api/v2/uploads/")
