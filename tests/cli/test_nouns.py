"""`solely locks|marks|claims|reservations|watermarks|dlq …`, `explain`, `top`: what an operator sees and does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from solely import Client, InvalidInput, Policy, Replay
from tests.cli.conftest import Run
from tests.conftest import STORES

BECAUSE = ("--yes", "--reason", "a test")


@pytest.fixture(params=[name for name in ("sqlite", "valkey", "postgres", "mongo") if name in STORES])
def url(request: pytest.FixtureRequest) -> str:
    """A fresh store of each kind that processes share."""
    return STORES[request.param](request)


def keys(told: Any) -> list[str]:
    assert told.code == 0, told.err
    return [row["key"] for row in json.loads(told.out)]


def test_locks_are_listed_with_their_holder_and_never_with_its_secret(url: str, solely: Run) -> None:
    with Client(url) as once, once.lock("deploy", purpose="release 7") as lease, once.lock("other"):
        told = solely(url, "locks", "list")
        head, deploy, other = told.out.splitlines()
        assert head.split() == ["KEY", "STATE", "LEFT", "FENCE", "WAITERS", "HOLDER"]
        assert deploy.split()[:2] == ["deploy", "held"]
        assert "(release 7)" in deploy
        assert other.startswith("other")
        assert "ATTEMPTS" in solely(url, "locks", "list", "-o", "wide").out
        (row,) = json.loads(solely(url, "locks", "list", "dep", "-o", "json").out)
        assert row["fence"] == lease.fence
        assert 0 < row["left"] <= 30
        assert not any(lease._hold.owner in text for text in (told.out, json.dumps(row)))
        assert json.loads(solely(url, "locks", "show", "deploy", "-o", "json").out)["key"] == "deploy"
    assert solely(url, "locks", "show", "deploy").code == 3


def test_lists_are_paged_by_key(url: str, solely: Run) -> None:
    with Client(url) as once:
        once.first_many([f"k/{n:03}" for n in range(250)])
    first = solely(url, "marks", "list", "k/", "-o", "json")
    assert keys(first) == [f"k/{n:03}" for n in range(100)]
    assert "--after 'k/099'" in first.err
    last = solely(url, "marks", "list", "k/", "--after", "k/199", "-o", "json")
    assert keys(last) == [f"k/{n:03}" for n in range(200, 250)]
    assert last.err == ""
    assert len(keys(solely(url, "marks", "list", "--all", "-o", "json"))) == 250
    assert keys(solely(url, "marks", "list", "k/2", "--limit", "2", "-o", "json")) == ["k/200", "k/201"]


def test_a_lock_is_cleared_only_if_it_is_meant(url: str, solely: Run) -> None:
    with Client(url) as once:
        lease = once.lock("a", renew=False)
        assert solely(url, "locks", "clear", "a", "--yes").code == 2  # no reason
        unasked = solely(url, "locks", "clear", "a", "--reason", "a test")
        assert unasked.code == 2  # no terminal, and no --yes
        assert "add --yes" in unasked.err
        dry = solely(url, "locks", "clear", "a", "--dry-run", "--reason", "a test")
        assert (dry.code, dry.out) == (0, "")
        assert "would clear lock 'a'" in dry.err
        lease.renew()
        assert solely(url, "locks", "clear", "a", *BECAUSE).code == 0
        assert lease.release() == "cleared"
        assert solely(url, "locks", "clear", "a", *BECAUSE).code == 3


def test_marks_are_shown_and_forgotten(url: str, solely: Run) -> None:
    with Client(url) as once:
        assert once.first("seen", ttl=60)
        assert "seen" in solely(url, "marks", "show", "seen").out
        assert solely(url, "marks", "clear", "seen", *BECAUSE).code == 0
        assert once.first("seen", ttl=60)


def test_claims_are_shown_with_their_outcome(url: str, solely: Run) -> None:
    with Client(url) as once:
        once.claim("done").publish({"id": 7})
        once.claim("raw").publish(b"\x00\xff")
        once.claim("too large").publish(b"x" * 300_000)
        once.claim("failed", policy=Policy({ValueError: Replay()})).fail(ValueError("no"))
        with once.claim("running"):
            rows = {row["key"]: row for row in json.loads(solely(url, "claims", "list", "-o", "json").out)}
    assert rows["done"]["value"] == {"id": 7}
    assert rows["raw"]["value"] == {"bytes": "AP8="}
    assert rows["too large"]["outcome"] == "not kept"
    assert rows["failed"]["outcome"] == "failed: ValueError: no"
    assert (rows["running"]["state"], rows["running"]["outcome"]) == ("held", "")
    assert solely(url, "claims", "clear", "done", "raw", *BECAUSE).code == 0
    assert solely(url, "claims", "show", "raw").code == 3


def test_reservations_are_listed_held_and_quiet(url: str, solely: Run) -> None:
    with Client(url) as once:
        once.reserve("sent", quiet=60).record()
        assert not once.reserve("sent", quiet=60)
        held = once.reserve("sending")
        rows = {row["key"]: row for row in json.loads(solely(url, "reservations", "list", "-o", "json").out)}
        assert (rows["sent"]["reason"], rows["sending"]["reason"]) == ("quiet", "reserved")
        assert (rows["sent"]["suppressed"], rows["sent"]["sent"]) == (1, 1)
        assert solely(url, "reservations", "show", "sent").out.splitlines()[0].split() == ["key", "sent"]
        assert solely(url, "reservations", "show", "sen").code == 3
        assert solely(url, "reservations", "clear", "sent", *BECAUSE).code == 0
        assert once.reserve("sent")
        assert held


def test_watermarks_advance_and_are_taken_back(url: str, solely: Run) -> None:
    assert solely(url, "watermarks", "advance", "n", "5").out == "5\n"
    assert solely(url, "watermarks", "advance", "n", "-3").out == "5\n"
    assert "would rewind" in solely(url, "watermarks", "rewind", "n", "-3", "--dry-run", "--reason", "a test").err
    assert solely(url, "watermarks", "rewind", "n", "-3", *BECAUSE).out == "-3\n"
    past = datetime.now(UTC) - timedelta(hours=1)
    assert solely(url, "watermarks", "advance", "t", past.isoformat()).code == 0
    rows = json.loads(solely(url, "watermarks", "list", "-o", "json").out)
    assert [row["value"] for row in rows] == [-3, past.isoformat()]
    assert 3_600 <= rows[1]["lag"] < 3_700
    assert solely(url, "watermarks", "advance", "t", "2026-01-01T00:00:00").code == 2  # no zone
    assert solely(url, "watermarks", "advance", "t", "5").code == 2  # a time meets a number
    assert solely(url, "watermarks", "rewind", "none", "5", *BECAUSE).code == 3


def test_dead_letters_are_listed_replayed_and_purged(url: str, solely: Run, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with Client(url) as once:
        mails, jobs = once.dead_letters("mails/out"), once.dead_letters("jobs")
        for n in range(3):
            mails.push({"to": n}, error="smtp away" if n else "no such user", id=f"m{n}")
        jobs.push(b"raw", error=InvalidInput("bad"), id="j")
    groups = json.loads(solely(url, "dlq", "list", "-o", "json").out)
    assert groups == [{"group": "jobs", "letters": 1}, {"group": "mails/out", "letters": 3}]
    rows = json.loads(solely(url, "dlq", "list", "mails/out", "--error", "smtp", "-o", "json").out)
    assert [row["id"] for row in rows] == ["m1", "m2"]
    assert "--after 'm0'" in solely(url, "dlq", "list", "mails/out", "--limit", "1").err
    assert json.loads(solely(url, "dlq", "show", "mails/out", "m1", "-o", "json").out)["payload"] == {"to": 1}
    assert solely(url, "dlq", "show", "mails/out", "m9").code == 3

    assert solely(url, "dlq", "replay", "jobs", "--handler", "true").code == 2  # which?
    one = solely(url, "dlq", "replay", "jobs", "j", "--handler", f"cat >> {said}", "-o", "json")
    assert (one.code, json.loads(one.out)["replayed"], said.read_text()) == (0, 1, "raw")
    assert solely(url, "dlq", "replay", "jobs", "j", "--handler", "true").code == 3
    failing = solely(url, "dlq", "replay", "mails/out", "m1", "--handler", "echo away again >&2; exit 3")
    assert failing.code == 1
    assert "away again" in json.loads(solely(url, "dlq", "show", "mails/out", "m1", "-o", "json").out)["last_error"]
    dry = solely(url, "dlq", "replay", "mails/out", "--all", "--dry-run", "--handler", "false")
    assert dry.err.count("would replay") == 3
    some = solely(url, "dlq", "replay", "mails/out", "--error", "away", "--handler", "cat", "-o", "json")
    assert (some.code, json.loads(some.out)["replayed"]) == (0, 2)
    assert '{"to": 1}' in some.err

    assert solely(url, "dlq", "purge", "mails/out", "--all", "--reason", "a test").code == 2
    assert solely(url, "dlq", "purge", "mails/out", "--all", *BECAUSE).out == "1\n"
    assert solely(url, "dlq", "purge", "mails/out", "--all", *BECAUSE).code == 3
    assert json.loads(solely(url, "dlq", "list", "-o", "json").out) == []


def test_explain_says_who_has_it(url: str, solely: Run) -> None:
    with Client(url) as once, once.lock("a", purpose="deploy"):
        told = solely(url, "explain", "a")
        assert "(deploy)" in told.out
        sides = json.loads(solely(url, "explain", "a", "-o", "json").out)["sides"]
        assert {side["kind"]: side["state"] for side in sides}["lock"] == "held"


def test_top_without_a_terminal_is_one_look(url: str, solely: Run) -> None:
    with Client(url) as once, once.lock("a"), once.claim("b"):
        once.first("mark")
        rows = json.loads(solely(url, "top", "-o", "json").out)
        assert sorted((row["kind"], row["key"]) for row in rows) == [("claim", "b"), ("lock", "a")]
        assert "KIND" in solely(url, "top").out


def test_doctor_tells_reach_clock_and_versions(url: str, solely: Run) -> None:
    told = solely(url, "doctor", "-o", "json")
    findings = json.loads(told.out)
    assert told.code == 0
    assert {"Python", "solely", "click"} <= {finding["subject"] for finding in findings}
    if not url.startswith(("sqlite", "mongo")):
        assert any("clock differs" in finding["text"] for finding in findings)
