"""The real amtool against a running service: what its users type, what it prints, and how it exits."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.apps.alerts.operator import LOG, Operator, operating
from tests.conftest import AMTOOL
from tests.service.serving import TOKENS, Running, running

SOON = 60.0  # seconds that a command may take: it takes some hundredths
DATABASE = {"type": "log", "name": "dba", "match": {"severities": ["critical", "warning"], "labels": {"team": "db"}}}


class Ran:
    """What a command printed, and how it exited."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def text(self) -> str:
        """The output of a command that succeeded without a warning."""
        assert (self.code, self.err) == (0, "")
        return self.out.strip()

    def json(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.text)
        return found

    def refused(self) -> str:
        """The error of a command that failed."""
        assert (self.code, self.out) == (1, "")
        return self.err


Amtool = Callable[..., Ran]


def ran(folder: Path, address: str, *words: str, stdin: str = "") -> Ran:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TZ": "UTC"}
    command = [str(AMTOOL), "--alertmanager.url", address, *words]
    done = subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, timeout=SOON)
    return Ran(done)


@pytest.fixture(scope="module")
def desk() -> Iterator[Operator]:
    with operating([LOG, DATABASE]) as it:
        yield it


@pytest.fixture
def amtool(desk: Operator, tmp_path: Path) -> Amtool:
    """`amtool("alert", "query")` runs amtool as an admin of the service, or with the token of another scope."""

    def run(*words: str, scope: str = "admin", stdin: str = "") -> Ran:
        config = tmp_path / f"{scope}.yml"
        config.write_text(f"authorization:\n  credentials: {TOKENS[scope]}\n")
        return ran(tmp_path, desk.service.address, "--http.config.file", str(config), *words, stdin=stdin)

    return run


def added(amtool: Amtool, *matchers: str, comment: str = "moving the volumes", **more: str) -> str:
    """The id of a new silence."""
    options = [word for name, value in more.items() for word in (f"--{name}", value)]
    return amtool("silence", "add", *matchers, "--author", "alice", "--comment", comment, *options).text


def after(**given: float) -> str:
    return (datetime.now(UTC) + timedelta(**given)).strftime("%Y-%m-%dT%H:%M:%SZ")


def names(listed: Ran) -> list[str]:
    return [each["labels"]["alertname"] for each in listed.json()]


def test_alerts_of_every_sender_are_queried_by_their_labels(amtool: Amtool, desk: Operator) -> None:
    desk.send("query-own", name="Query own", labels={"team": "db", "name": "inner"})
    assert amtool("alert", "add", "Query added", "severity=warning", "instance=web-1").text == ""
    assert names(amtool("alert", "query", "alertname=~Query.*", "-o", "json")) == ["Query added", "Query own"]
    for matchers in (("Query own",), ("alertname=~Query.*", "team=db"), ("source=db-1", "name=inner"), ("name!=",)):
        assert names(amtool("alert", "query", "-o", "json", *matchers)) == ["Query own"], matchers
    for matchers in (("name=Query own",), ("alertname=~Query",), ("Query own", "severity!=critical")):
        assert names(amtool("alert", "query", "-o", "json", *matchers)) == [], matchers
    assert 'severity="critical" source="db-1"' in amtool("alert", "query", "Query own", "-o", "extended").text
    header, row = amtool("alert", "query", "Query own").text.splitlines()
    assert header.split() == ["Alertname", "Starts", "At", "Summary", "State"]
    assert row.startswith("Query own")
    assert row.rstrip().endswith("active")


def test_alerts_are_queried_by_the_publisher_that_wants_them(amtool: Amtool, desk: Operator) -> None:
    desk.send("receiver", name="Receiver", labels={"team": "db"})
    desk.send("receiver-log", name="Receiver log")
    for pattern, found in (("dba", ["Receiver"]), ("d.*", ["Receiver"]), ("db", [])):
        assert names(amtool("alert", "query", "alertname=~Receiver.*", "-r", pattern, "-o", "json")) == found
    assert len(names(amtool("alert", "query", "alertname=~Receiver.*", "-r", "log", "-o", "json"))) == 2


def test_an_added_alert_notifies_and_one_that_ended_resolves_it(amtool: Amtool, desk: Operator) -> None:
    words = ("alert", "add", "Added", "severity=critical", "--annotation=summary=it broke")
    assert amtool(*words, "--generator-url=http://prom.example.org:9090/graph", scope="write").text == ""
    (alert,) = amtool("alert", "query", "Added", "-o", "json").json()
    assert alert["annotations"] == {"summary": "it broke"}
    assert alert["generatorURL"] == "http://prom.example.org:9090/graph"
    (sent,) = desk.history(1, fingerprint=alert["fingerprint"])
    assert (sent["name"], sent["source"], sent["status"]) == ("Added", "http://prom.example.org:9090", "firing")
    assert "startsAt" not in sent["annotations"]  # amtool sends the year 1
    assert amtool(*words, "--end", after(minutes=-1), scope="write").text == ""
    assert names(amtool("alert", "query", "Added", "-o", "json")) == []
    desk.history(2, fingerprint=alert["fingerprint"])


def test_a_silenced_alert_is_listed_as_suppressed_by_its_silence(amtool: Amtool, desk: Operator) -> None:
    desk.send("hidden", name="Hidden disk")
    silence = added(amtool, "alertname=Hidden disk")
    assert desk.send("hidden-2", name="Hidden disk")["reason"] == "silenced"
    assert names(amtool("alert", "query", "Hidden disk", "-o", "json")) == []
    found = amtool("alert", "query", "--silenced", "Hidden disk", "-o", "json").json()
    assert [each["status"]["silencedBy"] for each in found] == [[silence], [silence]]
    assert {each["status"]["state"] for each in found} == {"suppressed"}
    assert amtool("silence", "expire", silence).text == ""
    assert len(names(amtool("alert", "query", "Hidden disk", "-o", "json"))) == 2


def test_a_silence_is_added_queried_and_expired(amtool: Amtool, desk: Operator) -> None:
    silence = added(amtool, "Cycle", "env!~test|dev", duration="2h")
    header, row = amtool("silence", "query", "Cycle").text.splitlines()
    assert header.split() == ["ID", "Matchers", "Ends", "At", "Created", "By", "Comment"]
    assert row.split()[:3] == [silence, 'alertname="Cycle"', 'env!~"test|dev"']
    assert row.rstrip().endswith("alice       moving the volumes")
    assert amtool("silence", "query", "-q", "Cycle", 'env!~"test|dev"').text == silence
    for other in (("alertname=~Cycle",), ("Cycle", "env=dev"), ("Cycle", "--within", "1h"), ("Cycle", "--expired")):
        assert amtool("silence", "query", "-q", *other).text == "", other
    assert amtool("silence", "query", "-q", "Cycle", "--within", "3h", "--created-by", "alice").text == silence
    assert [amtool("silence", "expire", silence).text for _ in range(2)] == ["", ""]  # once more is no error
    assert amtool("silence", "query", "-q", "Cycle").text == ""
    assert amtool("silence", "query", "-q", "--expired", "Cycle").text == silence
    assert [
        (each["who"], each["key"], each["reason"]) for each in desk.ask("/audit", format="json")["records"][:2]
    ] == [
        ("adminer", silence, "moving the volumes"),
        ("adminer", 'alertname="Cycle", env!~"test|dev"', "moving the volumes"),
    ]


def test_an_edit_of_the_end_keeps_the_silence(amtool: Amtool, desk: Operator) -> None:
    silence = added(amtool, "Edited")
    (edited,) = amtool("silence", "update", silence, "-d", "5h", "-c", "it takes longer", "-o", "json").json()
    (found,) = amtool("silence", "query", "Edited", "-o", "json").json()
    assert (edited["id"], found["id"], found["comment"], found["createdBy"]) == (
        silence,
        silence,
        "it takes longer",
        "alice",
    )
    starts, ends = (datetime.fromisoformat(found[each]) for each in ("startsAt", "endsAt"))
    assert ends - starts == timedelta(hours=5)
    assert found["status"] == {"state": "active"}


def test_an_edit_of_the_start_replaces_the_silence_by_another(amtool: Amtool, desk: Operator) -> None:
    silence = added(amtool, "Replaced")
    (edited,) = amtool("silence", "update", silence, "--start", after(minutes=30), "-o", "json").json()
    assert edited["id"] != silence
    assert amtool("silence", "query", "-q", "Replaced").text == edited["id"]
    assert amtool("silence", "query", "-q", "--expired", "Replaced").text == silence
    (ended,) = [each for each in desk.ask("/api/alerts/silences", ended="true")["silences"] if each["id"] == silence]
    assert ended["ended_why"] == f"replaced by {edited['id']}"


def test_a_silence_may_start_later_and_be_moved_until_then(amtool: Amtool, desk: Operator) -> None:
    silence = added(amtool, "Later", start=after(hours=1), end=after(hours=2))
    assert desk.send("later", name="Later")["outcome"] == "published"
    (found,) = amtool("silence", "query", "Later", "-o", "json").json()
    assert found["status"] == {"state": "pending"}
    moved = amtool("silence", "update", silence, "--start", after(minutes=30), "-q")
    assert moved.code == 0
    (found,) = amtool("silence", "query", "Later", "-o", "json").json()
    assert (found["id"], found["status"]) == (silence, {"state": "pending"})
    assert found["startsAt"] < after(minutes=31)


def test_silences_are_exported_and_imported(amtool: Amtool, desk: Operator, tmp_path: Path) -> None:
    made = {added(amtool, f"Import {number}", "severity=~critical|error") for number in range(3)}
    # A filter is compared with the matchers of a silence, as in Alertmanager, and not with what they match.
    assert amtool("silence", "query", "alertname=~Import.*", "-o", "json").json() == []
    exported = amtool("silence", "query", "severity=~critical|error", "-o", "json").text
    assert {each["id"] for each in json.loads(exported)} == made
    assert set(amtool("silence", "import", stdin=exported).text.split()) == made  # they are there already
    (tmp_path / "silences.json").write_text(exported)
    copies = set(amtool("silence", "import", "--force", str(tmp_path / "silences.json")).text.split())
    assert len(copies) == 3
    assert not copies & made
    with running(apps=("alerts",)) as elsewhere:
        moved = ran(tmp_path, elsewhere.address, "silence", "import", str(tmp_path / "silences.json")).text.split()
        assert len(moved) == 3
        assert not set(moved) & made
        assert set(ran(tmp_path, elsewhere.address, "silence", "query", "-q").text.split()) == set(moved)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("alert", "query", "alertname=~(abc){1000}"),
            "[400] getAlertsBadRequest  the pattern '(abc){1000}' is too large",
        ),
        (("alert", "query", "-r", "["), "the pattern '[' is invalid: missing ]"),
        (("silence", "add", "alertname=~.*", "-c", "all of them"), "these matchers match every alert"),
        (("silence", "add", "A", "-c", "x"), "Expected `str` of length >= 3 - at `$.comment`"),
        (("silence", "add", "A", "-c", "too long", "-d", "2y"), "and within 366 days"),
        (("silence", "update", "unknown", "-d", "1h"), "[GET /silence/{silenceID}][404] getSilenceNotFound"),
        (("silence", "expire", "unknown"), "(status 404)"),
    ],
)
def test_what_is_invalid_is_refused_in_words_that_amtool_prints(
    amtool: Amtool, words: tuple[str, ...], says: str
) -> None:
    assert says in amtool(*words).refused()


def test_a_token_that_may_only_look_adds_no_silence_and_ends_none(amtool: Amtool, desk: Operator) -> None:
    silence = added(amtool, "Kept")
    for scope in ("read", "write"):
        for words in (("add", "X", "-c", "to hide it"), ("expire", silence), ("update", silence, "-d", "5h")):
            assert "(status 403)" in amtool("silence", *words, scope=scope).refused()
        assert amtool("silence", "query", "-q", "Kept", scope=scope).text == silence
    assert "(status 403)" in amtool("alert", "add", "X", scope="read").refused()
    assert amtool("silence", "query", "-q", "X").text == ""


def test_without_a_token_amtool_is_told_that_it_needs_one(desk: Operator, amtool: Amtool, tmp_path: Path) -> None:
    assert "(status 401)" in ran(tmp_path, desk.service.address, "alert", "query").refused()


def test_the_configuration_names_the_publishers_and_what_they_want(amtool: Amtool) -> None:
    assert '"receiver": "dba"' in amtool("config", "show", scope="read").text
    tree = amtool("config", "routes").text
    assert '{severity="critical",team="db"}  continue: true  receiver: dba' in tree
    for labels, receivers in ((("severity=critical", "team=db"), "log,dba"), (("severity=info", "team=db"), "log")):
        assert amtool("config", "routes", "test", *labels).text == receivers
    assert amtool("cluster", "show").text.splitlines()[0].split() == ["Cluster", "Status:", "disabled"]


@pytest.fixture
def open_service() -> Iterator[Running]:
    with running(apps=("alerts",)) as it:
        yield it


def test_an_open_service_needs_no_token(open_service: Running, amtool: Amtool, tmp_path: Path) -> None:
    words = ("silence", "add", "Open", "--author", "bob", "--comment", "nobody asked")
    silence = ran(tmp_path, open_service.address, *words).text
    assert ran(tmp_path, open_service.address, "silence", "query", "-q").text == silence
