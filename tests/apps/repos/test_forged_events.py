"""A sender of events that knows the secret of one hook: it makes jobs of the projects of that hook, and of no other."""

from __future__ import annotations

import copy
from typing import Any

import httpx2
import pytest

from tests.apps.repos.forge_server import TOKEN, Forges, refusal
from tests.apps.repos.pods import HOOK, SOON, Working, working
from tests.apps.repos.receiving import receiving, settings_of
from tests.apps.repos.test_job_desk import deliver
from tests.service.serving import until

MINE, THEIRS = "group/mine", "other/theirs"


def bound(*projects: int | str) -> dict[str, Any]:
    return {"secret": HOOK, "projects": list(projects)}


def hooked(stub: Forges, *secrets: object) -> dict[str, Any]:
    """Settings in which these are the secrets of both forges."""
    gitlab = {"url": stub.url, "token": TOKEN, "webhook_tokens": list(secrets)}
    return {"gitlab": gitlab, "github": {"url": f"{stub.url}/api/v3", "token": TOKEN, "webhook_secrets": list(secrets)}}


@pytest.mark.parametrize("projects", [["{id}"], [MINE], ["group/"], ["GROUP/Mine", "group/more"]])
def test_a_secret_that_is_bound_to_projects_speaks_for_no_other(stub_forges: Forges, projects: list[str]) -> None:
    gitlab, github = stub_forges.gitlab, stub_forges.github
    mine, theirs = gitlab.project(MINE), gitlab.project(THEIRS)
    for project in (mine, theirs):
        gitlab.merge_request(project)
    names = [github.repository(f"{name}-hub")["full_name"] for name in (MINE, THEIRS)]
    number = {name: github.pull_request(name)["number"] for name in names}
    wanted = bound(*[mine if each == "{id}" else each for each in projects], "group/mine-hub")
    with working(stub_forges, **hooked(stub_forges, wanted)) as app:
        answer = app.opened(app.address, theirs, 1)
        assert (answer.status_code, answer.json()["jobs"]) == (200, [])
        assert THEIRS in answer.json()["ignored"]
        assert app.opened(app.address, mine, 1).status_code == 202
        event = github.pull_request_event(names[1], number[names[1]])
        assert "does not speak for" in deliver(app, "pull_request", event).json()["ignored"]
        assert deliver(app, "pull_request", github.pull_request_event(names[0], number[names[0]])).status_code == 202


def forged(app: Working, event: dict[str, Any], key: str) -> dict[str, Any]:
    assert app.send(app.address, "Note Hook", event).status_code == 202
    return app.until_over(key)


def test_repository_and_branch_of_a_job_are_what_the_forge_says_and_not_the_event(stub_forges: Forges) -> None:
    """An event of one project that names the repository, the branch or the fork of another."""
    gitlab = stub_forges.gitlab
    mine, theirs = gitlab.project(MINE), gitlab.project(THEIRS)
    gitlab.merge_request(mine)
    gitlab.merge_request(theirs)
    before = gitlab.repositories[theirs].tip("feature"), gitlab.repositories[mine].tip("main")
    url = gitlab.projects[theirs]["git_http_url"]
    with working(stub_forges) as app:
        for name in ("url", "fork", "branch"):
            note = gitlab.note(mine, 1, "/copilot work")
            event = copy.deepcopy(gitlab.note_event(mine, 1, note))
            if name == "url":
                event["project"]["git_http_url"] = url
            elif name == "fork":
                event["merge_request"] |= {"source_project_id": theirs, "source": {"id": theirs, "git_http_url": url}}
            else:
                event["merge_request"]["source_branch"] = "main"
            run = forged(app, event, f"note:{mine}:1:{note['id']}")
            assert (name, run["state"], run["error"]) == (name, "done", "")
    assert (gitlab.repositories[theirs].tip("feature"), gitlab.repositories[mine].tip("main")) == before
    assert stub_forges.count("GET", "theirs.git/") == 0


def test_an_event_with_the_id_of_one_project_and_the_path_of_another_does_nothing(stub_forges: Forges) -> None:
    """Jobs call GitLab by the id and GitHub by the path. Here the secret speaks for both projects."""
    gitlab, github = stub_forges.gitlab, stub_forges.github
    mine, theirs = gitlab.project(MINE), gitlab.project(THEIRS)
    gitlab.merge_request(theirs)
    note = gitlab.note(theirs, 1, "/copilot work")
    event = copy.deepcopy(gitlab.note_event(theirs, 1, note))
    event["project"] |= {"path_with_namespace": MINE, "git_http_url": gitlab.projects[mine]["git_http_url"]}
    hub, other = (github.repository(name) for name in ("group/hub", "other/hub"))
    number = github.pull_request("other/hub")["number"]
    pull = copy.deepcopy(github.pull_request_event("other/hub", number))
    pull["repository"] |= {"id": hub["id"]}
    sha = pull["pull_request"]["head"]["sha"]
    with working(stub_forges, **hooked(stub_forges, HOOK)) as app:
        run = forged(app, event, f"note:{theirs}:1:{note['id']}")
        assert run["state"] == "failed"
        assert all(name in run["error"] for name in (MINE, THEIRS))
        assert deliver(app, "pull_request", pull).status_code == 202
        run = app.until_over(f"github:review:{hub['id']}:{number}:{sha}")
        assert run["state"] == "failed"
        assert str(other["id"]) in run["error"]
    assert gitlab.comments(theirs, 1) == ["/copilot work"]
    assert github.comments("other/hub", number) == []
    assert stub_forges.count("GET", r"\.git/info/refs$") == 0


def test_an_unreadable_event_is_replayed_within_the_projects_of_its_secret(stub_forges: Forges) -> None:
    with receiving(settings_of(gitlab={"webhook_tokens": [bound(9)]})) as app:
        answer = app.gitlab({"object_kind": "note", "project": 7}, token=HOOK)
        assert (answer.status_code, answer.json()["event"]) == (200, "unreadable")
        (letter,) = app.letters()
        assert letter["projects"] == [[9]]
        letter["body"] = (
            '{"object_kind": "merge_request", "project": {"id": 8, "path_with_namespace": "other/theirs"}, '
        )
        letter["body"] += '"object_attributes": {"iid": 1, "action": "open", "sha": "abc"}}'
        app.service.run(app.app.webhooks["gitlab"].replay(letter))
        assert app.keys() == []
        app.service.run(app.app.webhooks["gitlab"].replay({**letter, "projects": [[8]]}))
        assert app.keys() == ["review:8:1:abc"]


def test_an_event_of_one_project_does_not_use_up_the_job_of_another(stub_forges: Forges) -> None:
    """Keys have ids, which anybody can guess: the job would be known when the forge itself reports it."""
    gitlab = stub_forges.gitlab
    gitlab.project(MINE)
    theirs = gitlab.project(THEIRS)
    gitlab.merge_request(theirs)
    genuine = gitlab.merge_request_event(theirs, 1)
    event = copy.deepcopy(genuine)
    event["project"]["path_with_namespace"] = MINE
    other = {"secret": "of the other hook", "projects": [THEIRS]}
    with working(stub_forges, **hooked(stub_forges, bound(MINE), other)) as app:
        answer = app.send(app.address, "Merge Request Hook", event)
        assert (answer.status_code, answer.json()["jobs"]) == (200, [])
        headers = {"x-gitlab-token": "of the other hook", "x-gitlab-event": "Merge Request Hook"}
        for status in (202, 200):
            answer = httpx2.post(f"{app.address}/api/repos/gitlab", json=genuine, headers=headers, timeout=SOON)
            assert answer.status_code == status
            run = app.until_over(answer.json()["jobs"][0]["key"])
            assert run["state"] == "done"
    assert stub_forges.count("GET", f"projects/{theirs}$") == 3  # for the forgery, for the first report, and by the job


def test_an_event_that_nobody_could_check_is_forgotten_once_the_forge_has_told(stub_forges: Forges) -> None:
    """The forge was away when it came. What it names is another project, whose own events are still accepted."""
    gitlab = stub_forges.gitlab
    gitlab.project(MINE)
    theirs = gitlab.project(THEIRS)
    gitlab.merge_request(theirs)
    genuine = gitlab.merge_request_event(theirs, 1)
    event = copy.deepcopy(genuine)
    event["project"]["path_with_namespace"] = MINE
    with working(stub_forges, **hooked(stub_forges, {"secret": HOOK, "projects": [MINE, THEIRS]})) as app:
        with stub_forges.meeting_all("GET", f"projects/{theirs}$", refusal(503)):
            answer = app.send(app.address, "Merge Request Hook", event)
            assert answer.status_code == 202
        key = answer.json()["jobs"][0]["key"]
        assert app.until_over(key)["state"] == "failed"
        until(lambda: app.send(app.address, "Merge Request Hook", genuine).status_code == 202, SOON)
        until(lambda: app.jobs()[key]["state"] == "done", SOON)


@pytest.mark.parametrize("name", ["group/../other/hub", "group/../../user", "group/hub?x", "group/hub#", "..", "a/.."])
def test_the_name_of_a_repository_leads_nowhere_else(stub_forges: Forges, name: str) -> None:
    """It is a part of the addresses that are called with our token."""
    github = stub_forges.github
    github.repository("other/hub")
    number = github.pull_request("other/hub")["number"]
    event = copy.deepcopy(github.pull_request_event("other/hub", number))
    event["repository"]["full_name"] = name
    with working(stub_forges, **hooked(stub_forges, bound("group/", "../", "..", "a/"))) as app:
        answer = deliver(app, "pull_request", event)
        assert (answer.status_code, answer.json()["event"]) == (200, "unreadable")
        assert [each.path for each in stub_forges.asked] == []
