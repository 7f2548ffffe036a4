"""What people see of jobs, and do: lists, pages, commands, metrics and the audit log of one service."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator

import httpx2
import pytest

from solely.cli.program import perform
from tests.apps.operator import BECAUSE
from tests.apps.repos.forge_server import Forges, forges, refusal
from tests.apps.repos.pods import HOOK, SOON, Working, shell, working
from tests.cli.conftest import Told
from tests.service.serving import TOKENS, bearer, until
from tests.service.test_metrics import samples

Run = Callable[..., Told]
FAILS = 'if test "$SOLELY_JOB_TITLE" = "A bad one"; then echo "no good" >&2; exit 1; fi; echo fine'


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Working]:
    """A service that has reviewed a merge request twice reported, failed at another, and worked on two commands."""
    with forges(tmp_path_factory.mktemp("desk") / "repositories") as stub:
        project = stub.gitlab.project()
        jobs = {"review": shell(FAILS), "max_attempts": 1, "comment_failures": False}
        polled = {"url": stub.url, "token": "forge-token-of-these-tests", "webhook_tokens": [HOOK]}
        with working(stub, jobs, gitlab={**polled, "projects": [project]}) as app:
            for branch, title in (("good", "A good one"), ("bad", "A bad one")):
                iid = stub.gitlab.merge_request(project, branch, title)["iid"]
                app.opened(app.address, project, iid)
                app.until_over(review_of(stub, project, iid))
            app.opened(app.address, project, 1)
            app.send(app.address, "Push Hook", {"object_kind": "push"})
            for text in ("/copilot one", "/copilot two"):
                note = stub.gitlab.note(project, 1, text)
                app.noted(app.address, project, 1, note)
                app.until_over(f"note:{project}:1:{note['id']}")
            app.until_polled()
            yield app


def review_of(stub: Forges, project: int, iid: int) -> str:
    """The key of the review of this merge request."""
    return f"review:{project}:{iid}:{stub.gitlab.of(project, iid)['sha']}"


@pytest.fixture
def run(desk: Working, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("jobs", …)` answers what `solely repos jobs …` says to an admin of the service."""
    monkeypatch.setenv("SOLELY_URL", desk.address)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["admin"])

    def perform_it(*words: str) -> Told:
        capfd.readouterr()
        code = perform(["repos", *words])
        out, err = capfd.readouterr()
        return Told(code, re.sub(r"^\d{4}-.*\n", "", out, flags=re.MULTILINE), err)

    return perform_it


def test_jobs_are_listed_newest_first_by_state_kind_and_project_and_in_pages(desk: Working) -> None:
    ask = desk.operator.ask
    rows = ask("/api/repos/jobs")["jobs"]
    assert [(row["kind"], row["state"]) for row in rows] == [
        ("command", "done"), ("command", "done"), ("review", "failed"), ("review", "done"),
    ]  # fmt: skip
    assert [row["kind"] for row in ask("/api/repos/jobs", state="done", kind="review")["jobs"]] == ["review"]
    assert ask("/api/repos/jobs", project="another/project")["jobs"] == []
    first = ask("/api/repos/jobs", limit=3)
    rest = ask("/api/repos/jobs", limit=3, after=first["next"])
    assert [row["id"] for row in (*first["jobs"], *rest["jobs"])] == [row["id"] for row in rows]
    assert rest["next"] is None


def test_what_was_not_queued_is_listed_with_its_reason(desk: Working) -> None:
    until(lambda: len(desk.operator.ask("/api/repos/duplicates")["duplicates"]) >= 2, SOON)
    rows = {row["outcome"]: row for row in desk.operator.ask("/api/repos/duplicates")["duplicates"]}
    assert (rows["known"]["origin"], rows["known"]["times"], rows["known"]["kind"]) == ("webhook", 1, "review")
    assert any(reason.startswith("ignored: ") for reason in rows)


def test_the_page_shows_figures_jobs_watermarks_and_what_was_not_queued(desk: Working) -> None:
    view = desk.operator.ask("/repos", format="json")
    assert view["figures"]["waiting"] == 0
    assert view["figures"]["dead_letters"] == 1
    assert len(view["jobs"]) == 4
    assert view["watermarks"][0]["lag"] < SOON
    for path in ("/repos", "/repos/jobs", f"/repos/job?id={view['jobs'][0]['id']}"):
        page = desk.operator.service.get(path, headers={**bearer(TOKENS["admin"]), "accept": "text/html"})
        assert page.status_code == 200
        assert "note:" in page.text
    assert desk.operator.get("/api/repos/job", "read", id="no such job").status_code == 404


def test_the_document_s_metrics_are_there(desk: Working) -> None:
    found = samples(desk.operator.get("/metrics", "read").content)
    values = {name: value for name, value in found.items() if name.startswith("solely_repos_")}

    def total(name: str, *labels: str) -> float:
        return sum(
            value
            for key, value in values.items()
            if key.partition("{")[0] == name and all(map(key.__contains__, labels))
        )

    assert total("solely_repos_webhook_received_total") == 6
    assert total("solely_repos_reviews_total", "done") == 1
    assert total("solely_repos_reviews_total", "failed") == 1
    assert total("solely_repos_reviews_duration_seconds_count") == 1
    assert total("solely_repos_coding_tasks_duration_seconds_count", "command") == 2
    assert total("solely_repos_duplicates_total", "known") == 1
    assert total("solely_repos_watermark_lag_seconds") < SOON


def test_commands_list_jobs_show_logs_and_repeat_a_job(desk: Working, run: Run) -> None:
    rows = json.loads(run("jobs", "--kind", "review", "-o", "json").out)
    bad = next(row["id"] for row in rows if row["state"] == "failed")
    assert run().code == 0
    assert "no good" in run("log", bad).out
    assert desk.stub.gitlab.comments(next(iter(desk.stub.gitlab.projects)), 2) == []  # comment_failures is off
    assert run("watermarks").code == 0
    assert run("duplicates").code == 0
    repeated = run("repeat", bad, "--yes", "--reason", BECAUSE)
    assert repeated.code == 0, repeated.err
    assert desk.until_over(f"{bad}#2")["received_by"] == "manual"
    unknown = run("forget", "review:0:0:none", "--yes", "--reason", BECAUSE)
    assert (unknown.code, "waiting or running" in unknown.err) == (3, True)
    records = desk.operator.ask("/audit", format="json")
    assert any("repos.repeat" in str(record) and bad in str(record) for record in records["records"])


def test_github_is_a_forge_like_gitlab(desk: Working) -> None:
    """A review and a command, whose branches the event does not name; a rate limit is no failure."""
    github = desk.stub.github
    name = github.repository()["full_name"]
    number = github.pull_request(name)["number"]
    comment = github.comment(name, number, "/copilot help")
    deliver(desk, "pull_request", github.pull_request_event(name, number))
    desk.stub.meet("POST", "/comments$", refusal(403, retry_after=1))
    deliver(desk, "issue_comment", github.comment_event(name, number, comment))
    until(lambda: len(github.comments(name, number)) == 3, SOON)
    assert github.repositories[name].file("feature", "work.txt") == str(comment["id"])
    states = {row["kind"]: row["state"] for row in desk.jobs().values() if row["forge"] == "github"}
    until(lambda: all(row["state"] == "done" for row in desk.jobs().values() if row["forge"] == "github"), SOON)
    assert set(states) == {"review", "command"}


def deliver(desk: Working, event: str, body: object) -> httpx2.Response:
    """Sends a webhook as GitHub does."""
    raw = json.dumps(body).encode()
    signature = hmac.new(HOOK.encode(), raw, hashlib.sha256).hexdigest()
    headers = {
        "x-github-event": event, "x-github-delivery": f"{event}-1", "content-type": "application/json",
        "x-hub-signature-256": f"sha256={signature}",
    }  # fmt: skip
    answer = httpx2.post(f"{desk.address}/api/repos/github", content=raw, headers=headers, timeout=SOON)
    assert answer.status_code in (200, 202), answer.text
    return answer
