"""The stub forges behave as the real ones where the tests of the application rely on it."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import pytest

from tests.apps.repos.forge_server import GIT_USER, TOKEN, Forges, lost_answer, refusal
from tests.apps.repos.git_server import PLAIN

BEARER = {"authorization": f"Bearer {TOKEN}"}


def get(forges: Forges, path: str, **query: Any) -> httpx2.Response:
    return httpx2.get(forges.url + path, params=query, headers=BEARER, timeout=20)


def git(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **PLAIN}
    given = ("git", "-c", "user.name=Ann", "-c", "user.email=ann@example.org", *arguments)
    return subprocess.run(given, cwd=cwd, capture_output=True, env=environment, check=False)


def test_a_push_over_http_arrives_and_one_that_is_no_fast_forward_is_refused(
    stub_forges: Forges, tmp_path: Path
) -> None:
    project = stub_forges.gitlab.project()
    url = stub_forges.gitlab.projects[project]["http_url_to_repo"].replace("://", f"://{GIT_USER}:{TOKEN}@")
    for name in ("first", "second"):
        assert git("clone", "--quiet", url, name, cwd=tmp_path).returncode == 0
        (tmp_path / name / "file.txt").write_text(name)
        assert git("add", ".", cwd=tmp_path / name).returncode == 0
        assert git("commit", "--quiet", "-m", name, cwd=tmp_path / name).returncode == 0
    assert git("push", "--quiet", "origin", "main", cwd=tmp_path / "first").returncode == 0
    refused = git("push", "--quiet", "--force", "origin", "main", cwd=tmp_path / "second")
    assert (refused.returncode, b"non-fast-forward" in refused.stderr) == (1, True)
    assert stub_forges.gitlab.repositories[project].file("main", "file.txt") == "first"
    anonymous = git("ls-remote", stub_forges.gitlab.projects[project]["http_url_to_repo"], cwd=tmp_path)
    assert anonymous.returncode != 0


def test_gitlab_pages_filters_and_touches_a_merge_request_at_most_once_a_minute(stub_forges: Forges) -> None:
    gitlab = stub_forges.gitlab
    project = gitlab.project()
    first, second = (gitlab.merge_request(project, branch) for branch in ("one", "two"))
    path = f"/api/v4/projects/{project}/merge_requests"
    page = get(stub_forges, path, per_page=1, order_by="updated_at", sort="asc", scope="all")
    assert [row["iid"] for row in page.json()] == [1]
    assert [row["iid"] for row in httpx2.get(page.links["next"]["url"], headers=BEARER).json()] == [2]
    stub_forges.ahead = timedelta(seconds=20)
    gitlab.note(project, 1, "early")
    assert first["updated_at"] == first["created_at"]
    stub_forges.ahead = timedelta(seconds=90)
    gitlab.note(project, 1, "late")
    assert [row["iid"] for row in get(stub_forges, path, updated_after=first["updated_at"]).json()] == [1]
    assert [row["body"] for row in get(stub_forges, f"{path}/1/notes", sort="desc").json()] == ["late", "early"]
    assert get(stub_forges, f"/api/v4/projects/group%2Fproject/merge_requests/{second['iid']}").json()["iid"] == 2
    assert httpx2.get(stub_forges.url + path).status_code == 401


def test_jira_compares_minutes_in_the_users_time_zone(stub_forges: Forges) -> None:
    jira = stub_forges.jira
    jira.time_zone = "Asia/Kathmandu"
    moment = datetime(2026, 3, 1, 12, 0, 30, tzinfo=ZoneInfo("UTC"))
    for key in ("PROJ-1", "PROJ-2", "OTHER-1"):
        jira.issue(key, updated=moment)
    jql = 'project in ("PROJ") AND updated >= "2026-03-01 17:45" ORDER BY updated ASC'
    page = get(stub_forges, "/rest/api/3/search/jql", jql=jql, maxResults=1).json()
    assert [row["key"] for row in page["issues"]] == ["PROJ-1"]
    page = get(stub_forges, "/rest/api/3/search/jql", jql=jql, maxResults=1, nextPageToken=page["nextPageToken"]).json()
    assert ([row["key"] for row in page["issues"]], page["isLast"]) == (["PROJ-2"], True)
    later = jql.replace("17:45", "17:46")
    assert get(stub_forges, "/rest/api/2/search", jql=later).json()["total"] == 0


def test_a_meeting_refuses_a_request_or_loses_its_answer(stub_forges: Forges) -> None:
    stub_forges.github.repository()
    number = stub_forges.github.pull_request("octo/repo")["number"]
    path = f"{stub_forges.url}/api/v3/repos/octo/repo/issues/{number}/comments"
    stub_forges.meet("POST", "/comments$", refusal(429, retry_after=7))
    stub_forges.meet("POST", "/comments$", lost_answer)
    limited = httpx2.post(path, json={"body": "one"}, headers=BEARER)
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "7")
    with pytest.raises(httpx2.TransportError):
        httpx2.post(path, json={"body": "two"}, headers=BEARER)
    assert stub_forges.github.comments("octo/repo", number) == ["two"]
