"""The application of CONTRIBUTING.md: put into its folder, mounted, and driven as people and programs do."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from solely.apps import APPS
from solely.cli.exits import Exit
from solely.cli.program import perform
from tests.apps.hooks import Answer, Hooks, hooks_aside
from tests.service.serving import LINES, TOKENS, Running, bearer, running, until

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(
    r"^```(?:python|sql)\n(?:#|--) src/solely/apps/greetings/(\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
)
READ, WRITE, ADMIN = (bearer(TOKENS[scope]) for scope in ("read", "write", "admin"))
LETTERS = "/dead-letters?group=~greetings/post"


class Example(NamedTuple):
    """The running application, and the receiver of its greetings."""

    service: Running
    receiver: Hooks

    def greet(self, visitor: str) -> bool:
        answer = self.service.post("/api/greetings", {"visitor": visitor}, headers=WRITE)
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["greeted"])

    def received(self, visitor: str) -> int:
        return [json.loads(each.body) for each in self.receiver.received].count({"visitor": visitor})

    def get(self, path: str) -> Any:
        answer = self.service.get(path, headers={**ADMIN, "accept": "application/json"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def outcomes(self) -> list[str]:
        """What the audit log says became of the acts, the latest first."""
        return [each["outcome"] for each in self.get("/audit")["records"]]

    def figures(self) -> str:
        return self.service.get("/metrics", headers=READ).text


@pytest.fixture(scope="module")
def greetings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    folder = tmp_path_factory.mktemp("apps")
    for path, text in [*BLOCKS, ("__init__.py", "")]:
        file = folder / "greetings" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with pytest.MonkeyPatch.context() as patch, hooks_aside() as receiver:
        patch.syspath_prepend(str(folder))
        patch.setitem(APPS, "greetings", "greetings:Greetings")
        given: dict[str, Any] = {
            "greetings": {"url": receiver.url, "timeout": "5s"},
            "data_url": f"sqlite:///{folder}/data.db",
        }
        with running(tokens=LINES, apps=["greetings"], store_timeout="500ms", **given) as it:
            yield Example(it, receiver)
    for module in [each for each in sys.modules if each.partition(".")[0] == "greetings"]:
        del sys.modules[module]


def test_it_is_short() -> None:
    assert [path for path, _ in BLOCKS] == ["acts.py", "app.py", "queries.sql", "migrations/001_sent.sql"]
    assert sum(len(text.splitlines()) for path, text in BLOCKS if path.endswith(".py")) < 60
    assert sum(len(text.splitlines()) for path, text in BLOCKS if path.endswith(".sql")) < 10


def test_it_greets_each_visitor_once(greetings: Example) -> None:
    before = greetings.get("/api/greetings")["greeted"]
    assert [greetings.greet(name) for name in ("Ann", "Bob", "Ann")] == [True, True, False]
    until(lambda: greetings.get("/api/greetings")["greeted"] == before + 2)
    assert (greetings.received("Ann"), greetings.received("Bob")) == (1, 1)
    assert 'solely_suppressed_total{reason="quiet"} 1.0' in greetings.figures()


def test_its_routes_are_checked_and_documented(greetings: Example) -> None:
    service = greetings.service
    assert service.post("/api/greetings", {"visitor": "Eve"}, headers=READ).status_code == 403
    assert service.post("/api/greetings", {"visit": "Eve"}, headers=WRITE).status_code == 400
    document = service.get("/openapi.json").json()["paths"]
    posted = document["/api/greetings"]["post"]
    assert posted["tags"] == ["greetings"]
    assert "The database of applications is unavailable" in posted["responses"]["503"]["description"]
    assert "database" not in document["/v1/locks/acquire"]["post"]["responses"]["503"]["description"]
    assert "/api/greetings/expire" in document


def test_a_greeting_that_fails_for_now_is_sent_again(greetings: Example) -> None:
    soon = (("retry-after", "0"),)
    greetings.receiver.answers.extend([Answer(503, soon), Answer(503, soon)])
    assert greetings.greet("Cem")
    until(lambda: greetings.received("Cem") == 3)
    until(lambda: 'outcome="retried",worker="post"} 2.0' in _sorted_labels(greetings.figures()))
    assert greetings.service.get("/readyz").json()["checks"]["workers"] == "ok"


def test_a_greeting_that_is_refused_for_good_is_parked_and_replayed(greetings: Example) -> None:
    greetings.receiver.answers.append(Answer(400, body=b"no such visitor"))
    assert greetings.greet("Dora")
    (letter,) = until(lambda: greetings.get(LETTERS)["letters"])
    assert "post: 127.0.0.1 answered 400: no such visitor" in letter["last_error"]
    assert greetings.get(LETTERS)["replayable"], "the service offers it, since it runs the worker"
    wanted = {"group": "~greetings/post", "id": letter["id"]}
    answer = greetings.service.post("/v1/dead-letters/replay", wanted, headers=WRITE)
    assert (answer.status_code, answer.json()["outcome"]) == (200, "replayed"), answer.text
    assert greetings.received("Dora") == 2
    until(lambda: greetings.get(LETTERS)["letters"] == [])
    assert 'outcome="parked",worker="post"} 1.0' in _sorted_labels(greetings.figures())


def test_its_page_shows_the_form_of_its_act_and_its_worker(greetings: Example) -> None:
    page = greetings.service.get("/greetings", headers={**ADMIN, "accept": "text/html"}).text
    assert 'href="/greetings/expire">Expire the greeting of a visitor, who is greeted again…</a>' in page
    assert "Each visitor gets one greeting a day." in page
    (worker,) = greetings.get("/greetings")["workers"]
    assert (worker["name"], worker["in_flight"]) == ("post", 0)
    assert 'href="/greetings">Greetings</a>' in greetings.service.get("/locks", headers=ADMIN).text
    assert greetings.service.get("/greetings", headers=READ, params={"format": "json"}).json()["acts"] == []


def test_its_act_is_a_route(greetings: Example) -> None:
    assert greetings.greet("Fay")
    wanted = {"visitor": "Fay", "reason": "she came back"}
    refused = greetings.service.post("/api/greetings/expire", {"visitor": "Fay"}, headers=ADMIN)
    assert refused.status_code == 400, "an admin says why"
    would = greetings.service.post("/api/greetings/expire?dry_run=true", wanted, headers=ADMIN).json()
    assert would["would"] == "expire Fay"
    assert greetings.greet("Fay") is False, "a dry run changes nothing"
    for expired, outcome in ((True, "done"), (False, "nothing")):
        answer = greetings.service.post("/api/greetings/expire", wanted, headers=ADMIN)
        assert answer.json() == {"expired": expired}
        assert greetings.outcomes()[0] == outcome
    record = greetings.get("/audit")["records"][0]
    assert (record["action"], record["key"], record["reason"]) == ("greetings.expire", "Fay", "she came back")
    assert greetings.greet("Fay")


def test_its_act_is_a_form(greetings: Example) -> None:
    assert greetings.greet("Gus")
    service = greetings.service
    form = service.get("/greetings/expire?visitor=Gus", headers=ADMIN).text
    assert "<h1>Expire Gus?</h1>" in form
    token = re.search(r'name="csrf" value="(.*?)"', form)
    assert token is not None
    entered = {"csrf": token[1], "visitor": "Gus", "reason": ""}
    again = service.http.post("/greetings/expire", data=entered, headers=ADMIN)
    assert (again.status_code, "This is required." in again.text) == (400, True)
    done = service.http.post("/greetings/expire", data=entered | {"reason": "he came back"}, headers=ADMIN)
    assert (done.status_code, done.headers["location"]) == (303, "/greetings?note=ended")
    assert "recorded in the audit log" in service.get(done.headers["location"], headers=ADMIN).text
    assert greetings.outcomes()[0] == "done"
    assert greetings.greet("Gus")


def test_its_act_is_a_command(
    greetings: Example, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert greetings.greet("Hal")
    monkeypatch.setenv("SOLELY_URL", greetings.service.address)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["admin"])
    words = ["greetings", "expire", "Hal", "--reason", "he came back"]
    assert perform([*words, "--dry-run"]) == Exit.OK
    assert perform([*words, "--yes"]) == Exit.OK
    assert perform([*words, "--yes"]) == Exit.NOT_FOUND
    said = capfd.readouterr().err
    assert ("would expire Hal" in said, "expired Hal" in said, "There is nothing to do." in said) == (True,) * 3
    assert greetings.outcomes()[:2] == ["nothing", "done"]
    assert perform(["greetings", "--help"]) == Exit.OK
    assert "Greetings: each visitor gets one a day." in capfd.readouterr().out


def test_it_forgets_what_is_old(greetings: Example) -> None:
    service = greetings.service
    data = service.service.data
    service.run(data.run("INSERT INTO greetings_sent VALUES ('0', 'long ago', 0)"))
    service.run(data.run("INSERT INTO greetings_sent VALUES ('1', 'just now', :now)", now=time.time()))
    (retention,) = [job for job in service.service.apps["greetings"].upkeep() if job.name == "retention"]
    service.run(_awaited(retention.work()))
    assert service.run(data.rows("SELECT id FROM greetings_sent WHERE id IN ('0', '1')")) == [{"id": "1"}]


def test_while_the_database_is_away_nothing_is_lost(greetings: Example) -> None:
    service = greetings.service.service
    with closing(sqlite3.connect(service.settings.data_url.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN IMMEDIATE")  # and nobody else can write
        assert greetings.greet("Max"), "neither the greeting nor its worker waits for the database"
        until(lambda: greetings.received("Max") == 1)
        assert other.execute("SELECT at FROM greetings_sent WHERE visitor = 'Max'").fetchall() == []
    recorded = "SELECT at FROM greetings_sent WHERE visitor = 'Max'"
    (row,) = until(lambda: greetings.service.run(service.data.rows(recorded)))
    assert abs(row["at"] - time.time()) < 60


def test_a_failed_statement_shows_the_caller_nothing(greetings: Example) -> None:
    data = greetings.service.service.data
    greetings.service.run(data.run("ALTER TABLE greetings_sent RENAME TO elsewhere"))
    try:
        broken = greetings.service.get("/api/greetings", headers=READ)
        assert broken.status_code == 500
        assert "greetings_sent" not in broken.text
    finally:
        greetings.service.run(data.run("ALTER TABLE elsewhere RENAME TO greetings_sent"))
    assert greetings.service.get("/api/greetings", headers=READ).status_code == 200


async def _awaited(work: Any) -> Any:
    return await work


def _sorted_labels(figures: str) -> str:
    """The figures, with the labels of each sample in the order of their names."""
    return re.sub(r"\{(.*?)\}", lambda each: "{" + ",".join(sorted(each[1].split(","))) + "}", figures)
