"""The Jira poller, on Cloud and Data Center: minutes, time zones, pages, and issues that move."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from solely.apps.repos.jira import JiraListing, text_of
from solely.apps.repos.settings import JiraSettings
from solely.kit import Caller, CallFailed
from tests.apps.repos.forge_server import TOKEN, Asked, Forges, Reply
from tests.apps.repos.receiving import SELDOM, Receiving, receiving

KINDS = ("cloud", "data_center")
TARGET = {"git_http_url": "https://gitlab.example.org/g/p.git", "project_id": 42, "project_path": "group/project"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def polled(stub_forges: Forges, kind: str) -> Iterator[Receiving]:
    login = {"user": "ann@example.org"} if kind == "cloud" else {}
    settings = {"url": stub_forges.url, "kind": kind, "token": TOKEN, **login, "poll_every": SELDOM}
    settings |= {"jql": 'project in ("PROJ") AND labels = "agent"', "projects": {"PROJ": TARGET}}
    with receiving({"jira": settings}) as it:
        yield it


def add(forges: Forges, *keys: str, at: datetime | None = None, **fields: Any) -> None:
    for key in keys:
        forges.jira.issue(key, updated=at, labels=["agent"], **fields)


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/Los_Angeles", "Pacific/Kiritimati"])
def test_two_pages_of_one_minute_are_found_for_a_user_in_another_time_zone(
    stub_forges: Forges, polled: Receiving, zone: str
) -> None:
    jira = stub_forges.jira
    jira.time_zone, jira.page_size = zone, 3
    reached = polled.poll()
    minute = (reached + timedelta(minutes=30)).replace(second=0, microsecond=0)
    for number in range(5):
        add(stub_forges, f"PROJ-{number + 1}", at=minute + timedelta(seconds=10 * number))
    stub_forges.ahead = minute + timedelta(seconds=25) - datetime.now(UTC)  # the poll begins in that minute
    polled.poll()
    assert polled.keys() == [f"issue:PROJ-{number + 1}" for number in range(5)]
    add(stub_forges, "PROJ-6", at=minute + timedelta(seconds=59))
    polled.poll()
    assert len(polled.keys()) == 6


def test_an_issue_becomes_a_job_in_the_repository_of_its_project(stub_forges: Forges, polled: Receiving) -> None:
    polled.poll()
    add(stub_forges, "PROJ-12", summary="Do it", reporter={"displayName": "Ann"})
    add(stub_forges, "OTHER-1")
    polled.poll()
    (job,) = polled.jobs()
    assert (job.kind, job.key, job.issue_key, job.title) == ("issue", "issue:PROJ-12", "PROJ-12", "Do it")
    assert (job.source_branch, job.target_branch) == ("agent/proj-12", "main")
    assert (job.git_http_url, job.project_id, job.author) == (TARGET["git_http_url"], 42, "Ann")


def test_an_issue_that_changes_again_is_one_job_also_after_it_is_done(stub_forges: Forges, polled: Receiving) -> None:
    polled.poll()
    add(stub_forges, "PROJ-1")
    polled.poll()
    polled.finish("issue:PROJ-1")
    stub_forges.ahead = timedelta(minutes=30)
    add(stub_forges, "PROJ-1", at=stub_forges.now())
    polled.poll()
    assert polled.jobs() == []


def test_what_was_there_before_the_first_poll_is_not_worked_on(stub_forges: Forges, polled: Receiving) -> None:
    add(stub_forges, "PROJ-1", at=datetime.now(UTC) - timedelta(hours=1))
    polled.poll()
    polled.poll()
    assert polled.jobs() == []


@pytest.mark.parametrize("kind", ["data_center"])
def test_an_issue_that_leaves_the_query_between_two_pages_hides_no_other(
    stub_forges: Forges, polled: Receiving
) -> None:
    """Data Center pages by offset: one that leaves moves all others to an earlier page. Cloud's token is a position in
    what was found at the beginning."""
    stub_forges.jira.page_size = 3
    polled.poll()
    for number in range(7):
        add(stub_forges, f"PROJ-{number + 1}", at=stub_forges.now() + timedelta(seconds=number))

    def leave(asked: Asked, perform: Any) -> Reply:
        reply: Reply = perform()
        stub_forges.jira.issues["PROJ-1"]["fields"]["labels"] = []
        return reply

    stub_forges.meet("GET", "/search$", leave)
    polled.poll()
    assert polled.keys() == [f"issue:PROJ-{number + 1}" for number in range(7)]


@pytest.mark.parametrize("kind", ["data_center"])
def test_a_listing_that_never_rests_fails_and_the_watermark_stays(stub_forges: Forges, polled: Receiving) -> None:
    stub_forges.jira.page_size = 2
    reached = polled.poll()
    for number in range(30):
        add(stub_forges, f"PROJ-{number + 1}", at=stub_forges.now() + timedelta(seconds=number))

    def leave(asked: Asked, perform: Any) -> Reply:
        reply: Reply = perform()
        issues = stub_forges.jira.issues
        issues.pop(next(iter(issues)), None)
        return reply

    with stub_forges.meeting_all("GET", "/search", leave), pytest.raises(CallFailed, match="keep moving"):
        polled.poll()
    assert [each.value for each in polled.watermarks()] == [reached]


def test_an_issue_that_cannot_be_read_is_parked_and_stops_nothing(stub_forges: Forges, polled: Receiving) -> None:
    polled.poll()
    add(stub_forges, "PROJ-1", summary=["not", "a", "text"])
    add(stub_forges, "PROJ-2")
    polled.poll()
    assert polled.keys() == ["issue:PROJ-2"]
    assert [each["item"]["key"] for each in polled.letters()] == ["PROJ-1"]


@pytest.mark.parametrize("zone", ["Pacific/Pago_Pago", "UTC", "Pacific/Kiritimati"])
@pytest.mark.parametrize("named", ["Mars/Olympus", "", "America"])
@pytest.mark.parametrize("kind", ["cloud"])
def test_an_unknown_time_zone_hides_nothing(stub_forges: Forges, polled: Receiving, zone: str, named: str) -> None:
    """A machine without the files of time zones knows none."""
    stub_forges.jira.time_zone = zone
    polled.poll()
    add(stub_forges, "PROJ-1")
    stub_forges.meet("GET", "/myself$", lambda asked, perform: Reply(200, {"timeZone": named}))
    polled.poll()
    assert polled.keys() == ["issue:PROJ-1"]


def test_the_query_of_a_repeated_hour_begins_with_the_first_one() -> None:
    listing = JiraListing(Caller("jira"), JiraSettings(url="https://jira.example.org"))
    listing._zone = ZoneInfo("Europe/Berlin")
    second = datetime(2026, 10, 25, 1, 30, 45, tzinfo=UTC)  # 02:30 local time, for the second time
    assert 'updated >= "2026-10-25 02:30"' in listing._jql(second)
    assert second.astimezone(ZoneInfo("Europe/Berlin")).replace(fold=0) <= second.astimezone(ZoneInfo("Europe/Berlin"))


def test_the_description_of_cloud_is_a_document_and_of_data_center_a_text() -> None:
    def paragraph(*texts: str) -> dict[str, Any]:
        return {"type": "paragraph", "content": [{"type": "text", "text": text} for text in texts]}

    items = {"type": "bulletList", "content": [{"type": "listItem", "content": [paragraph(each)]} for each in "ab"]}
    document = {"type": "doc", "version": 1, "content": [paragraph("Do ", "it"), {"type": "rule"}, items]}
    assert text_of(document) == "Do it\na\nb"
    assert (text_of("plain"), text_of(None), text_of({})) == ("plain", "", "")
