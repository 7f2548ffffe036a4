"""What `tests/test_parsers.py` found, each by name."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import msgspec
import pytest

from solely.apps.repos.forges.moments import moment_of
from solely.apps.repos.jira import text_of
from solely.errors import InvalidInput
from solely.names import part_of
from solely.outgoing.cookies import CookieJar
from solely.outgoing.message import CallFailed
from solely.outgoing.pages import by_link
from solely.schedules.cron import CronExpression
from solely.schedules.timetable import timetable
from solely.service.settings import load
from solely.stores import open_store
from tests.parsers import ASKED, FORM, GITHUB, GITLAB, response

DIGITS = "9" * 5_000  # more than int() reads
DEEP = b'{"object_kind": "note", "x": ' + b"[" * 100_000


@pytest.mark.parametrize("text", [f"{DIGITS} * * * *", f"*/{DIGITS} * * * *", f"0-{DIGITS} * * * *"])
def test_a_cron_expression_with_thousands_of_digits_is_invalid(text: str) -> None:
    with pytest.raises(InvalidInput, match="minute"):
        CronExpression.parse(text)


def test_a_time_zone_of_thousands_of_dots_does_not_exist() -> None:
    with pytest.raises(InvalidInput, match="there is no time zone"):
        timetable("n", "@daily", "Europe" + "." * 5_000, 0.0)


@pytest.mark.parametrize("body", [DEEP, b'{"object_kind": "note", "\xff": 1}'])
def test_a_webhook_that_is_nested_too_deep_or_is_no_utf_8_is_parked(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):  # on which the endpoint parks it and answers 200
        GITLAB.read(lambda name: "", body)
    headers = {"x-github-event": "issue_comment"}
    with pytest.raises(msgspec.DecodeError):
        GITHUB.read(lambda name: headers.get(name, ""), body)


def test_a_form_of_github_with_too_many_fields_is_parked() -> None:
    headers = {"x-github-event": "pull_request", "content-type": FORM}
    with pytest.raises(msgspec.DecodeError, match="form"):
        GITHUB.read(lambda name: headers.get(name, ""), b"a=1&" * 20)


def test_a_signed_timestamp_of_thousands_of_digits_is_not_authentic() -> None:
    headers = {"webhook-timestamp": f"{int(time.time()):012}{DIGITS}", "webhook-signature": "v1,AAAA"}
    assert not GITLAB.speaks_for(lambda name: headers.get(name, ""), b"{}")


@pytest.mark.parametrize("content", [5, "text", [None, "text"], {"a": 1}])
def test_a_description_of_jira_in_another_form_is_empty(content: Any) -> None:
    assert text_of({"content": content}) == ""


def test_a_description_of_jira_may_be_nested_deep() -> None:
    document: dict[str, Any] = {"text": "inside"}
    for _ in range(900):
        document = {"content": [document]}
    assert text_of(document) == ""
    assert text_of({"content": [{"content": [{"text": "inside"}]}]}) == "inside"


def test_a_time_of_a_forge_that_is_a_long_row_of_spaces_takes_no_time() -> None:
    with pytest.raises(ValueError, match="1000002 characters"):
        moment_of("2" + " " * 1_000_000 + "x")


def test_a_response_that_is_nested_too_deep_is_a_failed_call() -> None:
    with pytest.raises(CallFailed, match="not expected"):
        response(DEEP.decode()).json(dict)


def test_a_link_without_a_relation_leads_nowhere() -> None:
    assert by_link(ASKED, response('<https://api.example.org/?page=2>; rel=""', "link")) is None


def test_cookies_with_an_empty_attribute_are_ignored() -> None:
    jar = CookieJar()
    jar.keep(ASKED, httpx2.Headers([(b"set-cookie", b"a=1; Max-Age"), (b"set-cookie", b"b=2; Max-Age=9")]))
    assert jar.values() == {"b": "2"}


@pytest.mark.parametrize(
    "url",
    ["postgresql://\ud800/d", "postgresql://%F0:p@h/d", "mongodb://h/d?a=\ud800", "https://[", f"redis://h:{DIGITS}"],
)
def test_an_invalid_url_of_a_store_is_invalid_input(url: str) -> None:
    with pytest.raises(InvalidInput):
        open_store(url)


def test_a_secret_in_the_environment_that_is_no_utf_8_is_invalid_and_not_shown() -> None:
    with pytest.raises(InvalidInput, match=r"repos\.gitlab") as refused:
        load(None, {"SOLELY_REPOS_GITLAB": '\udcff{"token": "very-secret-token"}'})
    assert "very-secret" not in str(refused.value)


def test_a_part_of_a_key_may_have_half_of_a_surrogate_pair() -> None:
    assert part_of("\ud800") == "%ED%A0%80"
    assert len(part_of("\ud800" * 500)) == 65
