"""Webhooks of GitLab and GitHub: each job is accepted once, and no duplicate is answered with 4xx."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import quote_plus

import httpx2
import pytest

from solely.kit import sign
from tests.apps.repos.forge_server import Forges
from tests.apps.repos.receiving import HOOK_TOKEN, SECRET, Receiving, receiving, settings_of
from tests.conftest import isolated
from tests.servers import Valkey
from tests.service.serving import until

SHA, OTHER = "a" * 40, "b" * 40
FORGED = "A" * 43
SIGNING = "whsec_" + base64.b64encode(b"k" * 32).decode()
PROJECT = {"id": 42, "path_with_namespace": "group/project", "git_http_url": "https://gitlab.example.org/g/p.git"}


def merge_request(head: str = SHA, action: str = "open", **attributes: Any) -> dict[str, Any]:
    given = {"iid": 7, "title": "A feature", "state": "opened", "action": action, "source_branch": "feature"}
    given |= {"target_branch": "main", "last_commit": {"id": head}, "updated_at": "2026-01-31T12:00:00Z"}
    given |= {"source_project_id": PROJECT["id"], "target_project_id": PROJECT["id"]}
    user = {"username": "ann"}
    return {"object_kind": "merge_request", "project": PROJECT, "user": user, "object_attributes": given | attributes}


def note(id: int = 99, text: str = "/copilot fix it", **attributes: Any) -> dict[str, Any]:
    request = merge_request()["object_attributes"]
    given = {"id": id, "note": text, "noteable_type": "MergeRequest", "created_at": "2026-01-31T12:00:00Z"}
    event = {"object_kind": "note", "project": PROJECT, "user": {"username": "ann"}, "merge_request": request}
    return {**event, "object_attributes": given | attributes}


@pytest.fixture
def service() -> Iterator[Receiving]:
    with receiving(settings_of(gitlab={"signing_tokens": [SIGNING]})) as it:
        yield it


def outcomes(answer: Any) -> list[str]:
    return [each["outcome"] for each in answer.json()["jobs"]]


# -- GitLab


def test_a_new_merge_request_is_accepted_with_202_and_becomes_a_review(service: Receiving) -> None:
    answer = service.gitlab(merge_request())
    assert (answer.status_code, outcomes(answer)) == (202, ["queued"])
    (job,) = service.jobs()
    assert (job.kind, job.key) == ("review", f"review:42:7:{SHA}")
    assert (job.project_id, job.project_path, job.mr_iid, job.head_sha) == (42, "group/project", 7, SHA)
    assert (job.git_http_url, job.source_branch, job.target_branch) == (PROJECT["git_http_url"], "feature", "main")
    assert (job.forge, job.author, job.received_by, job.at) == ("gitlab", "ann", "webhook", 1769860800.0)


def test_a_command_in_a_note_is_accepted_and_every_other_note_is_ignored_with_200(service: Receiving) -> None:
    assert outcomes(service.gitlab(note())) == ["queued"]
    (job,) = service.jobs()
    assert (job.kind, job.key, job.note_id, job.text) == ("command", "note:42:7:99", 99, "/copilot fix it")
    others = [
        note(100, "see /copilot"), note(101, "/copilots"), note(102, ""), note(103, system=True),
        note(104, action="update"), {**note(105), "merge_request": None},
        {**note(106), "merge_request": {"iid": 7, "state": "merged"}},
    ]  # fmt: skip
    for other in others:
        answer = service.gitlab(other)
        assert (answer.status_code, outcomes(answer)) == (200, [])
        assert answer.json()["ignored"]
    assert service.keys() == ["note:42:7:99"]


def test_only_events_with_new_commits_of_an_open_merge_request_are_reviewed(service: Receiving) -> None:
    for ignored in (
        merge_request(action="update"), merge_request(action="approved"), merge_request(action="close", state="closed"),
        merge_request(action="merge", state="merged"), merge_request(last_commit=None),
    ):  # fmt: skip
        assert (service.gitlab(ignored).status_code, service.keys()) == (200, [])
    assert outcomes(service.gitlab(merge_request(action="update", oldrev=OTHER))) == ["queued"]
    assert outcomes(service.gitlab(merge_request(action="reopen", head=OTHER))) == ["queued"]


def test_group_hook_project_hook_and_retry_of_one_event_are_one_job(service: Receiving) -> None:
    """Each hook has ids of its own; a retry has the same."""
    first = service.gitlab(merge_request(), idempotency_key="one", x_gitlab_event_uuid="1")
    group = service.gitlab(merge_request(), idempotency_key="two", x_gitlab_event_uuid="2")
    retry = service.gitlab(merge_request(), idempotency_key="one", x_gitlab_event_uuid="1")
    assert [each.status_code for each in (first, group, retry)] == [202, 200, 200]
    assert [outcomes(each) for each in (first, group, retry)] == [["queued"], ["known"], ["known"]]
    assert len(service.jobs()) == 1


def test_a_duplicate_is_answered_200_while_the_job_waits_and_after_it_is_done(service: Receiving) -> None:
    assert service.gitlab(merge_request()).status_code == 202
    assert service.gitlab(merge_request()).status_code == 200
    service.finish(f"review:42:7:{SHA}")
    assert (service.gitlab(merge_request()).status_code, service.jobs()) == (200, [])


def test_a_delivery_is_known_for_longer_than_its_job(service: Receiving) -> None:
    """After a day the commit may be reviewed again, but not since GitLab resends an old delivery."""
    service.gitlab(merge_request(), idempotency_key="one")
    service.finish(f"review:42:7:{SHA}")
    service.service.run(service.app.once.forget(f"~repos/received/review:42:7:{SHA}"))  # as its expiry does
    assert outcomes(service.gitlab(merge_request(), idempotency_key="one")) == ["same_delivery"]
    assert outcomes(service.gitlab(merge_request(), idempotency_key="two")) == ["queued"]


def test_a_key_that_was_forgotten_is_accepted_again(service: Receiving) -> None:
    key = f"review:42:7:{SHA}"
    service.gitlab(merge_request(), idempotency_key="one")
    service.finish(key)
    assert service.service.run(service.app.intake.forget(key)) is True
    assert service.service.run(service.app.intake.forget(key)) is False
    assert outcomes(service.gitlab(merge_request(), idempotency_key="one")) == ["queued"]


def test_a_job_that_died_before_it_was_marked_is_found_in_the_queue(service: Receiving) -> None:
    service.gitlab(merge_request())
    service.service.run(service.app.once.forget(f"~repos/received/review:42:7:{SHA}"))
    assert outcomes(service.gitlab(merge_request())) == ["in_queue"]
    assert outcomes(service.gitlab(merge_request())) == ["known"]


def test_unknown_events_are_answered_200_and_counted(service: Receiving) -> None:
    for event in ({"object_kind": "push"}, {"object_kind": "brand_new"}, {}):
        answer = service.gitlab(event)
        assert (answer.status_code, answer.json()["event"]) == (200, "other")
    assert 'solely_repos_webhook_received_total{event="other",forge="gitlab"}' in service.operator.get("/metrics").text


@pytest.mark.parametrize("body", [b"", b"[", b"[1]", b'{"object_kind": "note"}', b"\xff\xfe", b"[" * 100_000])
def test_what_cannot_be_read_is_answered_200_and_parked_once(service: Receiving, body: bytes) -> None:
    headers = {"x-gitlab-token": HOOK_TOKEN}
    for _ in range(2):
        answer = service.service.http.post("/api/repos/gitlab", content=body, headers=headers)
        assert (answer.status_code, answer.json()["event"]) == (200, "unreadable")
    (letter,) = service.letters()
    assert letter["forge"] == "gitlab"


def test_a_parked_request_can_be_replayed_by_a_version_that_reads_it(service: Receiving) -> None:
    broken = merge_request(iid="seven")
    assert service.gitlab(broken).json()["event"] == "unreadable"
    (letter,) = service.letters()
    replay = service.service.service.dashboard.replays["~repos/unread"]

    async def again(body: dict[str, Any]) -> None:
        await replay({**letter, "body": json.dumps(body)})

    with pytest.raises(ValueError, match="iid"):
        service.service.run(again(broken))
    service.service.run(again(merge_request()))
    assert service.keys() == [f"review:42:7:{SHA}"]


@pytest.mark.parametrize("token", ["", "wrong", HOOK_TOKEN + "x", "ключ"])
def test_without_the_token_a_request_is_refused(service: Receiving, token: str) -> None:
    headers = {b"x-gitlab-token": token.encode()}
    answer = service.service.http.post("/api/repos/gitlab", content=json.dumps(merge_request()), headers=headers)
    assert (answer.status_code, service.jobs()) == (401, [])


def signed(body: bytes, id: str = "msg_1", at: float | None = None, secret: bytes = b"k" * 32) -> dict[str, str]:
    return sign(id, int(time.time() if at is None else at), body, [secret])


def test_the_signed_form_is_accepted_and_a_changed_old_or_foreign_one_is_refused(service: Receiving) -> None:
    body, post = json.dumps(merge_request()).encode(), service.service.http.post
    several = signed(body)
    several["webhook-signature"] = f"v1,{base64.b64encode(b'x' * 32).decode()} {several['webhook-signature']}"
    wrong = [
        (body + b" ", signed(body)),
        (body, signed(body, at=time.time() - 400)),
        (body, signed(body, at=time.time() + 400)),
        (body, signed(body, secret=b"x" * 32)),
        (body, {**signed(body), "webhook-id": "msg_2"}),
        (body, {**signed(body), "webhook-timestamp": "soon"}),
        (body, {name: value for name, value in signed(body).items() if name != "webhook-signature"}),
    ]
    for content, headers in wrong:
        assert post("/api/repos/gitlab", content=content, headers=headers).status_code == 401
    assert post("/api/repos/gitlab", content=body, headers=several).status_code == 202


def test_a_body_of_25_mb_is_read_and_a_larger_one_is_refused(service: Receiving) -> None:
    event = merge_request(description="x" * (24 << 20))
    assert service.gitlab(event).status_code == 202
    assert service.gitlab(merge_request(description="x" * (26 << 20))).status_code == 413


SIGNED: dict[str, Callable[[], dict[str, str]]] = {
    "gitlab": lambda: {"webhook-timestamp": str(int(time.time())), "webhook-signature": f"v1,{FORGED}="},
    "github": lambda: {"x-github-event": "pull_request", "x-hub-signature-256": f"sha256={'0' * 64}"},
}


def opening(forge: str, headers: dict[str, str], length: int) -> bytes:
    lines = [f"POST /api/repos/{forge} HTTP/1.1", "host: 127.0.0.1", f"content-length: {length}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "\r\n"]).encode()


def is_open(connection: socket.socket) -> bool:
    """True if it was neither answered nor closed."""
    try:
        connection.recv(64, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return False


@pytest.mark.parametrize("forge", SIGNED)
def test_large_bodies_of_strangers_do_not_fill_the_memory(forge: str) -> None:
    """Each looks as if it were signed. Small events, and large ones afterwards, are read all the same."""
    piece, count = b"x" * (3 << 20), 40
    with receiving(settings_of(gitlab={"signing_tokens": [SIGNING]})) as service, ExitStack() as opened:
        held = []
        for _ in range(count):
            connection = opened.enter_context(service.service.connect())
            connection.settimeout(60)
            with suppress(ConnectionError):  # refused while we send
                connection.sendall(opening(forge, SIGNED[forge](), 20 << 20) + piece)
            connection.setblocking(False)
            held.append(connection)
        most = (64 << 20) // len(piece) + 1
        until(lambda: sum(map(is_open, held)) <= most)
        assert service.service.service.bodies.used <= 64 << 20
        assert service.gitlab(merge_request()).status_code == 202
        opened.close()
        until(lambda: service.service.service.bodies.used == 0)
        assert service.gitlab(merge_request(iid=2, description="x" * (24 << 20))).status_code == 202


@pytest.mark.parametrize(
    ("forge", "headers"),
    [
        ("github", {"x-hub-signature-256": f"sha256={'0' * 64}"}),
        ("github", {"x-github-event": "push", "x-hub-signature-256": "x"}),
        ("gitlab", {"webhook-signature": "v1,x", "webhook-timestamp": "1"}),
        ("gitlab", {"webhook-signature": f"v1,{'A' * 43}=", "webhook-timestamp": "1"}),
        ("gitlab", {"x-gitlab-token": "another"}),
    ],
)
def test_what_is_no_signature_is_refused_before_its_body_is_read(forge: str, headers: dict[str, str]) -> None:
    with (
        receiving(settings_of(gitlab={"signing_tokens": [SIGNING]})) as service,
        service.service.connect() as connection,
    ):
        connection.sendall(opening(forge, headers, 20 << 20) + b"{")
        assert connection.recv(64).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("forge", ["gitlab", "github"])
def test_a_large_body_of_a_sender_without_a_secret_is_not_read(service: Receiving, forge: str) -> None:
    with service.service.connect() as connection:
        head = f"POST /api/repos/{forge} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {20 << 20}\r\n\r\n"
        connection.sendall(head.encode() + b"{")
        assert connection.recv(64).startswith(b"HTTP/1.1 401")


def test_a_very_long_note_is_cut_and_not_lost(service: Receiving) -> None:
    assert service.gitlab(note(text="/copilot " + "é" * 1_000_000)).status_code == 202
    assert len(service.jobs()[0].text) == 16 << 10


@pytest.mark.parametrize(("id", "url"), [(43, "https://gitlab.example.org/ann/p.git"), (None, "")])
def test_a_merge_request_of_a_fork_is_recognized_also_if_the_fork_is_gone(
    service: Receiving, id: int | None, url: str
) -> None:
    """Its source branch is never taken for one of the project."""
    source = {"git_http_url": url} if url else None
    service.gitlab(merge_request(source=source, source_project_id=id))
    (job,) = service.jobs()
    assert (job.from_fork, job.git_http_url, job.review_url) == (True, url, PROJECT["git_http_url"])


def test_settings_without_a_secret_accept_nobody() -> None:
    with receiving({}) as it:
        assert it.gitlab(merge_request()).status_code == 401
        assert it.github("ping", {}).status_code == 401


def test_only_the_named_authors_may_command() -> None:
    with receiving(settings_of(authors=["bob"], command="/agent")) as it:
        refused = it.gitlab(note(text="/agent go"))
        assert (refused.status_code, refused.json()["ignored"]) == (200, "the author may not give commands")
        accepted = it.gitlab({**note(text="/agent go"), "user": {"username": "bob"}})
        assert accepted.status_code == 202


def test_an_unreachable_store_is_503_and_the_repeat_is_accepted() -> None:
    with Valkey() as server, receiving(settings_of(), url=server.url, store_timeout=1) as it:
        assert it.gitlab(merge_request(), idempotency_key="one").status_code == 202
        server.pause()
        try:
            assert it.gitlab(merge_request(OTHER), idempotency_key="two").status_code == 503
        finally:
            server.resume()
        repeat = until(lambda: _unless_503(it.gitlab(merge_request(OTHER), idempotency_key="two")))
        assert outcomes(repeat)[0] in ("queued", "in_queue", "known")
        assert it.keys() == [f"review:42:7:{SHA}", f"review:42:7:{OTHER}"]


def _unless_503(answer: httpx2.Response) -> httpx2.Response | None:
    return None if answer.status_code == 503 else answer


def test_two_pods_that_share_a_store_accept_an_event_once(valkey_url: str) -> None:
    url = isolated(valkey_url)
    with receiving(settings_of(), url=url) as one, receiving(settings_of(), url=url) as other:
        assert outcomes(one.gitlab(merge_request(), idempotency_key="group")) == ["queued"]
        assert outcomes(other.gitlab(merge_request(), idempotency_key="project")) == ["known"]
        assert one.keys() == other.keys() == [f"review:42:7:{SHA}"]


def test_what_was_received_and_why_it_was_not_queued_is_recorded(service: Receiving) -> None:
    for _ in range(3):
        service.gitlab(merge_request())
    service.gitlab({"object_kind": "push"})
    service.service.run(service.app.received.flush())
    rows = service.service.run(service.app.queries.rows("received", last=time.time() + 60, limit=100))
    found = {(row["key"], row["outcome"]): row for row in rows}
    assert found[f"review:42:7:{SHA}", "known"]["times"] >= 2
    assert found[f"review:42:7:{SHA}", "queued"]["project"] == "group/project"
    assert found["other", "ignored: only merge requests and notes are of interest"]["forge"] == "gitlab"


def test_duplicates_are_counted_by_their_reason(service: Receiving) -> None:
    for _ in range(3):
        service.gitlab(merge_request())
    text = service.operator.get("/metrics").text
    assert 'solely_repos_accepted_total{kind="review",origin="webhook"} 1.0' in text
    assert 'solely_repos_duplicates_total{kind="review",origin="webhook",reason="known"} 2.0' in text
    assert 'solely_repos_webhook_received_total{event="merge_request",forge="gitlab"} 3.0' in text


# -- GitHub, through the same seam


def pull_request(forges: Forges) -> tuple[dict[str, Any], dict[str, Any]]:
    repository = forges.github.repository()
    return repository, forges.github.pull_request("octo/repo")


def test_a_pull_request_becomes_a_review_once(service: Receiving, stub_forges: Forges) -> None:
    repository, pull = pull_request(stub_forges)
    event = {"action": "opened", "pull_request": pull, "repository": repository}
    assert service.github("pull_request", event, x_github_delivery="one").status_code == 202
    assert service.github("pull_request", event, x_github_delivery="one").status_code == 200
    again = {**event, "action": "synchronize"}
    assert outcomes(service.github("pull_request", again, x_github_delivery="two")) == ["known"]
    (job,) = service.jobs()
    assert job.key == f"github:review:{repository['id']}:{pull['number']}:{pull['head']['sha']}"
    assert (job.git_http_url, job.source_branch) == (repository["clone_url"], "feature")


def test_a_comment_on_a_pull_request_becomes_a_command_of_those_who_may_push(
    service: Receiving, stub_forges: Forges
) -> None:
    repository, pull = pull_request(stub_forges)
    issue = {"number": pull["number"], "title": "A feature", "pull_request": {"url": "…"}}
    comment = {"id": 77, "body": "/copilot go", "user": {"login": "ann"}, "author_association": "MEMBER"}
    event = {"action": "created", "issue": issue, "comment": comment, "repository": repository}
    ignored = [
        {**event, "action": "edited"},
        {**event, "issue": {"number": 3}},
        {**event, "comment": {**comment, "author_association": "NONE"}},
        {**event, "comment": {**comment, "body": None}},
    ]
    for other in ignored:
        answer = service.github("issue_comment", other)
        assert (answer.status_code, bool(answer.json()["ignored"])) == (200, True)
    assert service.github("issue_comment", event).status_code == 202
    (job,) = service.jobs()
    assert (job.key, job.text) == (f"github:note:{repository['id']}:{pull['number']}:77", "/copilot go")


def test_a_ping_is_answered_200_a_form_is_read_and_a_wrong_signature_is_refused(
    service: Receiving, stub_forges: Forges
) -> None:
    repository, pull = pull_request(stub_forges)
    event = {"action": "opened", "pull_request": pull, "repository": repository}
    assert service.github("ping", {"zen": "…"}).status_code == 200
    assert service.github("pull_request", event, secret="wrong").status_code == 401
    body = b"payload=" + quote_plus(json.dumps(event)).encode()
    signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {"x-hub-signature-256": signature, "x-github-event": "pull_request"}
    headers["content-type"] = "application/x-www-form-urlencoded"
    assert service.service.http.post("/api/repos/github", content=body, headers=headers).status_code == 202
