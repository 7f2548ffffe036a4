"""Publishers that post: what arrives at a real receiver, and what they make of one that misbehaves."""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import solely
from solely.apps.alerts.messages import COLORS, RESOLVED_COLOR
from solely.apps.alerts.model import Alert, Member, Notification
from solely.apps.alerts.publishers import Publisher, PublishFailed, SlackSettings, WebhookSettings, build
from tests.apps.hooks import DROP, FLOOD, HANG, SLOW_BODY, SLOW_HEAD, Answer, Hooks, hooks

KEYS = [secrets.token_bytes(size) for size in (24, 32)]
SECRETS = tuple(f"whsec_{base64.b64encode(key).decode()}" for key in KEYS)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ALERT = Alert(
    name="Disk <full> & loud",
    severity="critical",
    source="db-1",
    fingerprint="disk:db-1",
    labels={"team": "storage"},
    annotations={"summary": "97 % – ünïcode"},
)
NOTIFICATION = Notification(id="msg_2b1f", alert=ALERT, at=1_760_000_000.5, trace=TRACE)

Making = Callable[..., Publisher]


@pytest.fixture
async def once() -> AsyncIterator[solely.AsyncClient]:
    async with solely.AsyncClient(f"memory://{secrets.token_hex(8)}") as client:
        yield client


@pytest.fixture
async def receiver() -> AsyncIterator[Hooks]:
    async with hooks() as server:
        yield server


@pytest.fixture
async def webhook(once: solely.AsyncClient, receiver: Hooks) -> AsyncIterator[Making]:
    """Makes publishers that post to the receiver, and closes them."""
    made: list[Publisher] = []

    def make(kind: type[Any] = WebhookSettings, **given: Any) -> Publisher:
        made.extend(build([kind(**{"url": receiver.url, "timeout": 5.0, **given})], once=once))
        return made[-1]

    yield make
    for publisher in made:
        await publisher.close()
        await publisher.close()


def signatures(headers: dict[str, str], body: bytes, key: bytes) -> bool:
    """As the specification says: over id, timestamp and body with dots between them, any of several in the header."""
    content = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    wanted = base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
    return f"v1,{wanted}" in headers["webhook-signature"].split(" ")


# -- what arrives


async def test_what_arrives_is_signed_by_each_secret(webhook: Making, receiver: Hooks) -> None:
    await webhook(secrets=SECRETS, headers={"X-Key": "k-1"}).publish(NOTIFICATION)
    (came,) = receiver.received
    assert came.path == "/hook/of-the-test"
    assert came.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert came.headers["content-type"] == "application/json"
    assert came.headers["webhook-id"] == "msg_2b1f"
    assert came.headers["x-key"] == "k-1"
    assert came.headers["traceparent"] == TRACE
    assert abs(int(came.headers["webhook-timestamp"]) - time.time()) < 5
    assert [signatures(came.headers, came.body, key) for key in KEYS] == [True, True]
    assert not signatures(came.headers, came.body, b"another key, of as many bytes")
    assert not signatures(came.headers, came.body + b" ", KEYS[0])
    assert json.loads(came.body) == {
        "type": "alert.firing",
        "timestamp": "2025-10-09T08:53:20.500Z",
        "data": {
            "name": "Disk <full> & loud",
            "severity": "critical",
            "source": "db-1",
            "fingerprint": "disk:db-1",
            "labels": {"team": "storage"},
            "annotations": {"summary": "97 % – ünïcode"},
            "status": "firing",
        },
    }


async def test_without_a_secret_nothing_is_signed_and_a_strange_trace_stays_here(
    webhook: Making, receiver: Hooks
) -> None:
    over = Alert(name="n", severity="s", source="s", fingerprint="f", status="resolved")
    await webhook().publish(Notification(id="msg_1", alert=over, at=0.0, trace="x\r\ny: z"))
    (came,) = receiver.received
    assert "webhook-signature" not in came.headers
    assert "traceparent" not in came.headers
    assert json.loads(came.body)["type"] == "alert.resolved"


async def test_connections_are_kept(webhook: Making, receiver: Hooks) -> None:
    publisher = webhook()
    for _ in range(3):
        await publisher.publish(NOTIFICATION)
    assert (len(receiver.received), receiver.connections) == (3, 1)


async def test_a_message_for_slack(webhook: Making, receiver: Hooks) -> None:
    publisher = webhook(SlackSettings)
    loud = Alert(
        name="a<b> & <!channel> @here",
        severity="critical",
        source="s",
        fingerprint="f",
        labels={"<k>": "v" * 2000},
        annotations={"summary": "x@hereford.example"},
    )
    await publisher.publish(Notification(id="msg_1", alert=loud, at=12.0))
    await publisher.publish(
        Notification(id="msg_2", alert=Alert(name="n", severity="odd", source="s", fingerprint="f"), at=12.0)
    )
    await publisher.publish(
        Notification(
            id="msg_3",
            alert=Alert(name="n", severity="critical", source="s", fingerprint="f", status="resolved"),
            at=12.0,
        )
    )
    first, second, third = (json.loads(came.body) for came in receiver.received)
    assert first["text"] == "[FIRING] critical: a&lt;b&gt; &amp; &lt;!channel&gt; @\u200bhere"
    (attachment,) = first["attachments"]
    assert attachment["color"] == COLORS["critical"]
    assert attachment["text"] == "*summary*: x@hereford.example"
    assert attachment["fields"][0] == {"title": "source", "value": "s", "short": True}
    assert attachment["fields"][1]["title"] == "&lt;k&gt;"
    assert len(attachment["fields"][1]["value"]) == 500
    assert attachment["footer"] == "f · msg_1"
    assert attachment["ts"] == 12
    assert second["attachments"][0]["color"] not in (*COLORS.values(), RESOLVED_COLOR)
    assert third["attachments"][0]["color"] == RESOLVED_COLOR
    assert third["text"] == "[RESOLVED] critical: n"


@pytest.mark.parametrize("text", ["@channel_", "@here_x", "@all.", "@EVERYONE", "<!channel>", "<@U1>", "<#C1>"])
async def test_no_text_of_an_alert_calls_people_or_forges_a_line_in_slack(
    webhook: Making, receiver: Hooks, text: str
) -> None:
    """Mattermost takes the underscores at the end of a mention away, so that @channel_ calls the channel."""
    forged = f"x\r\n[RESOLVED] y\u2028{text}"
    alert = Alert(
        name=forged,
        severity=forged,
        source=text,
        fingerprint=text,
        group=text,
        labels={forged: text},
        annotations={forged: text},
    )
    member = Member(fingerprint=text, name=text, severity=text)
    await webhook(SlackSettings).publish(Notification(id="msg_1", alert=alert, at=12.0, members=(member,)))
    message = json.loads(receiver.received[0].body)
    (attachment,) = message["attachments"]
    fields = attachment["fields"]
    titles = [message["text"], attachment["fallback"], attachment["footer"], *(field["title"] for field in fields)]
    texts = [*titles, attachment["text"], *(field["value"] for field in fields)]
    assert all(title == " ".join(title.split()) for title in titles)
    assert attachment["text"].count("\n") == 0
    assert not re.search(r"<|>|@(all|channel|everyone|here)", "\n".join(texts), re.IGNORECASE)


# -- what may pass, and what does not


@pytest.mark.parametrize("answer", [Answer(500), Answer(503), Answer(408), Answer(429), DROP])
async def test_what_may_pass_is_tried_again_under_the_same_id(webhook: Making, receiver: Hooks, answer: Answer) -> None:
    receiver.answers.extend([answer, answer])
    await webhook(secrets=SECRETS[:1]).publish(NOTIFICATION)
    assert len(receiver.received) == 3
    assert {came.headers["webhook-id"] for came in receiver.received} == {"msg_2b1f"}
    assert len({came.body for came in receiver.received}) == 1
    assert all(signatures(came.headers, came.body, KEYS[0]) for came in receiver.received)


async def test_it_is_tried_four_times_and_no_more(webhook: Making, receiver: Hooks) -> None:
    receiver.answers.extend([Answer(502, body=b"bad\x1b[31m\ngateway")] * 9)
    with pytest.raises(PublishFailed, match=r"^webhook: 127.0.0.1 answered 502: bad \[31m gateway$") as raised:
        await webhook().publish(NOTIFICATION)
    assert len(receiver.received) == 4
    assert (raised.value.permanent, raised.value.retry_after) == (False, None)


@pytest.mark.parametrize("status", [400, 401, 404, 410, 413])
async def test_other_refusals_are_for_good(webhook: Making, receiver: Hooks, status: int) -> None:
    receiver.answers.append(Answer(status, body=b"no_service"))
    with pytest.raises(PublishFailed, match=f"answered {status}: no_service") as raised:
        await webhook().publish(NOTIFICATION)
    assert raised.value.permanent
    assert len(receiver.received) == 1


async def test_a_redirect_is_not_followed(webhook: Making, receiver: Hooks) -> None:
    async with hooks() as other:
        receiver.answers.append(Answer(307, (("Location", other.url),)))
        with pytest.raises(PublishFailed, match="307; redirects are not followed") as raised:
            await webhook().publish(NOTIFICATION)
        assert raised.value.permanent
        assert (len(receiver.received), len(other.received)) == (1, 0)


@pytest.mark.parametrize("kind", [WebhookSettings, SlackSettings])
async def test_with_the_guard_only_what_is_allowed_is_called(webhook: Making, receiver: Hooks, kind: Any) -> None:
    """Which addresses are refused is in tests/outgoing/test_guard.py."""
    with pytest.raises(PublishFailed, match=r"not a public address: not called; .* guard_allow") as raised:
        await webhook(kind, guard=True).publish(NOTIFICATION)
    assert raised.value.permanent
    assert receiver.connections == 0
    await webhook(kind, name="allowed", guard=True, guard_allow=("127.0.0.0/8",)).publish(NOTIFICATION)
    assert len(receiver.received) == 1


async def test_a_short_retry_after_is_waited_for(webhook: Making, receiver: Hooks) -> None:
    receiver.answers.append(Answer(429, (("Retry-After", "1"),)))
    began = time.monotonic()
    await webhook().publish(NOTIFICATION)
    assert 1.0 <= time.monotonic() - began < 4
    assert len(receiver.received) == 2


async def test_a_long_retry_after_is_for_the_queue(webhook: Making, receiver: Hooks) -> None:
    receiver.answers.append(Answer(503, (("Retry-After", "120"),)))
    with pytest.raises(PublishFailed) as raised:
        await webhook().publish(NOTIFICATION)
    assert (raised.value.permanent, raised.value.retry_after) == (False, 120.0)
    assert len(receiver.received) == 1


async def test_nobody_listens(webhook: Making, receiver: Hooks) -> None:
    async with hooks() as gone:
        url = gone.url
    with pytest.raises(PublishFailed, match=r"cannot connect to 127\.0\.0\.1: ") as raised:
        await webhook(url=url).publish(NOTIFICATION)
    assert not raised.value.permanent


# -- bounds


@pytest.mark.parametrize("answer", [HANG, SLOW_HEAD])
async def test_one_that_does_not_come_to_an_end_is_given_up(webhook: Making, receiver: Hooks, answer: Answer) -> None:
    receiver.answers.extend([answer] * 5)
    began = time.monotonic()
    with pytest.raises(PublishFailed, match=r"no answer within 0\.5 s") as raised:
        await webhook(timeout=0.5).publish(NOTIFICATION)
    assert time.monotonic() - began < 20  # else it would never end
    assert not raised.value.permanent


async def test_the_status_is_enough(webhook: Making, receiver: Hooks) -> None:
    """A receiver that said 200 has it, however long it talks on."""
    receiver.answers.append(SLOW_BODY)
    publisher = webhook(timeout=2.0)
    await publisher.publish(NOTIFICATION)
    await publisher.publish(NOTIFICATION)
    assert len(receiver.received) == 2


@pytest.mark.parametrize("status", [200, 500])
async def test_of_a_flood_only_the_beginning_is_read(webhook: Making, receiver: Hooks, status: int) -> None:
    receiver.answers.append(Answer(status, body=b"f" * FLOOD))
    await webhook().publish(NOTIFICATION)
    async with asyncio.timeout(100):
        while not receiver.broken:
            await asyncio.sleep(0.01)
    assert len(receiver.received) == (1 if status == 200 else 2)


async def test_no_more_at_once_than_the_settings_say(webhook: Making, receiver: Hooks) -> None:
    receiver.answers.extend([HANG, HANG])
    publisher = webhook(at_once=2)
    tasks = [asyncio.ensure_future(publisher.publish(NOTIFICATION)) for _ in range(4)]
    async with asyncio.timeout(100):
        while len(receiver.received) < 2:
            await asyncio.sleep(0.01)
    await asyncio.wait(tasks, timeout=0.1)
    assert [task.done() for task in tasks] == [False] * 4
    assert len(receiver.received) == 2
    tasks[0].cancel()
    await asyncio.gather(*tasks[2:])
    assert len(receiver.received) == 4
    tasks[1].cancel()
    await asyncio.gather(*tasks[:2], return_exceptions=True)


async def test_a_publish_that_is_cancelled_leaves_nothing(webhook: Making, receiver: Hooks) -> None:
    receiver.answers.append(HANG)
    publisher = webhook(at_once=1)
    task = asyncio.ensure_future(publisher.publish(NOTIFICATION))
    async with asyncio.timeout(100):
        while not receiver.received:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await publisher.publish(NOTIFICATION)
    assert len(receiver.received) == 2


# -- the breaker


async def test_the_breaker_opens_for_all_workers_of_the_host(webhook: Making, receiver: Hooks) -> None:
    receiver.answers.extend([Answer(500, (("Retry-After", "60"),))] * 9)
    publisher = webhook()
    for _ in range(5):
        with pytest.raises(PublishFailed, match="answered 500"):
            await publisher.publish(NOTIFICATION)
    for another in (publisher, webhook()):
        with pytest.raises(PublishFailed, match="is open for another") as raised:
            await another.publish(NOTIFICATION)
        assert not raised.value.permanent
        assert 25 < (raised.value.retry_after or 0) <= 30
    assert len(receiver.received) == 5


async def test_what_the_receiver_refuses_for_good_opens_nothing(webhook: Making, receiver: Hooks) -> None:
    receiver.answers.extend([Answer(400)] * 7)
    publisher = webhook()
    for _ in range(7):
        with pytest.raises(PublishFailed, match="answered 400"):
            await publisher.publish(NOTIFICATION)
    await publisher.publish(NOTIFICATION)


async def test_hanging_counts_as_failing(webhook: Making, receiver: Hooks) -> None:
    receiver.answers.extend([HANG] * 9)
    publisher = webhook(timeout=0.1)
    for _ in range(5):
        with pytest.raises(PublishFailed, match="no answer within"):
            await publisher.publish(NOTIFICATION)
    with pytest.raises(PublishFailed, match="is open"):
        await publisher.publish(NOTIFICATION)


async def test_a_store_that_is_away_stops_no_publish(receiver: Hooks) -> None:
    async with solely.AsyncClient("redis://127.0.0.1:1") as away:
        (publisher,) = build([WebhookSettings(url=receiver.url)], once=away)
        began = time.monotonic()
        await publisher.publish(NOTIFICATION)
        assert time.monotonic() - began < 3
        await publisher.close()
    assert len(receiver.received) == 1


# -- secrets


async def test_secrets_are_not_shown(
    receiver: Hooks, once: solely.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hidden = ("of-the-test", "bearer-of-the-key", *(secret.removeprefix("whsec_") for secret in SECRETS))
    settings = WebhookSettings(url=receiver.url, secrets=SECRETS, headers={"Authorization": "bearer-of-the-key"})
    echo = " ".join((receiver.url, *SECRETS, "bearer-of-the-key"))
    receiver.answers.append(Answer(400, body=echo.encode()))
    (publisher,) = build([settings], once=once)
    with pytest.raises(PublishFailed, match="answered 400: … …") as raised:
        await publisher.publish(NOTIFICATION)
    await publisher.publish(NOTIFICATION)
    await publisher.close()
    shown = "\n".join((repr(settings), str(settings), repr(publisher), repr(raised.value), caplog.text))
    assert raised.value.__cause__ is None
    assert [text for text in hidden if text in shown] == []
