"""One comment per job, on each system that has comments."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from solely.apps.repos.forges.comments import CommentSite
from solely.apps.repos.forges.github.client import GitHubClient
from solely.apps.repos.forges.gitlab.client import GitLabClient
from solely.apps.repos.jobs.jira_comments import JiraComments
from solely.apps.repos.jobs.postings import Posting
from solely.apps.repos.model import RepoJob
from solely.kit import Caller
from tests.apps.repos.forge_server import TOKEN, Forges, refusal

MARKER = "<!-- solely 0123 -->"
SITES = ("gitlab", "github", "jira cloud", "jira data_center")


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    async with Caller("test") as it:
        yield it


def site_of(name: str, stub: Forges, caller: Caller) -> CommentSite:
    """The comments on something new."""
    if name == "gitlab":
        project = stub.gitlab.project()
        stub.gitlab.merge_request(project)
        job = RepoJob(kind="review", forge=name, key="k", project_id=project, mr_iid=1)
        return GitLabClient(caller, stub.url, TOKEN).comments(job)
    if name == "github":
        path = stub.github.repository()["full_name"]
        stub.github.pull_request(path)
        job = RepoJob(kind="review", forge=name, key="k", project_path=path, mr_iid=1)
        return GitHubClient(caller, f"{stub.url}/api/v3", TOKEN).comments(job)
    stub.jira.issue("PROJ-1")
    kind = "cloud" if name == "jira cloud" else "data_center"
    return JiraComments(caller, stub.url, kind, "", TOKEN).of("PROJ-1")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SITES)
async def test_of_several_comments_with_the_marker_the_oldest_stays(
    name: str, stub_forges: Forges, caller: Caller
) -> None:
    """Also if the answer to one of them was lost; and others are not touched."""
    site = site_of(name, stub_forges, caller)
    posting = Posting(site, MARKER)
    assert not await posting.is_posted()
    await site.add("something else")
    await posting.post("one")
    (first,) = await site.find(MARKER)
    assert first.author == await site.user()
    await site.add(f"two {MARKER}")
    await posting.post("three")
    assert await site.find(MARKER) == [first]
    assert len(await site.find("something else")) == 1


async def test_comments_stay_if_the_forge_does_not_say_which_are_ours(stub_forges: Forges, caller: Caller) -> None:
    """As for the token of a GitHub App: nothing of somebody else is removed."""
    site = site_of("github", stub_forges, caller)
    stub_forges.meet("GET", "/user$", refusal(403))
    for text in ("one", "two"):
        await site.add(f"{text} {MARKER}")
    with capture_logs() as logs:
        assert await Posting(site, MARKER).is_posted()
    assert len(await site.find(MARKER)) == 2
    assert [each["event"] for each in logs] == ["duplicate_comment_left"]
