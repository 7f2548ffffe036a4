"""Merge requests from forks: read in the project that they go to, and written to only if the settings say so."""

from __future__ import annotations

from tests.apps.repos.forge_server import Forges, refusal
from tests.apps.repos.pods import SOON, working
from tests.apps.repos.test_job_desk import deliver
from tests.service.serving import until


def test_a_merge_request_from_a_fork_is_reviewed_without_the_fork_and_not_written_to(stub_forges: Forges) -> None:
    """The fork is not ours to read: its repository is never asked. GitLab and GitHub keep the head in the target."""
    gitlab, github = stub_forges.gitlab, stub_forges.github
    project = gitlab.project()
    fork = gitlab.fork(project)
    sha = gitlab.merge_request(project, "main", fork=fork)["sha"] or ""
    assert sha == gitlab.repositories[project].tip("main")  # a branch of the same name as one of the project
    sha = gitlab.repositories[fork].commit("feature", {"feature.txt": "of a fork\n"}, base="main")
    gitlab.merge_request(project, "feature", fork=fork)
    note = gitlab.note(project, 2, "/copilot work")
    name, copy = (github.repository(each)["full_name"] for each in ("octo/repo", "ann/repo"))
    number = github.pull_request(name, fork=copy)["number"]
    with stub_forges.meeting_all("GET", "/ann/.*info/refs$", refusal(403)), working(stub_forges) as app:
        app.opened(app.address, project, 2)
        deliver(app, "pull_request", github.pull_request_event(name, number))
        run = app.until_over(f"review:{project}:2:{sha}")
        assert (run["state"], run["log"]) == ("done", f"of a fork\nreviewed {sha}\n")
        until(lambda: any("a feature\nreviewed" in each for each in github.comments(name, number)), SOON)
        app.noted(app.address, project, 2, note)
        run = app.until_over(f"note:{project}:2:{note['id']}")
    assert run["state"] == "ignored"
    assert "comes from a fork" in gitlab.comments(project, 2)[-1]
    assert stub_forges.count("GET", "/ann/") == 0
    assert stub_forges.count("POST", "git-receive-pack$") == 0


def test_a_command_pushes_to_the_fork_if_that_is_set_and_never_to_a_branch_of_that_name_in_the_target(
    stub_forges: Forges,
) -> None:
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    fork = gitlab.fork(project)
    gitlab.repositories[fork].commit("main", {"feature.txt": "of a fork\n"})
    request = gitlab.merge_request(project, "main", fork=fork)
    first, second = (gitlab.note(project, 1, f"/copilot {text}") for text in ("work", "the fork is gone"))
    before = gitlab.repositories[project].tip("main")
    with working(stub_forges, {"push_to_forks": True, "max_attempts": 1}) as app:
        app.noted(app.address, project, 1, first)
        assert app.until_over(f"note:{project}:1:{first['id']}")["state"] == "done"
        assert gitlab.repositories[fork].file("main", "work.txt") == str(first["id"])
        request["source_project_id"] = None
        app.noted(app.address, project, 1, second)
        run = app.until_over(f"note:{project}:1:{second['id']}")
    assert (run["state"], "the fork with the branch is gone" in run["error"]) == ("failed", True)
    assert gitlab.repositories[project].tip("main") == before
