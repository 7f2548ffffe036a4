"""What the command line does to what others hold is in the audit log of the store, which the service shows."""

from __future__ import annotations

import asyncio
import pwd
import socket

import pytest

from solely import Client
from solely.cli import audit
from solely.service.audit import AuditLog, AuditRecord
from solely.stores import open_async_store
from tests.cli.conftest import Run
from tests.service.serving import LINES, TOKENS, running

BECAUSE = ("--yes", "--reason", "it hangs")


def records(url: str) -> list[AuditRecord]:
    """The log as the service reads it, newest first."""

    async def read() -> list[AuditRecord]:
        store = open_async_store(url)
        try:
            return await AuditLog(store).records(limit=1000)
        finally:
            await store.close()

    return asyncio.run(read())


def test_every_admin_action_leaves_a_record(url: str, solely: Run) -> None:
    with Client(url) as once:
        lease = once.lock("deploy", renew=False)
        once.first("seen", ttl=60)
        for key in ("one", "two"):
            once.claim(key).publish(7)
        once.reserve("cpu", quiet=60).record()
        once.watermark("polled").advance(5)
        once.queue("jobs").push("a", 1)
        letters = once.dead_letters("mails")
        for id in ("a", "b", "c"):
            letters.push({}, error="away", id=id)
        for words in (
            ("locks", "clear", "deploy", *BECAUSE),
            ("marks", "clear", "seen", *BECAUSE),
            ("claims", "clear", "one", "two", *BECAUSE),
            ("reservations", "clear", "cpu", *BECAUSE),
            ("watermarks", "rewind", "polled", "3", *BECAUSE),
            ("watermarks", "clear", "polled", *BECAUSE),
            ("queues", "remove", "jobs", "a", *BECAUSE),
            ("dlq", "purge", "mails", "a", *BECAUSE),
            ("dlq", "replay", "mails", "b", "--handler", "true"),
            ("dlq", "replay", "mails", "--error", "away", "--handler", "true"),
            ("dlq", "replay", "mails", "--all", "--handler", "false"),
        ):
            told = solely(url, *words)
            assert told.code == (3 if "--all" in words else 0), told.err
        letters.push({}, error="away", id="d")
        assert solely(url, "dlq", "purge", "mails", "--all", *BECAUSE).code == 0
        assert lease.release() == "cleared"
    found = records(url)
    assert {each.who for each in found} == {audit.whoami()}
    assert [(each.action, each.key, each.reason) for each in reversed(found)] == [
        ("locks.clear", "deploy", "it hangs"),
        ("marks.clear", "seen", "it hangs"),
        ("claims.clear", "one", "it hangs"),
        ("claims.clear", "two", "it hangs"),
        ("reservations.clear", "cpu", "it hangs"),
        ("watermarks.rewind", "polled", "it hangs"),
        ("watermarks.clear", "polled", "it hangs"),
        ("queues.remove", "jobs/a", "it hangs"),
        ("dead-letters.purge", "mails/a", "it hangs"),
        ("dead-letters.replay", "mails", "replay of b"),
        ("dead-letters.replay", "mails", "replay of those with 'away'"),
        ("dead-letters.replay", "mails", "replay of all"),
        ("dead-letters.purge", "mails", "it hangs"),
    ]


def test_what_is_not_done_leaves_none(url: str, solely: Run) -> None:
    with Client(url) as once, once.lock("a"):
        assert solely(url, "locks", "clear", "a", "--dry-run", "--reason", "it hangs").code == 0
        assert solely(url, "locks", "clear", "a", "--reason", "it hangs").code == 2  # nobody said yes
        assert solely(url, "locks", "clear", "none", *BECAUSE).code == 3
        once.dead_letters("mails").push({}, error="away", id="a")
        assert solely(url, "dlq", "replay", "mails", "a", "--dry-run", "--handler", "true").code == 0
        assert solely(url, "dlq", "purge", "mails", "a", "--dry-run", "--reason", "it hangs").code == 0
    assert records(url) == []


@pytest.mark.parametrize("reason", ["", "x", "   x ", "x" * 501])
def test_a_reason_that_says_nothing_or_too_much(url: str, solely: Run, reason: str) -> None:
    with Client(url) as once, once.lock("a"):
        told = solely(url, "locks", "clear", "a", "--yes", "--reason", reason)
        assert told.code == 2
        assert "3 to 500 characters" in told.err
        assert once.explain("a").why, "it is held still"
    assert records(url) == []


def test_the_log_is_bounded(url: str, solely: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "KEPT", 3)
    with Client(url) as once:
        for number in range(6):
            once.first(f"k{number}", ttl=60)
            assert solely(url, "marks", "clear", f"k{number}", *BECAUSE).code == 0
    assert [each.key for each in records(url)] == ["k5", "k4", "k3"]


def test_a_service_keeps_its_own_log(solely: Run) -> None:
    with running(tokens=LINES) as service:
        url = service.address.replace("http://", f"http://:{TOKENS['admin']}@")
        with Client(url) as once:
            lease = once.lock("a", renew=False)
            assert solely(url, "locks", "clear", "a", *BECAUSE).code == 0
            assert lease.release() == "cleared"
        (record,) = service.run(service.service.audit.records())
        assert (record.who, record.action, record.key) == ("adminer", "ops.clear", "lock/a")


def test_who_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    user, _, host = audit.whoami().removeprefix("cli:").partition("@")
    assert host == socket.gethostname()[:64]
    assert user != "somebody-else"
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 2)
    with pytest.raises(KeyError):
        pwd.getpwuid(2**31 - 2)
    assert audit.whoami().startswith(f"cli:{2**31 - 2}@")
