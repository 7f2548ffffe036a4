"""Senders: a message of an application reaches the receiver that its settings name, or fails as such."""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import solely
from solely.kit import (
    CallFailed,
    MailReceiver,
    MailSender,
    Program,
    ProgramReceiver,
    ProgramSender,
    Request,
    RequestSender,
    Sender,
    WebhookReceiver,
)
from tests.apps.alerts.mails import mails
from tests.apps.hooks import Hooks

CODE = "import os, sys; open(sys.argv[1], 'w').write(sys.stdin.read() + os.environ['KIND']); sys.exit(int(sys.argv[2]))"


@pytest.fixture
async def once() -> AsyncIterator[solely.AsyncClient]:
    async with solely.AsyncClient(f"memory://{secrets.token_hex(8)}") as client:
        yield client


async def test_a_request_is_sent_to_a_url(once: solely.AsyncClient, receiver: Hooks) -> None:
    hook = WebhookReceiver(name="hook", url=receiver.url)
    sender: Sender[Request] = RequestSender(hook, once, "test/hook")
    assert await sender.send(hook.request("id-1", b"{}")) == []
    (came,) = receiver.received
    assert (came.headers["webhook-id"], came.body) == ("id-1", b"{}")
    await sender.close()
    await sender.close()


async def test_a_program_gets_its_input_and_bounded_variables(once: solely.AsyncClient, tmp_path: Path) -> None:
    written = tmp_path / "written"
    program = ProgramReceiver(name="program", argv=(sys.executable, "-c", CODE, str(written), "0"))
    sender: Sender[Program] = ProgramSender(program, once, "test/program")
    assert await sender.send(program.program(b"in ", {"KIND": "a\0b" + "x" * 9_000})) == []
    assert written.read_text() == "in a b" + "x" * 4_093
    failing = ProgramReceiver(name="program", argv=(*program.argv[:-1], "3"), timeout=5.0)
    with pytest.raises(CallFailed, match=r"^program: .* 3"):
        await ProgramSender(failing, once, "test/failing").send(failing.program(b"", {"KIND": ""}))
    await sender.close()


async def test_a_mail_is_sent_to_all_recipients(once: solely.AsyncClient) -> None:
    to = ("one@example.org", "two@example.org")
    with mails() as server:
        box = MailReceiver(
            name="box", host="localhost", port=server.port, security="none", sender="from@example.org", to=to
        )
        sender = MailSender(box, once, "test/box")
        assert await sender.send(box.mail("id-1", 0.0, "Disk full\r\nBcc: x@example.org", "a\nb\n")) == []
        await sender.close()
        await sender.close()
    ((recipients, mail),) = server.received
    assert (tuple(recipients), mail["To"]) == (to, ", ".join(to))
    assert (mail["Subject"], mail["Bcc"]) == ("Disk full Bcc: x@example.org", None)
    assert (mail["Message-ID"], mail["Auto-Submitted"]) == ("<id-1@solely.invalid>", "auto-generated")
    assert mail.get_content().splitlines() == ["a", "b"]
