"""Pollers: nothing is lost or repeated, whatever moves, fails or restarts between and during polls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import msgspec
import pytest

from solely import InvalidInput
from solely.apps.repos.forges.gitlab import listing
from solely.apps.repos.polling import UNKNOWN_RESET, pause_after
from solely.apps.repos.settings import GitLabSettings
from solely.kit import Announcement, CallFailed, Response, Timings
from tests.apps.repos.forge_server import Asked, Forges, Reply, dropped, refusal
from tests.apps.repos.receiving import Receiving, receiving, settings_of
from tests.conftest import PATIENT
from tests.service.serving import until

MERGE_REQUESTS = "/merge_requests$"


@pytest.fixture
def project(stub_forges: Forges) -> int:
    return stub_forges.gitlab.project()


@pytest.fixture
def polled(stub_forges: Forges, project: int) -> Iterator[Receiving]:
    with receiving(settings_of(stub_forges, (project,))) as it:
        yield it


def test_the_first_poll_begins_now_and_works_on_nothing_that_was_there(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    stub_forges.gitlab.merge_request(project, "old")
    stub_forges.ahead = timedelta(seconds=5)  # the time of an answer has whole seconds
    reached = polled.poll()
    assert polled.keys() == []
    polled.poll()
    assert polled.keys() == [], "although the poll looks back to it"
    assert abs(reached - datetime.now(UTC)) < timedelta(seconds=PATIENT)
    stub_forges.ahead = timedelta(minutes=10)
    request = stub_forges.gitlab.merge_request(project, "new")
    assert polled.poll() > reached
    (job,) = polled.jobs()
    assert (job.key, job.received_by) == (f"review:{project}:2:{request['sha']}", "poller")
    assert job.git_http_url == stub_forges.gitlab.projects[project]["http_url_to_repo"]
    assert (job.source_branch, job.target_branch, job.author, job.title) == ("new", "main", "ann", "A feature")


def test_a_watermark_that_was_rewound_is_worked_on_from_there(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    stub_forges.gitlab.merge_request(project, "old")
    stub_forges.ahead = timedelta(hours=1)
    reached = polled.poll()
    polled.poll()
    assert polled.keys() == []

    def rewind(source: str, to: str) -> Any:
        body = {"source": source, "to": to, "reason": "the old ones are wanted, too"}
        return polled.operator.post("/api/repos/rewind", body).json()

    earlier = (reached - timedelta(hours=2)).isoformat()
    assert rewind("gitlab:unknown", earlier) == {"rewound": False}
    assert rewind(f"gitlab:{project}", (reached + timedelta(hours=2)).isoformat()) == {"rewound": False}
    assert rewind(f"gitlab:{project}", "2026-01-31T12:00:00")["status"] == 400
    assert rewind(f"gitlab:{project}", earlier) == {"rewound": True}
    polled.poll()
    assert len(polled.keys()) == 1


def test_the_watermark_is_the_servers_time_at_the_start_of_the_poll(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    stub_forges.ahead = timedelta(hours=3)
    polled.poll()
    stub_forges.ahead = timedelta(hours=5)
    before = stub_forges.now()
    stub_forges.meet("GET", MERGE_REQUESTS, _later(stub_forges, timedelta(hours=6)))
    reached = polled.poll()
    assert before - timedelta(seconds=2) <= reached < before + timedelta(minutes=30)
    (mark,) = polled.watermarks()
    assert (mark.key, mark.value) == (f"~repos/poll/gitlab:{project}", reached)


def _later(forges: Forges, ahead: timedelta) -> Any:
    def meeting(asked: Asked, perform: Any) -> Reply:
        forges.ahead = ahead
        reply: Reply = perform()
        return reply

    return meeting


def test_merge_requests_are_listed_with_scope_all_since_the_watermark_less_the_lookback(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    reached = polled.poll()
    polled.poll()
    asked = [each for each in stub_forges.asked if re.search(MERGE_REQUESTS, each.path)]
    assert asked[-1].query["scope"] == "all"
    since = datetime.fromisoformat(asked[-1].query["updated_after"])
    assert since == reached - timedelta(seconds=120)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", asked[-1].query["updated_after"])
    with pytest.raises(msgspec.ValidationError, match=">= 60"):
        msgspec.convert({"lookback": 59}, GitLabSettings)


def test_a_note_20_seconds_after_a_merge_request_was_touched_is_found(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    """GitLab does not touch a merge request again within a minute, so that the note does not change its time."""
    gitlab = stub_forges.gitlab
    polled.poll()
    stub_forges.ahead = timedelta(minutes=10)
    request = gitlab.merge_request(project)
    stub_forges.ahead += timedelta(seconds=10)
    polled.poll()
    stub_forges.ahead += timedelta(seconds=10)
    note = gitlab.note(project, 1, "/copilot go")
    assert request["updated_at"] == request["created_at"]
    for seconds in (5, 35, 20):
        stub_forges.ahead += timedelta(seconds=seconds)
        polled.poll()
    assert polled.keys() == [f"note:{project}:1:{note['id']}", f"review:{project}:1:{request['sha']}"]


def test_a_late_poll_finds_notes_of_the_whole_time(stub_forges: Forges, project: int, polled: Receiving) -> None:
    gitlab, wanted = stub_forges.gitlab, list[str]()
    gitlab.merge_request(project)
    polled.poll()
    for minutes in range(5, 305, 1):
        stub_forges.ahead = timedelta(minutes=minutes)
        note = gitlab.note(project, 1, "/copilot go" if minutes % 10 == 0 else "well done")
        wanted += [f"note:{project}:1:{note['id']}"] if minutes % 10 == 0 else []
    gitlab.note(project, 1, "/copilot by the system")["system"] = True
    polled.poll()
    assert [key for key in polled.keys() if key.startswith("note:")] == sorted(wanted)  # noqa: SIM118
    pages = stub_forges.count("GET", "/notes$")
    assert pages == 4, "300 notes are three pages and the rest, and the poll goes back no further"
    polled.poll()
    assert stub_forges.count("GET", "/notes$") == pages + 1


def test_the_webhook_and_the_poll_of_one_event_are_one_job(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    gitlab = stub_forges.gitlab
    polled.poll()
    gitlab.merge_request(project)
    note = gitlab.note(project, 1, "/copilot go")
    assert polled.gitlab(gitlab.merge_request_event(project, 1)).status_code == 202
    polled.poll()
    assert polled.gitlab(gitlab.note_event(project, 1, note)).status_code == 200
    assert len(polled.jobs()) == 2
    assert {each.kind: each.received_by for each in polled.jobs()} == {"review": "webhook", "command": "poller"}


def test_a_restart_between_polls_loses_and_repeats_nothing(stub_forges: Forges, project: int, tmp_path: Path) -> None:
    gitlab, url = stub_forges.gitlab, f"sqlite:///{tmp_path / 'store.db'}"
    settings = settings_of(stub_forges, (project,))
    with receiving(settings, url=url) as it:
        it.poll()
        stub_forges.ahead = timedelta(minutes=10)
        first = gitlab.merge_request(project, "first")
        it.poll()
        it.finish(f"review:{project}:1:{first['sha']}")
        stub_forges.ahead = timedelta(minutes=11)
    second = gitlab.merge_request(project, "second")
    stub_forges.ahead = timedelta(hours=8)
    with receiving(settings, url=url) as it:
        it.poll()
        assert it.keys() == [f"review:{project}:2:{second['sha']}"]


def test_a_poll_that_fails_does_not_advance_and_its_repeat_finds_all(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    gitlab = stub_forges.gitlab
    reached = polled.poll()
    for branch in ("one", "two"):
        gitlab.merge_request(project, branch)
    stub_forges.meet("GET", "/merge_requests/2/notes$", refusal(403))
    with pytest.raises(CallFailed, match="403"):
        polled.poll()
    assert [each.value for each in polled.watermarks()] == [reached]
    assert polled.poll() >= reached
    assert len(polled.keys()) == 2


def test_one_merge_request_whose_notes_cannot_be_listed_hides_no_other(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    gitlab = stub_forges.gitlab
    reached = polled.poll()
    for branch in ("bad", "gone", "good"):
        gitlab.merge_request(project, branch)
    note = gitlab.note(project, 3, "/copilot go")
    with (
        stub_forges.meeting_all("GET", "/merge_requests/1/notes$", refusal(500)),
        stub_forges.meeting_all("GET", "/merge_requests/2/notes$", refusal(404)),
        pytest.raises(CallFailed, match="500"),
    ):
        polled.poll()
    assert len(polled.keys()) == 4, "three reviews, and the command"
    assert f"note:{project}:3:{note['id']}" in polled.keys()  # noqa: SIM118
    assert [each.value for each in polled.watermarks()] == [reached]
    assert polled.poll() >= reached


def test_an_outage_in_the_middle_of_a_poll_ends_it(stub_forges: Forges, project: int, polled: Receiving) -> None:
    polled.poll()
    for branch in ("one", "two"):
        stub_forges.gitlab.merge_request(project, branch)
    with stub_forges.meeting_all("GET", "/notes$", refusal(429, retry_after=60)), pytest.raises(CallFailed) as failed:
        polled.poll()
    assert failed.value.retry_after == 60
    assert stub_forges.count("GET", "/notes$") == 1, "nobody is called after that"


def test_pages_survive_merge_requests_that_move_while_they_are_read(
    stub_forges: Forges, project: int, polled: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pages one that was read is updated and moves to the end: with offsets, the next would be missed."""
    monkeypatch.setattr(listing, "PER_PAGE", 3)
    gitlab = stub_forges.gitlab
    polled.poll()
    for number in range(8):
        stub_forges.ahead = timedelta(seconds=number)
        gitlab.merge_request(project, f"branch-{number}")

    def move(asked: Asked, perform: Any) -> Reply:
        reply: Reply = perform()
        gitlab.of(project, 1)["updated_at"] = "2999-01-01T00:00:00.000Z"
        gitlab.merge_requests[project] = [each for each in gitlab.merge_requests[project] if each["iid"] != 2]
        return reply

    stub_forges.meet("GET", MERGE_REQUESTS, move)
    polled.poll()
    found = {each.mr_iid for each in polled.jobs()}
    assert found >= {1, 3, 4, 5, 6, 7, 8}


def test_more_merge_requests_of_one_moment_than_a_page_has_are_all_read(
    stub_forges: Forges, project: int, polled: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PER_PAGE", 2)
    gitlab = stub_forges.gitlab
    polled.poll()
    for number in range(7):
        gitlab.merge_request(project, f"branch-{number}")["updated_at"] = "2999-01-01T00:00:00.000Z"
    polled.poll()
    assert len(polled.jobs()) == 7


def test_an_item_that_cannot_be_read_is_parked_once_and_stops_nothing(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    gitlab = stub_forges.gitlab
    reached = polled.poll()
    gitlab.merge_request(project, "broken")["iid"] = None
    gitlab.merge_request(project, "empty")["state"] = 7
    gitlab.merge_request(project, "good")
    note = gitlab.note(project, 3, "/copilot go")
    gitlab.note(project, 3, "/copilot broken")["id"] = "x"
    for _ in range(2):
        assert polled.poll() >= reached
    assert polled.keys() == [f"note:{project}:3:{note['id']}", f"review:{project}:3:{gitlab.of(project, 3)['sha']}"]
    assert len(polled.letters()) == 3
    assert {each["source"] for each in polled.letters()} == {f"gitlab:{project}"}


def test_a_fork_is_asked_for_its_url_once_and_a_hidden_one_is_not_an_error(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    gitlab = stub_forges.gitlab
    fork = gitlab.fork(project)
    polled.poll()
    for number, source in enumerate((fork, fork, 999_999)):
        gitlab.merge_request(project, f"branch-{number}", fork=fork)["source_project_id"] = source
    polled.poll()
    own, other = (gitlab.projects[each]["http_url_to_repo"] for each in (project, fork))
    jobs = sorted(polled.jobs(), key=lambda job: job.mr_iid)
    assert [(each.git_http_url, each.from_fork) for each in jobs] == [(other, True), (other, True), ("", True)]
    assert {each.review_url for each in jobs} == {own}
    assert stub_forges.count("GET", f"/projects/{fork}$") == 1


def test_retry_after_is_obeyed_by_all_pods(stub_forges: Forges, project: int, polled: Receiving) -> None:
    """The lock of the poll stays closed for as long as GitLab asked for, and the next worker does not call."""
    stub_forges.meet("GET", "/projects/", refusal(429, retry_after=1800), times=1)
    source, pollers = polled.sources[0], polled.app.pollers
    source.every = 1.0
    polled.service.run(pollers.poll_if_due(source))
    (closed,) = polled.service.run(polled.app.once.locks("~repos/poll/"))
    assert 1700 < closed.left <= 1801
    asked = len(stub_forges.asked)
    for _ in range(3):
        polled.service.run(pollers.poll_if_due(source))
    assert len(stub_forges.asked) == asked
    assert 'solely_repos_polls_total{result="failed"' in polled.operator.get("/metrics").text


def test_a_rate_limit_without_retry_after_pauses_until_its_reset() -> None:
    def failure(status: int, **headers: str) -> CallFailed:
        given = httpx2.Headers({name.replace("_", "-"): value for name, value in headers.items()})
        return CallFailed("…", response=Response(status, given, b"", "https://gitlab.example.org/", Timings()))

    soon = str(int(datetime.now(UTC).timestamp()) + 500)
    assert 490 < pause_after(failure(429, ratelimit_reset=soon)) <= 500
    assert pause_after(failure(429)) == UNKNOWN_RESET
    assert pause_after(failure(429, ratelimit_reset="99999999999")) == 3_600
    assert pause_after(failure(500)) == pause_after(CallFailed("…")) == 0.0
    assert pause_after(CallFailed("…", retry_after=7.0)) == 7.0


def test_one_worker_polls_at_a_time_and_not_before_the_interval_is_over(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    source, pollers = polled.sources[0], polled.app.pollers

    async def many() -> None:
        await asyncio.gather(*(pollers.poll_if_due(source) for _ in range(20)))

    polled.service.run(many())
    assert stub_forges.count("GET", f"/projects/{project}$") == 1
    assert pollers.latest[source.name] is not None
    assert pollers.lag(source.name) < PATIENT
    assert "solely_repos_watermark_lag_seconds" in polled.operator.get("/metrics").text


def test_an_unreachable_gitlab_is_logged_and_polled_again(stub_forges: Forges, project: int, polled: Receiving) -> None:
    source, pollers = polled.sources[0], polled.app.pollers
    source.every = 0.01
    with stub_forges.meeting_all("GET", "/projects/", dropped):
        polled.service.run(pollers.poll_if_due(source))
    assert polled.watermarks() == []

    async def again() -> None:
        while not pollers.latest:  # the lock opens after the interval
            await pollers.poll_if_due(source)

    polled.service.run(again())
    assert len(polled.watermarks()) == 1


def test_people_are_notified_when_a_source_was_not_polled_for_long_and_when_it_is_again(
    stub_forges: Forges, project: int, polled: Receiving
) -> None:
    source, pollers = polled.sources[0], polled.app.pollers
    source.every = 0.01
    announced: list[Announcement] = []

    async def deliver(each: Announcement) -> None:
        announced.append(each)

    polled.service.on_loop(lambda: polled.service.service.announce.register(deliver))

    async def until_asked(times: int) -> None:
        before = stub_forges.count("GET", f"/projects/{project}$")
        while stub_forges.count("GET", f"/projects/{project}$") < before + times:  # the lock opens after the interval
            await pollers.poll_if_due(source)

    polled.poll()
    with stub_forges.meeting_all("GET", "/projects/", refusal(403)):
        polled.service.run(until_asked(1))
        assert announced == [], "the last poll was just now"
        mark = pollers.watermark(source)
        polled.service.run(mark.rewind(datetime.now(UTC) - timedelta(minutes=11), reason="a test"))
        polled.service.run(until_asked(1))
    assert [each.status for each in announced] == ["firing"]
    assert announced[0].fingerprint == f"repos/poll/gitlab:{project}"
    assert "403" in announced[0].summary
    text = f"1 source is not polled: gitlab:{project}"
    until(lambda: text in polled.operator.get("/").text)
    polled.service.run(until_asked(2))
    assert [each.status for each in announced] == ["firing", "resolved"]
    until(lambda: text not in polled.operator.get("/").text)


def test_a_source_that_could_never_be_polled_needs_attention(
    stub_forges: Forges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solely.apps.repos.polling.STALE", 0.0)
    monkeypatch.setattr("solely.apps.repos.polling.MISSED", 0)
    with (
        stub_forges.meeting_all("GET", "/projects/", refusal(401)),
        receiving(settings_of(stub_forges, (7,))) as it,
    ):
        found = until(lambda: it.operator.ask("/v1/attention")["attention"])
        assert found == [{"level": "error", "text": "1 source is not polled: gitlab:7", "link": "/repos"}]


def test_projects_need_a_token_and_paths_are_quoted(stub_forges: Forges, project: int) -> None:
    with pytest.raises(InvalidInput, match="give `token`"):
        GitLabSettings(projects=("group/project",))
    with receiving(settings_of(stub_forges, ("group/project",))) as it:
        it.poll()
        assert [each.key for each in it.watermarks()] == ["~repos/poll/gitlab:group/project"]
        assert unquote(stub_forges.asked[-1].path) == "/api/v4/projects/group/project"
