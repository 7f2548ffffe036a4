"""Jobs on real git repositories over HTTP: what each kind leaves behind, and that a repeat finds it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from solely import AsyncQueue
from solely.apps.repos.app import ReposApp
from solely.apps.repos.jobs.markers import marker_of
from solely.apps.repos.model import RepoJob
from tests.apps.operator import BECAUSE
from tests.apps.repos.forge_server import TOKEN, Asked, Forges, Reply, lost_answer, refusal
from tests.apps.repos.pods import SOON, Working, shell, working
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
