"""A real Chromium, Debian's, and a real service on Redis (Valkey) with something in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.conftest import CHROMIUM, isolated
from tests.service.serving import LINES, TOKENS, Running, running

HOST = "solely.test"  # a name of this machine, at which plain HTTP is not trusted as it is on loopback
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", f"--host-resolver-rules=MAP {HOST} 127.0.0.1",
]  # fmt: skip
PATIENCE = 10_000  # ms until a page that does not come up fails its test: it takes some tenths of a second

REFUSED = "Failed to load resource: the server responded with a status of"  # as Chromium complains

Enter = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser; tests that need it are not collected where there is none, and the summary names it.

    It runs an event loop on this thread for as long as it is there: so not beyond its own tests.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def store(request: pytest.FixtureRequest) -> str:
    """The URL of the Redis that the service and the other processes share."""
    return isolated(request.getfixturevalue("valkey_url"))


@pytest.fixture(scope="module")
def service(store: str) -> Iterator[Running]:
    """The service on it, with a token of each scope."""
    with running(url=store, tokens=LINES, allowed_hosts=[HOST]) as it:
        yield it


@pytest.fixture
def enter(chromium: Browser, service: Running) -> Iterator[Enter]:
    """Opens a page of somebody who has logged in. In the end, no page may have complained about anything but the
    statuses that the test expects."""
    contexts, complaints = [], list[str]()

    def open_page(path: str = "/", scope: str = "admin", statuses: tuple[int, ...] = (), **options: Any) -> Page:
        expected = tuple(f"{REFUSED} {status} " for status in statuses)

        def complain(said: ConsoleMessage) -> None:
            if said.type in ("error", "warning") and not (expected and said.text.startswith(expected)):
                complaints.append(said.text)

        context = chromium.new_context(**{"base_url": service.address, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path)
        page.get_by_label("Token").fill(TOKENS[scope])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("header.top")
        page.wait_for_load_state()  # its script has run: before that a button asks on a page of its own
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where pictures go: SOLELY_TEST_SHOTS, to be looked at, or away."""
    folder = Path(os.environ.get("SOLELY_TEST_SHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
