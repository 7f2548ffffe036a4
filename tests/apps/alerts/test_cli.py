"""`solely alerts …` against a running service."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from solely.cli.program import perform
from tests.apps.alerts.operator import BECAUSE, Operator, operating
from tests.cli.conftest import Told
from tests.service.serving import TOKENS

Run = Callable[..., Told]
MEANT = ("--yes", "--reason", BECAUSE)


@pytest.fixture(scope="module")
def desk() -> Iterator[Operator]:
    with operating() as it:
        yield it


@pytest.fixture
def run(desk: Operator, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("list", …)` answers what `solely alerts list …` says to an admin of the service."""
    monkeypatch.setenv("SOLELY_URL", desk.service.address)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["admin"])

    def perform_it(*words: str) -> Told:
        capfd.readouterr()
        code = perform(["alerts", *words])
        out, err = capfd.readouterr()
        return Told(code, out, err)

    return perform_it


def answered(result: Told) -> object:
    assert result.code == 0, result.err
    # What the service logs, on a thread of this process, is no answer of the command's.
    return json.loads(re.sub(r"^\d{4}-.*\n", "", result.out, flags=re.MULTILINE))


def sent(run: Run, fingerprint: str, *more: str) -> object:
    words = ("--severity", "critical", "--source", "db-1", "--fingerprint", fingerprint)
    return answered(run("send", "Disk full", *words, *more, "-o", "json"))


def test_an_alert_is_sent_and_its_outcome_printed(run: Run, desk: Operator) -> None:
    outcome = sent(run, "sent", "--label", "env=prod", "--annotation", "summary=a=b")
    assert outcome == {"outcome": "published", "fingerprint": "sent", "reason": "", "retry_after": None}
    again = sent(run, "sent")
    assert isinstance(again, dict)
    assert (again["outcome"], again["reason"]) == ("suppressed", "quiet")
    (result,) = desk.history(1, fingerprint="sent")
    assert (result["labels"], result["annotations"]) == ({"env": "prod"}, {"summary": "a=b"})
    over = sent(run, "sent", "--resolved")
    assert isinstance(over, dict)
    assert over["outcome"] == "published"
    table = run("send", "Disk full", "--severity", "critical", "--source", "db-1", "--fingerprint", "sent-2")
    assert re.search(r"^outcome +published$", table.out, re.MULTILINE)


def test_without_a_fingerprint_the_service_makes_one(run: Run) -> None:
    result = answered(run("send", "CPU", "--severity", "info", "--source", "web", "-o", "json"))
    assert isinstance(result, dict)
    assert re.fullmatch("[0-9a-f]{32}", result["fingerprint"])


def test_what_fires_now_is_what_the_bare_command_lists(run: Run) -> None:
    sent(run, "fires", "--label", "team=storage")
    assert answered(run("acknowledge", "fires", "-o", "json"))
    table = run()
    assert table.code == 0
    head, *rows = table.out.splitlines()
    assert head.split()[:4] == ["SEVERITY", "NAME", "FINGERPRINT", "SINCE"]
    (row,) = [each for each in rows if " fires " in each]
    assert row.startswith("critical")
    assert "adminer" in row
    assert len(run("firing", "--severity", "critical", "--match", "team=storage").out.splitlines()) == 2
    known = answered(run("firing", "--match", "team=storage", "-o", "json"))
    assert isinstance(known, list)
    assert [each["acknowledged"]["made_by"] for each in known] == ["adminer"]
    sent(run, "fires", "--resolved")
    nothing = run("firing", "--match", "team=storage")
    assert (nothing.code, nothing.err.strip()) == (0, "No matching alert fires.")
    assert answered(run("firing", "--match", "team=storage", "-o", "json")) == []


def test_what_is_quiet_is_listed(run: Run) -> None:
    sent(run, "listed")
    table = run("list", "listed")
    assert table.code == 0
    head, row = table.out.splitlines()
    assert head.split() == ["FINGERPRINT", "SEVERITY", "REASON", "LEFT", "SUPPRESSED", "DAY", "LAST", "SENT", "WHO"]
    assert row.split()[:3] == ["listed", "critical", "quiet"]
    assert "KEY" in run("list", "-o", "wide").out
    rows = answered(run("list", "listed", "-o", "json"))
    assert isinstance(rows, list)
    assert [(each["key"], each["reason"]) for each in rows] == [("~alerts/firing/listed/critical", "quiet")]
    assert "there are more: --after" in run("list", "--limit", "1").err


def test_the_history_is_listed(run: Run, desk: Operator) -> None:
    sent(run, "past")
    desk.history(1, fingerprint="past")
    head, row = run("history", "past", "--since", "1h").out.splitlines()
    assert head.split() == ["AT", "OUTCOME", "STATUS", "FINGERPRINT", "SEVERITY", "NAME", "RESULTS"]
    assert "published" in row
    assert '{"log": "ok"}' in row
    assert answered(run("history", "past", "--severity", "none", "-o", "json")) == []


def test_why_says_it_in_sentences(run: Run) -> None:
    sent(run, "asked")
    sent(run, "asked")
    result = run("why", "asked")
    assert result.code == 0
    assert "Severity critical was sent and is quiet for 5 min more." in result.out
    wide = run("why", "asked", "-o", "wide").out
    assert "\nSuppressed\n" in wide
    assert re.search(r"^quiet +1 ", wide, re.MULTILINE)
    known = answered(run("why", "asked", "-o", "json"))
    assert isinstance(known, dict)
    assert known["fingerprint"] == "asked"


def test_a_window_is_ended_only_if_it_is_meant(run: Run, desk: Operator) -> None:
    sent(run, "stuck")
    looked = run("expire", "stuck", "critical", "--dry-run", "--reason", BECAUSE)
    assert "would end the window of 'stuck' critical (quiet for 5 min)" in looked.err
    asked = run("expire", "stuck", "critical", "--reason", BECAUSE)
    assert asked.code == 2
    assert "--yes" in asked.err
    assert len(desk.why("stuck")["windows"]) == 1
    assert run("expire", "stuck", "critical", *MEANT).code == 0
    assert desk.why("stuck")["windows"] == []
    assert run("expire", "stuck", "critical", *MEANT).code == 3
    assert run("expire", "stuck", "critical", "--yes").code == 2  # without a reason


def test_all_windows_of_a_fingerprint_are_cleared(run: Run, desk: Operator) -> None:
    desk.send("many")
    desk.send("many", "warning")
    assert "would end 2 windows of 'many' (critical quiet" in run("clear", "many", "--dry-run", "--reason", BECAUSE).err
    assert "ended 2 windows of 'many'" in run("clear", "many", *MEANT).err
    assert run("clear", "many", *MEANT).code == 3


def test_silences_are_made_listed_and_ended(run: Run, desk: Operator) -> None:
    made = answered(
        run("silence", "add", "name=~Night.*", "team!=dba", "--for", "2h", "--reason", BECAUSE, "-o", "json")
    )
    assert isinstance(made, dict)
    assert desk.send("night", name="Nightly build")["reason"] == "silenced"
    listed = run("silence", "list")
    assert made["id"] in listed.out
    assert listed.out.split()[:2] == ["ID", "MATCHERS"]
    assert run("silence", "end", made["id"], "--reason", BECAUSE).code == 0
    assert run("silence", "end", made["id"], "--reason", BECAUSE).code == 3
    assert made["id"] not in run("silence", "list").out
    assert made["id"] in run("silence", "list", "--ended").out
    looked = run("silence", "add", "name=~Day.*", "--for", "2h", "--reason", BECAUSE, "--dry-run")
    assert (looked.code, "would silence alerts that match name=~" in looked.err) == (0, True)
    assert "Day" not in run("silence", "list").out
    refused = run("silence", "add", "name=~(?=a)", "--for", "2h", "--reason", BECAUSE)
    assert refused.code == 2
    assert "invalid perl operator" in refused.err


def test_a_silence_starts_later_and_is_edited(run: Run, desk: Operator) -> None:
    why, later = ("--reason", BECAUSE, "-o", "json"), "2027-01-31T22:00:00+01:00"
    starts = datetime.now(UTC) + timedelta(hours=3)
    made = answered(run("silence", "add", "name=Later", "--for", "2h", "--starts", starts.isoformat(), *why))
    assert isinstance(made, dict)
    assert desk.send("later", name="Later")["outcome"] == "published"
    edited = answered(run("silence", "edit", made["id"], "name=Later", "team=a", "--for", "1h", *why))
    assert isinstance(edited, dict)
    assert (edited["id"], edited["starts"], edited["matchers"]) == (
        made["id"],
        made["starts"],
        ['name="Later"', 'team="a"'],
    )
    assert run("silence", "edit", "unknown", "name=Later", "--for", "1h", *why).code == 3
    refused = run("silence", "add", "name=Later", "--for", "1h", "--starts", later.removesuffix("+01:00"), *why)
    assert (refused.code, "$.starts" in refused.err) == (2, True)


def test_what_goes_wrong_has_its_exit_code(run: Run, desk: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("send", "Disk", "--severity", "info", "--source", "x", "--label", "env").code == 2
    assert run("list", "--at", "http://127.0.0.1:1").code == 75
    assert run("list", "--at", "nowhere").code == 2
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["read"])
    assert run("list").code == 0
    assert run("clear", "stuck-2", *MEANT).code == 4  # whether there is one or not
    desk.send("stuck-2")
    assert run("clear", "stuck-2", *MEANT).code == 4
    assert run("clear", "stuck-2", "--dry-run", "--reason", BECAUSE).code == 4
    monkeypatch.setenv("SOLELY_TOKEN", "nobody's")
    assert run("history").code == 4


def test_the_service_is_where_solely_url_says_only_if_that_is_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from solely.cli import service_options

    monkeypatch.setenv("SOLELY_URL", "redis://localhost")
    monkeypatch.setattr(service_options, "HERE", "http://127.0.0.1:1")
    assert run("list").code == 75
