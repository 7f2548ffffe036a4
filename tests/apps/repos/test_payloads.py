"""What GitLab 15 to 18 send is read alike, with their old and new forms of times."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from solely.apps.repos.forges.commands import CommandRule
from solely.apps.repos.forges.gitlab.webhook import GitLabWebhooks
from solely.apps.repos.forges.moments import moment_of, seconds_of, their_now, written
from solely.apps.repos.settings import GitLabSettings

SHA = "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"
AT = datetime(2026, 1, 31, 12, 0, tzinfo=UTC).timestamp()
URL = "https://gitlab.example.org/group/project.git"
USER = {"id": 1, "name": "Ann", "username": "ann", "avatar_url": None, "email": "[REDACTED]"}


def project(**more: Any) -> dict[str, Any]:
    given = {"id": 42, "name": "Project", "description": "", "web_url": "https://gitlab.example.org/group/project"}
    given |= {"avatar_url": None, "git_ssh_url": "git@gitlab.example.org:group/project.git", "git_http_url": URL}
    given |= {"namespace": "Group", "visibility_level": 20, "path_with_namespace": "group/project"}
    return given | {"default_branch": "main", "ci_config_path": None, **more}


def attributes(at: str, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "id": 99, "iid": 7, "target_branch": "main", "source_branch": "feature", "source_project_id": 42,
        "author_id": 1, "assignee_id": None, "title": "A feature", "created_at": at, "updated_at": at,
        "milestone_id": None, "state": "opened", "merge_status": "unchecked", "target_project_id": 42,
        "description": "", "source": project(), "target": project(), "action": "open", "merge_error": None,
        "last_commit": {"id": SHA, "message": "x", "timestamp": "2026-01-31T12:00:00+00:00", "author": {"name": "Ann"}},
    }  # fmt: skip
    return given | more


# As these versions write them: 15 has `work_in_progress` and times with UTC, 16 adds `draft`, 17 has ISO times and
# `reviewers` with states, 18 has no `work_in_progress` and times with fractions.
MERGE_REQUESTS = {
    "15": attributes("2026-01-31 12:00:00 UTC", work_in_progress=False, state_id=1, blocking_discussions_resolved=True),
    "15 with an offset": attributes("2026-01-31 14:00:00 +0200", work_in_progress=False),
    "16": attributes("2026-01-31 12:00:00 UTC", work_in_progress=False, draft=False, detailed_merge_status="checking"),
    "17": attributes("2026-01-31T12:00:00Z", draft=True, reviewer_ids=[1], prepared_at="2026-01-31T12:00:00Z"),
    "18": attributes("2026-01-31T12:00:00.000Z", draft=False, system=False, url="https://…", oldrev=None),
}
NOTES = {
    "15": {"id": 5, "note": "/copilot go", "noteable_type": "MergeRequest", "system": False, "st_diff": None,
           "created_at": "2026-01-31 12:00:00 UTC", "line_code": None, "noteable_id": 99, "author_id": 1},
    "17": {"id": 5, "note": "/copilot go", "noteable_type": "MergeRequest", "system": False, "action": "create",
           "created_at": "2026-01-31T12:00:00Z", "discussion_id": "0a1b", "internal": False, "position": None},
    "18": {"id": 5, "note": "/copilot go", "noteable_type": "MergeRequest", "system": False, "action": "create",
           "created_at": "2026-01-31T12:00:00.000Z", "type": "DiffNote", "resolved_at": None},
}  # fmt: skip

reader = GitLabWebhooks(GitLabSettings(), CommandRule("/copilot", frozenset()))


def read(event: dict[str, Any]) -> Any:
    (job,) = reader.read(lambda name: "", json.dumps(event).encode()).jobs
    return job


@pytest.mark.parametrize("version", MERGE_REQUESTS)
def test_merge_request_events_of_gitlab_15_to_18_are_read(version: str) -> None:
    event = {"object_kind": "merge_request", "event_type": "merge_request", "user": USER, "project": project()}
    job = read({**event, "object_attributes": MERGE_REQUESTS[version], "labels": [], "changes": {}, "repository": {}})
    assert (job.key, job.git_http_url, job.at) == (f"review:42:7:{SHA}", URL, AT)
    assert (job.source_branch, job.target_branch, job.author) == ("feature", "main", "ann")


@pytest.mark.parametrize("version", NOTES)
def test_note_events_of_gitlab_15_to_18_are_read(version: str) -> None:
    event = {"object_kind": "note", "user": USER, "project_id": 42, "project": project()}
    request = attributes("2026-01-31 12:00:00 UTC")
    del request["action"]
    job = read({**event, "object_attributes": NOTES[version], "merge_request": request})
    assert (job.key, job.head_sha, job.at, job.git_http_url) == ("note:42:7:5", SHA, AT, URL)


@pytest.mark.parametrize(
    "text",
    ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z", "2026-01-31T14:00:00.000+02:00", "2026-01-31T13:00:00+0100",
     "2026-01-31 12:00:00 UTC", "2026-01-31 14:00:00 +0200", "2026-01-31 12:00:00"],
)  # fmt: skip
def test_every_form_of_a_time_is_the_same_moment(text: str) -> None:
    assert moment_of(text).timestamp() == seconds_of(text) == AT


@pytest.mark.parametrize("text", [None, "", "soon", "2026-13-01"])
def test_a_time_that_is_none_counts_as_now(text: str | None) -> None:
    before = datetime.now(UTC).timestamp()
    assert before <= seconds_of(text) <= datetime.now(UTC).timestamp()


def test_watermarks_are_written_in_iso_8601_utc_with_microseconds() -> None:
    assert written(datetime(2025, 2, 19, 12, 34, 56, 789012, UTC)) == "2025-02-19T12:34:56.789012+00:00"
    assert written(datetime(2025, 2, 19, 12, 34, 56, tzinfo=UTC)) == "2025-02-19T12:34:56.000000+00:00"


def test_the_servers_time_counts_and_not_ours() -> None:
    sent, answered = datetime(2026, 1, 1, 0, 0, 10, 250_000, UTC), datetime(2026, 1, 1, 0, 0, 12, tzinfo=UTC)
    ahead = datetime(2026, 1, 1, 1, 0, 12, tzinfo=UTC)
    assert their_now(sent, answered, ahead) == datetime(2026, 1, 1, 1, 0, 10, 250_000, UTC)
    assert their_now(sent, answered, None) == sent
