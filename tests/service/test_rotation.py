"""Tokens come and go with their file, without a restart; a file that cannot be changes nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from structlog.testing import CapturingLogger

from solely.service import token_file
from solely.service.security import Scope, mint
from solely.service.service import Service
from solely.service.token_file import TokenFileWatch
from tests.service.serving import LINES, TOKENS, Process, Running, bearer, running, settings, until

OLD, OLD_LINE = mint("ci", Scope.ADMIN)
NEW, NEW_LINE = mint("ci", Scope.ADMIN)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"{OLD_LINE}\n")
    return path


@pytest.fixture
def service(file: Path) -> Iterator[Running]:
    with running(tokens_file=str(file)) as it:
        yield it


def status(it: Running, token: str) -> int:
    return it.get("/version", headers=bearer(token)).status_code


def test_a_token_is_replaced_without_a_gap(service: Running, file: Path) -> None:
    assert (status(service, OLD), status(service, NEW)) == (200, 401)
    file.write_text(f"# both\n{OLD_LINE}\n{NEW_LINE}\n")
    until(lambda: status(service, NEW) == 200)
    assert status(service, OLD) == 200
    other = file.with_name("written-beside")
    other.write_text(f"{NEW_LINE}\n")
    os.replace(other, file)
    until(lambda: status(service, OLD) == 401)
    assert status(service, NEW) == 200


def test_sessions_and_streams_end_with_their_token(service: Running, file: Path) -> None:
    with httpx2.Client(base_url=service.address, timeout=60.0) as browser:
        form = {"token": OLD, "next": "/locks", "csrf": service.service.sessions.csrf("")}
        assert browser.post("/login", data=form).status_code == 303
        assert browser.get("/locks").status_code == 200
        heard: list[str] = []
        began = threading.Event()

        def follow() -> None:
            with service.http.stream("GET", "/v1/events", headers=bearer(OLD)) as stream:
                for line in stream.iter_lines():
                    heard.append(line)
                    began.set()

        reader = threading.Thread(target=follow)
        reader.start()
        assert began.wait(10)
        file.write_text(f"{NEW_LINE}\n")
        until(lambda: browser.get("/locks").status_code == 303)
        service.post("/v1/marks", {"keys": ["after the end"]}, headers=bearer(NEW))
        reader.join(10)
        assert not reader.is_alive()
        assert "after the end" not in "".join(heard)


def test_whoever_needed_no_token_needs_one_from_then_on(file: Path) -> None:
    file.write_text("# none yet\n")
    with running(tokens_file=str(file)) as it:
        assert it.get("/version").status_code == 200
        assert it.get("/openapi.json").json()["paths"]["/version"]["get"]["security"] == []
        file.write_text(f"{OLD_LINE}\n")
        until(lambda: it.get("/version").status_code == 401)
        assert status(it, OLD) == 200
        assert it.get("/openapi.json").json()["paths"]["/version"]["get"]["security"] == [{"bearer": []}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no token would be left"),
        ("# nobody\n", "no token would be left"),
        (f"{NEW_LINE}\nswordfish\n", "name:scope:digest"),
        ("\n".join(mint("ci", Scope.READ)[1] for _ in range(3)), "may be valid at once"),
        (None, "cannot be read"),
    ],
    ids=["empty", "comments", "no-token", "three", "gone"],
)
async def test_a_file_that_cannot_be_is_told_once_and_changes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, said: str
) -> None:
    told = CapturingLogger()
    monkeypatch.setattr(token_file, "log", told)
    service = Service(settings(tokens_file=str(file)))
    watch = TokenFileWatch(service.settings, service.tokens, service.connections)
    await watch.check()
    assert told.calls == [], "nothing has changed"
    file.unlink()
    if text is not None:
        file.write_text(text)
    for _ in range(3):
        await watch.check()
    (call,) = told.calls
    assert (call.method_name, call.args) == ("error", ("tokens_not_read",))
    assert said in call.kwargs["error"]
    assert "swordfish" not in str(call)
    assert service.tokens.whose(OLD.encode()) is not None
    assert service.tokens.whose(NEW.encode()) is None
    file.write_text(f"{NEW_LINE}\n")
    await watch.check()
    assert [call.args for call in told.calls[1:]] == [("tokens_changed",)]
    assert told.calls[1].kwargs == {"added": ["ci"], "removed": ["ci"]}
    assert service.tokens.whose(OLD.encode()) is None
    assert service.tokens.whose(NEW.encode()) is not None


async def test_tokens_of_the_settings_stay(file: Path) -> None:
    service = Service(settings(tokens_file=str(file), tokens=LINES))
    watch = TokenFileWatch(service.settings, service.tokens, service.connections)
    file.write_text("")
    await watch.check()
    assert service.tokens.whose(OLD.encode()) is None
    assert service.tokens.whose(TOKENS["read"].encode()) is not None


def test_every_worker_reads_it_again(file: Path, tmp_path: Path) -> None:
    flags = ("--workers", "2", "--url", f"sqlite:///{tmp_path}/store.db", "--set", f"tokens_file={file}")
    with Process(tmp_path, *flags, "--set", "apps=none") as process:
        address = process.address()

        def answers(token: str) -> set[int]:
            """What new connections are answered, of which each worker takes some."""
            return {httpx2.get(f"{address}/version", headers=bearer(token), timeout=60).status_code for _ in range(12)}

        until(lambda: answers(OLD) == {200})
        file.write_text(f"{NEW_LINE}\n")
        # A worker that starts only now reads the new file at once, and has no change to log.
        until(lambda: answers(NEW) == {200} and answers(OLD) == {401})
        assert "tokens_changed" in process.log.read_text()
