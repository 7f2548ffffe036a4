"""Jobs on real git repositories over HTTP: what each kind leaves behind, and that a repeat finds it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from solely import AsyncQueue
from solely.apps.repos.app import ReposApp
from solely.apps.repos.jobs.markers import marker_of
from solely.apps.repos.model import RepoJob
from solely.kit import DAY
from tests.apps.operator import BECAUSE
from tests.apps.repos.forge_server import TOKEN, Asked, Forges, Reply, lost_answer, refusal
from tests.apps.repos.pods import COMMAND, SOON, Working, shell, working
from tests.service.serving import until


def queue_of(app: Working, name: str) -> AsyncQueue:
    """This queue of the application."""
    mounted = app.operator.service.service.apps["repos"]
    assert isinstance(mounted, ReposApp)
    return mounted.queue(name)


def test_a_review_posts_what_the_command_says_about_the_head_once(stub_forges: Forges) -> None:
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    request = gitlab.merge_request(project)
    key = f"review:{project}:1:{request['sha']}"
    with working(stub_forges) as app:
        app.opened(app.address, project, 1)
        run = app.until_over(key)
        app.opened(app.address, project, 1)  # by another hook
    assert (run["state"], run["attempts"], run["log"]) == ("done", 1, f"a feature\nreviewed {request['sha']}\n")
    marker = f"<!-- solely {marker_of(key, TOKEN)} -->"
    assert gitlab.comments(project, 1) == [f"a feature\nreviewed {request['sha']}\n\n{marker}"]
    assert stub_forges.count("POST", "receive-pack") == 0


def test_a_command_pushes_a_commit_with_its_trailers_and_says_so(stub_forges: Forges) -> None:
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    gitlab.merge_request(project)
    note = gitlab.note(project, 1, "/copilot add a line\nplease")
    with working(stub_forges) as app:
        app.noted(app.address, project, 1, note)
        run = app.until_over(f"note:{project}:1:{note['id']}")
    repository = gitlab.repositories[project]
    message = repository.messages("feature")[-1]
    assert repository.file("feature", "work.txt") == str(note["id"])
    assert re.fullmatch(
        rf"/copilot add a line\n\ndid {note['id']}\n\nSolely-Job: note:{project}:1:{note['id']}\nSolely-Fence: \d+",
        message,
    )
    assert run["commit_id"] == repository.tip("feature")
    assert f"did {note['id']}\n\nPushed as {run['commit_id']}." in gitlab.comments(project, 1)[-1]


def test_a_command_that_changes_nothing_pushes_nothing_and_posts_what_it_says(stub_forges: Forges) -> None:
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    gitlab.merge_request(project)
    note = gitlab.note(project, 1, "/copilot explain")
    with working(stub_forges, {"command": shell("echo it is fine")}) as app:
        app.noted(app.address, project, 1, note)
        run = app.until_over(f"note:{project}:1:{note['id']}")
    assert (run["state"], run["commit_id"]) == ("done", "")
    assert gitlab.comments(project, 1)[-1].startswith("it is fine")
    assert len(gitlab.repositories[project].messages("feature")) == 1


def test_a_commit_that_the_command_made_itself_gets_the_trailers(stub_forges: Forges) -> None:
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    gitlab.merge_request(project)
    note = gitlab.note(project, 1, "/copilot commit")
    own = "echo x > own.txt; git add .; git -c user.name=A -c user.email=a@b.c commit --quiet -m 'My words'; echo ok"
    with working(stub_forges, {"command": shell(own)}) as app:
        app.noted(app.address, project, 1, note)
        app.until_over(f"note:{project}:1:{note['id']}")
    message = gitlab.repositories[project].messages("feature")[-1]
    assert message.startswith(f"My words\n\nSolely-Job: note:{project}:1:{note['id']}\n")


@pytest.mark.parametrize("asked_again", [True, False])
def test_lost_answers_of_push_and_comment_are_found_by_their_markers(stub_forges: Forges, asked_again: bool) -> None:
    """Also if the forge is away when it is asked again right after the push: the next attempt finds the trailer."""
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    gitlab.merge_request(project)
    note = gitlab.note(project, 1, "/copilot once")

    def lost_push(asked: Asked, perform: Callable[[], Reply]) -> Reply:
        if not asked_again:
            stub_forges.meet("GET", "info/refs$", refusal(503))
        return lost_answer(asked, perform)

    stub_forges.meet("POST", "git-receive-pack$", lost_push)
    stub_forges.meet("POST", "/notes$", lost_answer)
    with working(stub_forges) as app:
        app.noted(app.address, project, 1, note)
        run = app.until_over(f"note:{project}:1:{note['id']}")
    assert (run["state"], run["attempts"]) == ("done", 1)  # an outage is no attempt
    repository = gitlab.repositories[project]
    assert repository.file("feature", "work.txt") == str(note["id"])
    assert sum(f"Solely-Job: note:{project}" in each for each in repository.messages("feature")) == 1
    assert sum("did " in each for each in gitlab.comments(project, 1)) == 1
    assert stub_forges.count("POST", "/notes$") == 1


def test_an_outage_is_no_attempt_and_the_command_is_not_run_again_to_post(stub_forges: Forges) -> None:
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    request = gitlab.merge_request(project)
    stub_forges.meet("GET", "info/refs$", refusal(503))
    stub_forges.meet("POST", "/notes$", refusal(429, retry_after=1), times=2)
    with working(stub_forges, {"max_attempts": 1, "review": shell("date +%s%N")}) as app:
        app.opened(app.address, project, 1)
        run = app.until_over(f"review:{project}:1:{request['sha']}")
    assert (run["state"], run["attempts"]) == ("done", 1)
    posts = [each.json["body"] for each in stub_forges.asked if each.path.endswith("/notes") and each.method == "POST"]
    assert len(set(posts)) == 1
    assert len(gitlab.comments(project, 1)) == 1


def test_an_issue_gets_its_branch_its_merge_request_and_a_comment_once(stub_forges: Forges) -> None:
    gitlab, jira = stub_forges.gitlab, stub_forges.jira
    project = gitlab.project()
    stub_forges.meet("POST", "merge_requests$", lost_answer)
    stub_forges.meet("POST", "issue/PROJ-7/comment$", lost_answer)
    target = {
        "git_http_url": gitlab.projects[project]["http_url_to_repo"], "project_id": project,
        "project_path": "group/project",
    }  # fmt: skip
    asked = {"url": stub_forges.url, "user": "solely@example.org", "token": TOKEN, "poll_every": 1}
    with working(stub_forges, jira={**asked, "projects": {"PROJ": target}}) as app:
        app.until_polled()
        jira.issue("PROJ-7", "Add a file", labels=["agent"])
        run = app.until_over("issue:PROJ-7")
    assert run["state"] == "done"
    assert gitlab.repositories[project].file("agent/proj-7", "PROJ-7.txt") == "Add a file"
    (request,) = gitlab.merge_requests[project]
    assert (request["source_branch"], request["target_branch"]) == ("agent/proj-7", "main")
    assert run["url"] == request["web_url"]
    (comment,) = jira.comments("PROJ-7")
    assert request["web_url"] in comment


def test_a_forgotten_job_is_performed_again_and_posts_again(stub_forges: Forges) -> None:
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    request = gitlab.merge_request(project)
    key = f"review:{project}:1:{request['sha']}"
    with working(stub_forges) as app:
        app.opened(app.address, project, 1)
        app.until_over(key)
        done = app.operator.post("/api/repos/forget", {"key": key, "reason": BECAUSE})
        assert done.json() == {"forgotten": True}
        app.opened(app.address, project, 1)
        app.until_over(f"{key}#2")
        assert app.operator.post("/api/repos/repeat", {"key": key, "reason": BECAUSE}).json() == {"queued": True}
        app.until_over(f"{key}#3")
        nothing = app.operator.post("/api/repos/forget", {"key": "review:0:0:0", "reason": BECAUSE})
    assert nothing.json() == {"forgotten": False}
    assert len(gitlab.comments(project, 1)) == 3


def test_a_job_whose_processes_died_is_recorded_as_failed_once_the_queue_has_parked_it(stub_forges: Forges) -> None:
    job = RepoJob(kind="review", forge="gitlab", key="review:1:1:abc")
    with working(stub_forges, {"review": None, "command": None, "issue": None}) as desk:
        app, run = desk.operator.service.service.apps["repos"], desk.operator.service.run
        assert isinstance(app, ReposApp)
        desk.operator.service.on_loop(lambda: app.work.records.begin(job, job.key, 1).enter("running"))
        run(app.queue("jobs").push(job.key, msgspec.to_builtins(job)))
        desk.until_state(job.key, "running")

        def states() -> list[str]:
            found = []
            for _ in range(2):
                run(app.work.performer.fail_lost())
                found.append(desk.jobs()[job.key]["state"])
            return found

        assert states() == ["running", "running"]
        (item,) = run(app.queue("jobs").list())
        assert run(app.queue("jobs").remove(job.key, expected=item))
        assert states() == ["running", "failed"]
        assert "died" in desk.jobs()[job.key]["error"]
        (notice,) = run(app.queue("failures").list())  # nobody posts it here
        assert (notice.payload["job"]["key"], notice.payload["reason"]) == (
            job.key,
            "the processes that performed it died",
        )


def test_a_key_that_was_forgotten_is_not_known_again_when_a_run_before_that_is_found_lost(stub_forges: Forges) -> None:
    """As after the death of the process that replayed its dead letter."""
    project = stub_forges.gitlab.project()
    request = stub_forges.gitlab.merge_request(project)
    key = f"review:{project}:1:{request['sha']}"
    job = RepoJob(kind="review", forge="gitlab", key=key)
    with working(stub_forges, {"review": None, "command": None, "issue": None}) as desk:
        app, run = desk.operator.service.service.apps["repos"], desk.operator.service.run
        assert isinstance(app, ReposApp)
        desk.opened(desk.address, project, 1)
        (item,) = run(app.queue("jobs").list())
        assert run(app.queue("jobs").remove(key, expected=item))
        desk.operator.service.on_loop(lambda: app.work.records.begin(job, key, 1).enter("running"))
        desk.until_state(key, "running")
        assert desk.operator.post("/api/repos/forget", {"key": key, "reason": BECAUSE}).json() == {"forgotten": True}
        for _ in range(2):
            run(app.work.performer.fail_lost())
        assert desk.jobs()[key]["state"] == "failed"
        (job_of_it,) = desk.opened(desk.address, project, 1).json()["jobs"]
    assert job_of_it["outcome"] == "queued"


def test_a_job_is_recorded_before_it_does_anything_that_could_end_its_process(
    stub_forges: Forges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for jobs whose processes died finds only what was recorded."""
    monkeypatch.setattr("solely.service.application._FLUSH", 3600.0)
    project = stub_forges.gitlab.project()
    stub_forges.gitlab.merge_request(project)
    seen: list[str] = []
    with working(stub_forges) as desk:

        def look(asked: Asked, perform: Callable[[], Reply]) -> Reply:
            seen.extend(row["state"] for row in desk.jobs().values())
            return perform()

        stub_forges.meet("GET", "info/refs$", look)
        desk.opened(desk.address, project, 1)
        until(lambda: stub_forges.gitlab.comments(project, 1), SOON)
    assert seen == ["running"]


def test_a_dead_letter_that_is_replayed_is_not_taken_for_lost_and_fails_again_at_once(
    stub_forges: Forges, tmp_path: Path
) -> None:
    """It is in no queue while its command runs; and afterwards nothing tries it again."""
    project = stub_forges.gitlab.project()
    request = stub_forges.gitlab.merge_request(project)
    key = f"review:{project}:1:{request['sha']}"
    runs, go_on = tmp_path / "runs", tmp_path / "go_on"
    waits = f"while ! test -e {go_on}; do sleep 0.05; done"
    script = f"echo >> {runs}; test $(wc -l < {runs}) -eq 1 || {waits}; exit 3"
    with working(stub_forges, {"max_attempts": 1, "review": shell(script)}) as desk:
        app, run = desk.operator.service.service.apps["repos"], desk.operator.service.run
        assert isinstance(app, ReposApp)
        desk.opened(desk.address, project, 1)
        assert desk.until_over(key)["state"] == "failed"
        until(lambda: len(stub_forges.gitlab.comments(project, 1)) == 1, SOON)
        letters = desk.operator.ask("/v1/dead-letters", group="~repos/jobs")["letters"]
        body = {"group": "~repos/jobs", "id": letters[0]["id"]}
        answers: list[Any] = []
        replay = threading.Thread(target=lambda: answers.append(desk.operator.post("/v1/dead-letters/replay", body)))
        replay.start()
        try:
            desk.until_state(key, "running")
            for _ in range(3):
                run(app.work.performer.fail_lost())
            assert desk.jobs()[key]["state"] == "running"
        finally:
            go_on.touch()
            replay.join(SOON)
        assert answers[0].json() == {"outcome": "failed"}
        assert "exited with 3" in desk.until_over(key)["error"]


def test_a_command_that_fails_is_retried_and_then_a_dead_letter_with_its_log(
    stub_forges: Forges, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """People are notified, and again when the job has succeeded after all. The merge request gets one comment, though
    the answer to it was lost, which says how to replay the job and nothing that is not for everybody."""
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    request = gitlab.merge_request(project)
    key = f"review:{project}:1:{request['sha']}"
    repaired = tmp_path / "repaired"
    failing = shell(f"echo said; test -e {repaired} && exit; echo wrong >&2; exit 3")
    stub_forges.meet("POST", "/notes$", lost_answer)
    with working(stub_forges, {"max_attempts": 2, "review": failing}) as app:
        app.opened(app.address, project, 1)
        run = app.until_over(key)
        letters = app.operator.ask("/dead-letters", group="~repos/jobs", format="json")
        until(lambda: app.operator.service.run(queue_of(app, "failures").count()) == 0, SOON)
        (failure,) = gitlab.comments(project, 1)
        assert failure.startswith(
            f"The job `{key}` failed after 2 attempts, and is not tried again: its command failed."
        )
        assert f"`solely repos repeat '{key}' --reason '…'`" in failure
        assert not [text for text in ("wrong", "said", TOKEN, str(tmp_path)) if text in failure]
        assert f"fingerprint=repos/{key}" in capfd.readouterr().out
        repaired.touch()
        assert app.operator.post("/api/repos/repeat", {"key": key, "reason": BECAUSE}).json() == {"queued": True}
        assert app.until_over(f"{key}#2")["state"] == "done"
    assert "status=resolved" in capfd.readouterr().out
    assert (run["state"], run["attempts"], run["error"]) == ("failed", 2, "the command sh exited with 3")
    assert run["log"] == "said\n\n--- standard error\nwrong\n"
    assert len(letters["letters"]) == 1
    assert len(gitlab.comments(project, 1)) == 2
    assert gitlab.comments(project, 1)[1].startswith("said")


def test_of_two_comments_of_one_job_the_first_stays_and_quotes_of_people_too(stub_forges: Forges) -> None:
    """Whoever lost the lease may post a moment before it is stopped."""
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    request = gitlab.merge_request(project)

    def late(asked: Asked, perform: Callable[[], Reply]) -> Reply:
        gitlab.note(project, 1, f"{asked.json['body']} by another", author="solely")
        gitlab.note(project, 1, f"> {asked.json['body']}\n\nI agree", author="ann")
        return perform()

    stub_forges.meet("POST", "/notes$", late)
    with working(stub_forges) as app:
        app.opened(app.address, project, 1)
        assert app.until_over(f"review:{project}:1:{request['sha']}")["state"] == "done"
    assert [text.rpartition(" ")[2] for text in gitlab.comments(project, 1)] == ["another", "agree"]


def test_a_merge_request_whose_head_is_gone_is_superseded(stub_forges: Forges) -> None:
    """Its branch was deleted, and the forge has no ref of its head: that does not change by waiting."""
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    gitlab.merge_request(project)
    event = gitlab.merge_request_event(project, 1)
    gone = "f" * 40
    event["object_attributes"]["last_commit"]["id"] = gone
    gitlab.repositories[project].git("update-ref", "-d", "refs/merge-requests/1/head")
    with working(stub_forges) as app:
        app.send(app.address, "Merge Request Hook", event)
        run = app.until_over(f"review:{project}:1:{gone}")
    assert run["state"] == "superseded"


def test_a_job_that_failed_for_good_is_known_for_longer_than_one_that_is_done(stub_forges: Forges) -> None:
    """It stays failed until somebody replays it or forgets its key, however often it is reported."""
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    gitlab.merge_request(project)
    bad, good = (gitlab.note(project, 1, f"/copilot {text}") for text in ("fail", "work"))
    script = f"test $SOLELY_JOB_NOTE_ID != {bad['id']}; {COMMAND}"
    with working(stub_forges, {"command": shell(f"set -e; {script}"), "max_attempts": 1}) as app:
        for note in (bad, good):
            app.noted(app.address, project, 1, note)
        keys = {name: f"note:{project}:1:{note['id']}" for name, note in (("bad", bad), ("good", good))}
        states = {name: app.until_over(key)["state"] for name, key in keys.items()}
        assert states == {"bad": "failed", "good": "done"}
        rows = app.operator.ask("/v1/entries", prefix="mark/~repos/received/")["entries"]
        left = {row["key"].removeprefix("mark/~repos/received/"): row["left"] for row in rows}
        assert left[keys["good"]] <= DAY < 300 * DAY < left[keys["bad"]]
        assert app.noted(app.address, project, 1, bad).json()["jobs"][0]["outcome"] == "known"
        app.operator.post("/api/repos/forget", {"key": keys["bad"], "reason": BECAUSE})
        assert app.noted(app.address, project, 1, bad).json()["jobs"][0]["outcome"] == "queued"
