"""What the command line does to what others hold is in the audit log of the store, which the service shows."""

from __future__ import annotations

import asyncio
import json
import pwd
import signal
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from solely import Client
from solely.audit import appending, new_record
from solely.cli import audit, entries
from solely.errors import StoreUnavailable
from solely.ops import Clear
from solely.service.audit import AuditLog, AuditRecord
from solely.stores import open_async_store, open_store
from tests.cli.conftest import ENDS_WITHIN, Run, Start, text_of
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
    assert [(each.action, each.key, each.reason, each.outcome) for each in reversed(found)] == [
        ("locks.clear", "deploy", "it hangs", "done"),
        ("marks.clear", "seen", "it hangs", "done"),
        ("claims.clear", "one", "it hangs", "done"),
        ("claims.clear", "two", "it hangs", "done"),
        ("reservations.clear", "cpu", "it hangs", "done"),
        ("watermarks.rewind", "polled", "it hangs", "done"),
        ("watermarks.clear", "polled", "it hangs", "done"),
        ("queues.remove", "jobs/a", "it hangs", "done"),
        ("dead-letters.purge", "mails/a", "it hangs", "done"),
        ("dead-letters.replay", "mails", "replay of b", "done"),
        ("dead-letters.replay", "mails", "replay of those with 'away'", "done"),
        ("dead-letters.replay", "mails", "replay of all", "nothing"),
        ("dead-letters.purge", "mails", "it hangs", "done"),
    ]


def test_the_log_has_what_became_of_each(url: str, solely: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(url) as once:
        once.dead_letters("mails").push({}, error="away", id="a")
        assert solely(url, "dlq", "replay", "mails", "a", "--handler", "false").code == 1
        once.first("seen", ttl=60)
        monkeypatch.setattr(entries, "perform", _changed_meanwhile)
        assert solely(url, "marks", "clear", "seen", *BECAUSE).code == 5
        monkeypatch.setattr(entries, "perform", _failing)
        assert solely(url, "marks", "clear", "seen", *BECAUSE).code == 75
        monkeypatch.setattr(entries, "perform", _killed)
        assert solely(url, "marks", "clear", "seen", *BECAUSE).code == 130
    assert [each.outcome for each in records(url)] == [
        "started",
        "failed: the store does not answer",
        "nothing",
        "failed: 1 of 1 failed again",
    ]
    listed = solely(url, "audit", "-o", "json")
    assert [each["outcome"] for each in json.loads(listed.out)] == [each.outcome for each in records(url)]


really_perform = entries.perform


def _changed_meanwhile(store: Any, op: Any) -> Any:
    return False if isinstance(op, Clear) else really_perform(store, op)


def _failing(store: Any, op: Any) -> Any:
    if isinstance(op, Clear):
        raise StoreUnavailable("the store does not answer")
    return really_perform(store, op)


def _killed(store: Any, op: Any) -> Any:
    if isinstance(op, Clear):
        raise KeyboardInterrupt
    return really_perform(store, op)


def test_the_record_of_a_command_that_is_killed_stays_started(
    url: str, solely: Run, start: Start, tmp_path: Path
) -> None:
    with Client(url) as once:
        once.dead_letters("mails").push({}, error="away", id="a")
    begun = tmp_path / "begun"
    replay = start(url, "dlq", "replay", "mails", "a", "--handler", f"echo > {begun}; exec sleep 2")
    text_of(begun)
    assert [each.outcome for each in records(url)] == ["started"]
    replay.send(signal.SIGKILL)
    replay.process.wait(ENDS_WITHIN)
    assert [each.outcome for each in records(url)] == ["started"]
    assert " started " in solely(url, "audit").out


def test_the_log_is_listed_newest_first_a_page_at_a_time(url: str, solely: Run) -> None:
    with Client(url) as once:
        for key in ("a", "b", "c"):
            once.first(key, ttl=60)
            assert solely(url, "marks", "clear", key, *BECAUSE).code == 0
    first = solely(url, "audit", "--limit", "2")
    head, *rows = first.out.splitlines()
    assert head.split() == ["AT", "WHO", "ACTION", "KEY", "OUTCOME", "REASON"]
    assert [row.split()[5:7] for row in rows] == [["c", "done"], ["b", "done"]]
    after = first.err.partition("--after ")[2].strip().strip("'")
    (rest,) = json.loads(solely(url, "audit", "--after", after, "-o", "json").out)
    assert (rest["key"], rest["outcome"], rest["reason"]) == ("a", "done", "it hangs")


def test_records_of_older_versions_and_unreadable_ones_are_listed(url: str, solely: Run) -> None:
    old = new_record("me", "locks.clear", "a", "it hangs")
    del old["outcome"]
    with closing(open_store(url)) as store:
        store.perform([appending(old)])
    (shown,) = json.loads(solely(url, "audit", "-o", "json").out)
    assert (shown["key"], shown["outcome"]) == ("a", "")
    assert audit._row("7", b"{}")["reason"].startswith("unreadable")


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
        assert record.outcome == "done"
        listed = json.loads(solely(url, "audit", "-o", "json").out)
        assert [(each["key"], each["outcome"]) for each in listed] == [("lock/a", "done")]


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
