"""Every parser of what others send: how it is called, which errors it documents, and texts that it accepts."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import quote_plus

import httpx2
import msgspec

from solely import formats, names, rules, values
from solely.apps.alerts.api.alertmanager import LabelMatcher, PostableSilence
from solely.apps.alerts.inputs import alertmanager, pagerduty
from solely.apps.repos.forges.commands import CommandRule
from solely.apps.repos.forges.github.webhook import GitHubWebhooks
from solely.apps.repos.forges.gitlab.webhook import GitLabWebhooks
from solely.apps.repos.forges.moments import seconds_of
from solely.apps.repos.jira import JiraIssue, text_of
from solely.apps.repos.settings import GitHubSettings, GitLabSettings
from solely.data.paging import position_after
from solely.errors import InvalidInput, NotKept, Unreadable, WorkFailed
from solely.integrations.idempotency.key import parse_key
from solely.leases.token import Token, read_token, write_token
from solely.outgoing.checks import check_header, check_network, check_url
from solely.outgoing.cookies import CookieJar
from solely.outgoing.message import CallFailed, Request, Response, Timings, retry_after
from solely.outgoing.pages import by_header, by_link, by_offset, by_token
from solely.outgoing.signing import signing_key
from solely.schedules.timetable import timetable
from solely.service.authentication import _session
from solely.service.matchers import parse_matchers, selective_matchers
from solely.service.security import Hosts, Principal, Scope, Tokens, read_token_line
from solely.service.sessions import Sessions
from solely.service.settings import load
from solely.stores import capabilities
from solely.stores.http.settings import parse as parse_http
from solely.stores.mongo.settings import parse as parse_mongo
from solely.stores.postgres.settings import parse as parse_postgres
from solely.stores.redis.settings import parse as parse_redis
from tests.apps.repos.test_webhooks import SIGNING, merge_request, note

Parse = Callable[[str], object]
UNREADABLE = (msgspec.DecodeError, InvalidInput)  # what the endpoint of a webhook parks as a dead letter
PAGES = (CallFailed, httpx2.InvalidURL, ValueError, TypeError)  # what `Caller.pages` makes CallFailed of
NOW = datetime(2026, 1, 31, tzinfo=UTC)
RULE = CommandRule("/copilot", frozenset())
GITLAB = GitLabWebhooks(GitLabSettings(webhook_tokens=("t" * 32,), signing_tokens=(SIGNING,)), RULE)
GITHUB = GitHubWebhooks(GitHubSettings(webhook_secrets=("s" * 32,)), RULE)
TOKENS = Tokens([f"ann:write:{'ab' * 32}"])
SESSIONS = Sessions(b"k" * 32, TOKENS)
COOKIE = SESSIONS.open(Principal("ann", Scope.WRITE, bytes.fromhex("ab" * 32)))
ASKED = Request("GET", "https://api.example.org/items?startAt=0")


class Parser(NamedTuple):
    """A parser: it returns a value or raises one of `errors`, whatever it is given."""

    name: str
    parse: Parse
    errors: tuple[type[Exception], ...]
    accepts: tuple[str, ...]  # texts that are mutated; each is accepted as it is
    longest: int = 65_536  # characters that can reach it: a header, or what the caller bounds
    pace: int = 1  # one of so many variants is tried without chance: more for a parser that takes milliseconds


def latin(text: str) -> bytes:
    """The text as bytes, as a header or a body brings any."""
    return text.encode("latin-1", "replace")


def response(text: str, header: str = "", url: str = "https://api.example.org/items") -> Response:
    """A response with this body, or with this value of a header."""
    headers = httpx2.Headers([(header.encode(), latin(text))] if header else [])
    return Response(200, headers, b"" if header else latin(text), url, Timings())


def github(text: str) -> object:
    """The event and the body, separated by a newline."""
    event, _, body = text.partition("\n")
    form = {"x-github-event": event, "content-type": "application/json" if body[:1] == "{" else FORM}
    return GITHUB.read(lambda name: form.get(name, ""), latin(body))


def gitlab_signature(text: str) -> object:
    """Timestamp, id and signature, separated by newlines, with a timestamp that begins with now; none is ours."""
    names = ("webhook-timestamp", "webhook-id", "webhook-signature")
    parts = dict(zip(names, f"{int(time.time()):012}{latin(text).decode('latin-1')}".split("\n"), strict=False))
    assert not GITLAB.speaks_for(lambda name: parts.get(name, ""), b"{}")
    return None


def github_signature(text: str) -> object:
    assert not GITHUB.speaks_for(lambda name: text, b"{}")
    return None


def pager_duty(text: str) -> object:
    return pagerduty.parse(pagerduty.read(msgspec.json.decode(latin(text), type=dict[str, Any])))


def jira(text: str) -> object:
    issue = msgspec.json.decode(latin(text), type=JiraIssue)
    return text_of(issue.fields.description), seconds_of(issue.fields.updated)


def cookies(text: str) -> object:
    """Keeps what a receiver sets, and makes the header of the next request."""
    jar = CookieJar()
    jar.keep(ASKED, httpx2.Headers([(b"set-cookie", latin(text))]))
    header = jar.header(ASKED)
    for name, value in header.items():
        check_header("a cookie's", name, value)
    return jar.values()


def toml(text: str) -> object:
    """Settings of a file, without the file."""

    def read(file: object) -> dict[str, Any]:
        try:
            return tomllib.loads(text) if file else {}
        except ValueError as error:
            raise InvalidInput(str(error)) from None

    with patch("solely.service.settings.read_file", read):
        return load("settings.toml", {})


def environment(text: str) -> object:
    name, _, value = text.partition("=")
    return load(None, {f"SOLELY_{name}": value})


def redis(text: str) -> object:
    return parse_redis(f"redis://{text}"), parse_redis(f"unix:///{text}")


def sentinel(text: str) -> object:
    return parse_redis(f"redis+sentinel://{text}")


def by_kind(kind: Callable[[bytes], object]) -> Parse:
    return lambda text: kind(latin(text))


def dumped(*documents: object) -> tuple[str, ...]:
    return tuple(json.dumps(document) for document in documents)


FORM = "application/x-www-form-urlencoded"
PULL = {
    "action": "opened", "repository": {"id": 1, "full_name": "o/r", "clone_url": "https://x/r"},
    "pull_request": {"number": 2, "head": {"ref": "f", "sha": "a", "repo": None}, "base": {}, "updated_at": "2026"},
}  # fmt: skip
COMMENT = {
    "action": "created", "repository": {"id": 1}, "issue": {"number": 2, "pull_request": {"url": ""}},
    "comment": {"id": 3, "body": "/copilot fix", "author_association": "OWNER", "user": {"login": "ann"}},
}  # fmt: skip
GROUP = {"version": "4", "externalURL": "http://am", "alerts": [{"labels": {"alertname": "A"}, "status": "firing"}]}
POSTED = [{"labels": {"alertname": "A"}, "endsAt": "2026-01-01T00:00:00Z", "generatorURL": "http://p/graph"}]
EVENT = {
    "routing_key": "k", "event_action": "trigger", "links": [{"href": "h"}],
    "payload": {"summary": "s", "source": "x", "severity": "error", "custom_details": {"a": [1, None, {"b": 2.5}]}},
}  # fmt: skip
PARAGRAPH = {"type": "paragraph", "content": [{"type": "text", "text": "hi"}, {"type": "hardBreak"}]}
ISSUE = {"key": "A-1", "fields": {"updated": "2026-01-31 12:00:00 UTC", "description": {"content": [PARAGRAPH]}}}
SILENCE = {
    "matchers": [{"name": "a", "value": "b", "isRegex": False}], "startsAt": "2026-01-01T00:00:00Z",
    "endsAt": "2026-01-02T00:00:00Z", "createdBy": "ann", "comment": "why",
}  # fmt: skip
LEASE = write_token(Token("lock/k", "a" * 32, 30.0, 7, 1.0))

PARSERS = (
    Parser("keys", lambda text: rules.stored_key("lock", text), (InvalidInput,), ("repo:42", "ä" * 256)),
    Parser("names", lambda text: (names.part_of(text), names.owner_of(text)), (), ("item/~a%2Fb/1", "~alerts/x")),
    Parser("durations", rules.duration, (InvalidInput,), ("30s", "1h30m", "250ms", "7d", "30", "1.5h")),
    Parser("lease tokens", read_token, (InvalidInput,), (LEASE,)),
    Parser("positions in lists", position_after, (InvalidInput,), ("1.5/id", "")),
    Parser("Idempotency-Key", lambda text: parse_key([latin(text)]), (InvalidInput,), ('"a-b"', '"a\\"b"; x=1;y="z"')),
    Parser("Idempotency-Key, bare", lambda text: parse_key([latin(text)], bare=True), (InvalidInput,), ("a-b", '"a"')),
    Parser("cron expressions", lambda text: timetable("n", text, "UTC", 0.0), (InvalidInput,),
           ("*/5 0-6,12 1 jan,feb mon-fri", "@daily", "@every 90s", "0 0 29 2 *"), longest=1_000),
    Parser("time zones", lambda text: timetable("n", "@daily", text, 0.0), (InvalidInput,), ("Europe/Berlin", "UTC")),
    Parser("matchers", lambda text: parse_matchers([text]), (InvalidInput,),
           ('severity="critical"', "host=~web-.*", "team!=dba", "a!~(b|c)[de]+f?")),
    Parser("matchers of silences", lambda text: selective_matchers(text.split("\n"), "alert"), (InvalidInput,),
           ("host=~web-.*\nteam!=x",)),
    Parser("Alertmanager's matchers", LabelMatcher.parse, (InvalidInput,), ('alertname=~"Disk.*"', "a=b")),
    Parser("Alertmanager's silences", by_kind(lambda body: msgspec.json.decode(body, type=PostableSilence).texts()),
           (msgspec.DecodeError, UnicodeDecodeError, RecursionError), dumped(SILENCE)),
    Parser("GitLab's webhooks", by_kind(lambda body: GITLAB.read(lambda name: "", body)), UNREADABLE,
           dumped(merge_request(), note())),
    Parser("GitHub's webhooks", github, UNREADABLE,
           ("pull_request\n" + json.dumps(PULL), "issue_comment\n" + json.dumps(COMMENT),
            "pull_request\npayload=" + quote_plus(json.dumps(PULL)) + "&a=b")),
    Parser("GitLab's signatures", gitlab_signature, (), ("\nmsg_1\nv1,AAAA v1,BBBB",)),
    Parser("GitHub's signatures", github_signature, (), ("sha256=" + "ab" * 32,)),
    Parser("signing secrets", lambda text: signing_key("a:", text), (InvalidInput,), (SIGNING,)),
    # The endpoints of these refuse with 400 what the service's decoder raises, see `endpoints._json`.
    Parser("Alertmanager's webhook", by_kind(lambda body: alertmanager.parse_group(
        msgspec.json.decode(body, type=alertmanager.AlertmanagerGroup))),
        (msgspec.DecodeError, UnicodeDecodeError, RecursionError), dumped(GROUP)),
    Parser("Prometheus' alerts", by_kind(lambda body: alertmanager.parse_posted(
        msgspec.json.decode(body, type=alertmanager.PostedAlerts), NOW)),
        (msgspec.DecodeError, UnicodeDecodeError, RecursionError), dumped(POSTED)),
    Parser("PagerDuty's events", pager_duty,
           (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidInput), dumped(EVENT)),
    Parser("Jira's issues", jira, (msgspec.DecodeError, UnicodeDecodeError, RecursionError), dumped(ISSUE)),
    Parser("times of forges", seconds_of, (), ("2026-01-31T12:00:00Z", "2026-01-31 12:00:00 UTC", "2026-01-31 +0100")),
    Parser("cookies of sessions", lambda text: SESSIONS.whose(_session(latin(text))), (),
           (f"a=b; {Sessions.COOKIE}={COOKIE}", COOKIE)),
    Parser("bearer tokens", by_kind(TOKENS.bearer), (), ("Bearer abc", "bearer  x")),
    Parser("lines of the token file", read_token_line, (InvalidInput,), (f"ann:write:{'ab' * 32}",)),
    Parser("Host and Origin", by_kind(lambda host: (Hosts(["a.b"]).knows(host), Hosts([]).same_site(host, b"a"))), (),
           ("a.b:80", "[::1]:8080", "127.0.0.1", "http://a.b")),
    Parser("cookies of receivers", cookies, (), ("a=b; Path=/; HttpOnly", 'a="b"; Max-Age=9; Domain=example.org')),
    Parser("Retry-After", retry_after, (), ("120", "Fri, 31 Dec 1999 23:59:59 GMT", "Sat, 31 Jan 2099 00:00:00 +0100")),
    Parser("JSON of receivers", lambda text: response(text).json(dict), (CallFailed,), ('{"a": [1, {"b": null}]}',)),
    Parser("pages by link", lambda text: by_link(ASKED, response(text, "link")), PAGES,
           ('<https://api.example.org/?page=2>; rel="next", <x>; rel="last"',)),
    Parser("pages by header", lambda text: by_header()(ASKED, response(text, "x-next-page")),
           PAGES, ("2", "")),
    Parser("pages by token", lambda text: by_token("a.b")(ASKED, response(text)), PAGES,
           dumped({"a": {"b": "next"}})),
    Parser("pages by offset", lambda text: by_offset("issues")(ASKED, response(text)), PAGES,
           dumped({"issues": [1, 2], "total": 9})),
    Parser("URLs to call", lambda text: check_url("url", text), (InvalidInput,), ("https://a.example.org:8443/p?q=1",)),
    Parser("networks", lambda text: check_network("net", text), (InvalidInput,), ("10.1.2.0/24", "fd00::/8")),
    Parser("schemes", capabilities, (InvalidInput,), ("redis://h", "sqlite:///p", "postgresql://[::1],b/d")),
    Parser("URLs of Redis", redis, (InvalidInput,), ("user:pw@host:6379/0?namespace=a&ssl=true", "[::1]:1/2")),
    Parser("URLs of Sentinel", sentinel, (InvalidInput,), ("h:1,[::1]:2/primary?db=3&sentinel_password=x",)),
    Parser("URLs of PostgreSQL", lambda text: parse_postgres(f"postgresql://{text}"), (InvalidInput,),
           ("u:p@h:5432/d?namespace=a&sslmode=require", "h1,h2:1/d")),
    Parser("URLs of MongoDB", lambda text: parse_mongo(f"mongodb://{text}"), (InvalidInput,),
           ("u:p@h:27017,h2/d?authSource=admin&namespace=a",)),
    Parser("URLs of the service", lambda text: parse_http(f"https://{text}"), (InvalidInput,),
           ("token@host:8765/base", "[::1]:1")),
    Parser("settings in TOML", toml, (InvalidInput,),
           ('port = 8765\n[alerts]\nretention = "7d"\ngroup_by = ["name"]', "workers = 1\nlog_level='info'"),
           longest=2_000, pace=11),
    Parser("settings in the environment", environment, (InvalidInput,),
           ("PORT=8765", "TOKENS=a:read:" + "ab" * 32, "ALERTS_RETENTION=7d", 'REPOS_GITLAB={"url": "https://g"}'),
           longest=2_000, pace=11),
    Parser("stored outcomes", lambda text: values.decode(latin(text), "k"), (NotKept, WorkFailed, Unreadable),
           ('j{"a":1}', "bxyz")),
    *(
        Parser(f"stored: {kind.__name__}", by_kind(kind), (ValueError,), ())
        for kind in (
            formats.read_watermark, formats.read_breaker, formats.read_fence, formats.read_sent, formats.read_letter,
            formats.read_failure, formats.read_item, formats.read_record, formats.read_note, formats.read_run,
        )
    ),
)  # fmt: skip
