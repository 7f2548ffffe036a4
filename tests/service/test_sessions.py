"""Sessions of the dashboard end for good with their logout; logins that fail are in the log."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from solely.errors import StoreUnavailable
from tests.service.serving import LINES, TOKENS, Running, bearer, running, until
from tests.service.test_dashboard import logged_in


@contextmanager
def copied(it: Running, client: httpx2.Client) -> Iterator[httpx2.Client]:
    """A second browser, with the cookie of the first."""
    with httpx2.Client(base_url=it.address, timeout=20.0) as thief:
        thief.cookies.update({it.service.sessions.COOKIE: client.cookies[it.service.sessions.COOKIE]})
        yield thief


def test_a_copied_cookie_is_worthless_after_logout(guarded: Running) -> None:
    with logged_in(guarded, "admin") as (client, csrf), copied(guarded, client) as thief:
        assert thief.get("/locks").status_code == 200
        assert thief.get("/v1/events/last").status_code == 200
        assert client.post("/logout", data={"csrf": csrf}).status_code == 303
        assert thief.get("/locks").headers["location"].startswith("/login")
        assert thief.get("/v1/events/last").status_code == 401
        wanted = {"key": "lock/a", "fence": 1, "reason": "because"}
        assert thief.post("/v1/entries/clear", json=wanted, headers={"x-csrf-token": csrf}).status_code == 401
        assert thief.post("/logout", data={"csrf": csrf}).status_code == 401


def test_a_logout_ends_one_session_and_no_other(guarded: Running) -> None:
    with logged_in(guarded, "read") as (client, csrf), logged_in(guarded, "read") as (other, _):
        assert client.post("/logout", data={"csrf": csrf}).status_code == 303
        assert other.get("/locks").status_code == 200


def test_a_logout_holds_for_all_hosts_that_share_the_store(tmp_path: Path) -> None:
    shared: dict[str, Any] = {
        "url": f"sqlite:///{tmp_path / 'store.db'}",
        "session_secret": secrets.token_hex(32),
        "tokens": LINES,
    }
    with (
        running(**shared) as here,
        running(**shared) as there,
        logged_in(here, "read") as (client, csrf),
        copied(there, client) as thief,
    ):
        assert thief.get("/locks").status_code == 200
        assert client.post("/logout", data={"csrf": csrf}).status_code == 303
        assert thief.get("/locks").status_code == 303


def test_a_stream_ends_with_its_session(guarded: Running) -> None:
    with logged_in(guarded, "read") as (client, csrf), copied(guarded, client) as thief:
        began = threading.Event()

        def follow() -> None:
            with thief.stream("GET", "/v1/events") as stream:
                for _ in stream.iter_lines():
                    began.set()

        reader = threading.Thread(target=follow)
        reader.start()
        assert began.wait(10)
        assert client.post("/logout", data={"csrf": csrf}).status_code == 303
        reader.join(20)
        assert not reader.is_alive()


def test_what_a_session_ended_under_is_out_of_reach_of_its_readers(guarded: Running) -> None:
    """Neither the cookie nor what would make one is in the store."""
    with logged_in(guarded, "read") as (client, csrf):
        cookie = client.cookies[guarded.service.sessions.COOKIE]
        assert client.post("/logout", data={"csrf": csrf}).status_code == 303
    kept = guarded.run(guarded.service.store.scan("mark/~service/", "", 100))
    assert kept
    assert all(part not in str(kept) for part in cookie.split("."))


def test_without_the_store_no_session_is_believed(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was ended cannot be told then. Tokens, which need no store to be checked, are still known."""

    async def away(*_: object) -> Any:
        raise StoreUnavailable("no answer")

    with logged_in(guarded, "admin") as (client, csrf):
        with monkeypatch.context() as patch:
            patch.setattr(guarded.service.store, "perform", away)
            refused = client.get("/")
            assert (refused.status_code, refused.json()["type"]) == (503, "/policy#store-away")
            assert "retry-after" in refused.headers
            assert client.post("/logout", data={"csrf": csrf}).status_code == 503
            assert guarded.get("/version", headers=bearer(TOKENS["read"])).status_code == 200
        assert client.get("/").status_code == 200


# -- logins that fail


def test_a_failed_login_is_logged_without_its_token(guarded: Running) -> None:
    wrong = "Invalid token"
    form = {"csrf": guarded.service.sessions.csrf(""), "token": wrong}
    with structlog.testing.capture_logs() as lines:
        assert guarded.http.post("/login", data=form).status_code == 401
    (line,) = [line for line in lines if line["event"] == "login_failed"]
    assert line["log_level"] == "warning"
    assert line["address"] == "127.0.0.1"
    assert hashlib.sha256(wrong.encode()).hexdigest().startswith(line["digest"])
    assert wrong not in str(lines)


def requests_of(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["event"] == "request"]


@pytest.mark.parametrize(
    ("headers", "status"), [({}, 401), (bearer("nobody's"), 401), (bearer(TOKENS["read"]), 403)], ids=str
)
def test_a_request_that_is_denied_is_logged_without_an_access_log(
    guarded: Running, headers: dict[str, str], status: int
) -> None:
    """As the setting access_log says: without it there is a line only of those that failed."""
    with structlog.testing.capture_logs() as lines:
        assert guarded.post("/v1/entries/clear", {}, headers=headers).status_code == status
        assert guarded.get("/version", headers=bearer(TOKENS["read"])).status_code == 200
        # It is written after the answer; so may be that of an earlier test.
        (line,) = until(lambda: [each for each in requests_of(lines) if each["route"] == "/v1/entries/clear"])
    facts = (line["method"], line["status"], line["address"], line["log_level"])
    assert facts == ("POST", status, "127.0.0.1", "warning")
    assert not [each for each in requests_of(lines) if each["route"] == "/version"]
    assert "nobody's" not in str(lines)


def test_with_an_access_log_there_is_a_line_per_request() -> None:
    with running(access_log=True) as it, structlog.testing.capture_logs() as lines:
        assert it.get("/version").status_code == 200
        (line,) = until(lambda: requests_of(lines))
    assert (line["route"], line["status"], line["log_level"]) == ("/version", 200, "info")
