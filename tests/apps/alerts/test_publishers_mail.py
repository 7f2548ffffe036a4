"""E-mail, as a real server gets it."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

import solely
from solely.apps.alerts.model import Alert, Notification
from solely.apps.alerts.publishers import EmailSettings, Publisher, PublisherSettings, PublishFailed, build
from tests.apps.alerts.mails import Mails, mails
from tests.certificates import make_certificate, server_side

ALERT = Alert(
    name="Disk full\r\nBcc: all@example.org",
    severity="critical",
    source="db-1",
    fingerprint="disk:db-1",
    labels={"team": "Größe"},
    annotations={"summary": ".\r\n.\r\nQUIT", "long": "x" * 5000},
)
NOTIFICATION = Notification(id="msg_2b1f", alert=ALERT, at=1_760_000_000.0)
TO = ("one@example.org", "two@example.org")


@pytest.fixture
def server() -> Iterator[Mails]:
    with mails() as running:
        yield running


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"), "localhost")


@asynccontextmanager
async def mailing(port: int, **given: Any) -> AsyncIterator[Publisher]:
    settings: dict[str, Any] = {
        "security": "none",
        "timeout": 5.0,
        "host": "localhost",
        "sender": "solely@example.org",
        "to": TO,
    } | given
    async with solely.AsyncClient(f"memory://{secrets.token_hex(8)}") as once:
        (publisher,) = build([EmailSettings(port=port, **settings)], once=once)
        yield publisher
        await publisher.close()
        await publisher.close()


async def test_what_arrives(server: Mails) -> None:
    async with mailing(server.port) as publisher:
        await publisher.publish(NOTIFICATION)
    ((recipients, mail),) = server.received
    assert recipients == list(TO)
    assert mail["From"] == "solely@example.org"
    assert mail["To"] == ", ".join(TO)
    assert mail["Subject"] == "[FIRING] critical: Disk full Bcc: all@example.org"
    assert mail["Bcc"] is None
    assert mail["Message-ID"] == "<msg_2b1f@solely.invalid>"
    assert mail["Date"] == "Thu, 09 Oct 2025 08:53:20 +0000"
    assert mail["Auto-Submitted"] == "auto-generated"
    lines = mail.get_content().splitlines()
    assert {"source: db-1", "fingerprint: disk:db-1", "team: Größe", "summary: . . QUIT"} <= set(lines)
    assert max(map(len, lines)) < 500


@pytest.mark.parametrize("at_once", [False, True])
async def test_the_password_goes_over_tls_only(certificate: Path, at_once: bool) -> None:
    with mails(server_side(certificate), at_once=at_once) as server:
        given = {
            "security": "tls" if at_once else "starttls",
            "username": "solely",
            "password": "hidden-word",
            "ca_file": str(certificate),
        }
        async with mailing(server.port, **given) as publisher:
            await publisher.publish(NOTIFICATION)
        assert server.passwords == ["\0solely\0hidden-word"]
        assert len(server.received) == 1
        async with mailing(server.port, **(given | {"ca_file": ""})) as publisher:
            with pytest.raises(PublishFailed, match="certificate"):
                await publisher.publish(NOTIFICATION)
        server.refusals["AUTH"] = ["535 no such user hidden-word"]
        async with mailing(server.port, **given) as publisher:
            with pytest.raises(PublishFailed, match="localhost answered 535 no such user …") as raised:
                await publisher.publish(NOTIFICATION)
        assert raised.value.permanent


async def test_a_server_without_tls_gets_nothing(server: Mails) -> None:
    async with mailing(server.port, security="starttls") as publisher:
        with pytest.raises(PublishFailed, match="STARTTLS") as raised:
            await publisher.publish(NOTIFICATION)
    assert raised.value.permanent
    assert server.received == []


@pytest.mark.parametrize("command", ["EHLO", "MAIL", "RCPT", "DATA", "."])
async def test_what_may_pass_is_tried_again_under_the_same_id(server: Mails, command: str) -> None:
    times = 2 if command == "RCPT" else 1  # both recipients
    server.refusals = {command: ["451 later"] * times} | ({"HELO": ["451 later"]} if command == "EHLO" else {})
    async with mailing(server.port) as publisher:
        await publisher.publish(NOTIFICATION)
    assert {mail["Message-ID"] for _, mail in server.received} == {"<msg_2b1f@solely.invalid>"}


async def test_a_refusal_for_good(server: Mails) -> None:
    server.refusals["RCPT"] = ["550 unknown", "550 unknown"]
    async with mailing(server.port) as publisher:
        with pytest.raises(PublishFailed, match=r"localhost refused all recipients: 550 unknown$") as raised:
            await publisher.publish(NOTIFICATION)
    assert raised.value.permanent
    assert server.received == []


async def test_one_recipient_of_two_is_refused(server: Mails) -> None:
    server.refusals["RCPT"] = ["550 unknown"]
    with structlog.testing.capture_logs() as lines:
        async with mailing(server.port) as publisher:
            await publisher.publish(NOTIFICATION)
    assert [recipients for recipients, _ in server.received] == [["two@example.org"]]
    assert [line["recipients"] for line in lines] == [["one@example.org"]]


async def test_nobody_listens() -> None:
    with mails() as server:
        port = server.port
    async with mailing(port) as publisher:
        with pytest.raises(PublishFailed, match=r"localhost did not answer: .*refused") as raised:
            await publisher.publish(NOTIFICATION)
    assert not raised.value.permanent


async def test_one_that_never_comes_to_the_point_is_left(server: Mails) -> None:
    server.slow = True
    async with mailing(server.port, timeout=0.5) as publisher:
        began = time.monotonic()
        with pytest.raises(PublishFailed, match=r"no answer within 0\.5 s"):
            await publisher.publish(NOTIFICATION)
        assert time.monotonic() - began < 3
    assert await asyncio.to_thread(server.left.acquire, timeout=5)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"to": []}, "length >= 1"),
        ({"to": ["nobody"]}, "'nobody' is not a mail address"),
        ({"to": ["a@b.example\r\nRCPT TO:<c@d.example>"]}, "is not a mail address"),
        ({"sender": "a@b@c"}, "is not a mail address"),
        ({"username": "a"}, "both username and password"),
        ({"username": "a", "password": "hidden-1", "security": "none"}, "a password needs security"),
    ],
)
def test_invalid_settings_are_refused(given: dict[str, Any], text: str) -> None:
    usual = {"type": "email", "host": "a.example", "sender": "a@b.example", "to": ["c@d.example"]}
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(usual | given, PublisherSettings)
    assert text in str(raised.value)
    assert "hidden-1" not in str(raised.value)
