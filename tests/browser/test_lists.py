"""Lists as people use them, in a real Chromium: pages, order, filters, search, events, and all of a host.

With SOLELY_TEST_SHOTS=folder the pictures stay there, to be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from solely.model import Finding
from tests.browser.conftest import Enter
from tests.browser.demonstrated import APP_LISTS, LISTS, OTHER_HOST, addresses, demonstrate
from tests.service.serving import LINES, Running, running, until

WATCH = """window.updates = 0;
let morph;
Object.defineProperty(window, "morph", {
  get: () => morph,
  set: given => { morph = (...its) => { given(...its); window.updates += 1; }; },
});
"""
PATIENCE = 30_000  # ms for a change to be seen on a machine that others use too


@pytest.fixture(scope="module")
def service(store: str) -> Iterator[Running]:
    """All applications, with demo data."""
    with running(url=store, tokens=LINES) as it:
        demonstrate(it)
        yield it


def keys(page: Page) -> list[str]:
    """The rows that the list shows."""
    rows: list[str] = page.locator("#region tr[data-key]").evaluate_all("rows => rows.map(row => row.dataset.key)")
    return rows


def watched(page: Page) -> Page:
    """The page, which counts from now on how often its live region is updated."""
    page.add_init_script(WATCH)
    return page


def updated(page: Page) -> None:
    """Waits until the live region was updated: its links are then those that the stream sent."""
    until(lambda: page.evaluate("window.updates > 0"))


def turn(page: Page, name: str, title: str) -> list[str]:
    """Follows this link of the list, after an update; the rows of the page that it opens."""
    updated(page)
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    assert "format=" not in page.url
    return keys(page)


@pytest.mark.parametrize("lists", [LISTS, APP_LISTS], ids=["of the dashboard", "of applications"])
def test_next_and_previous_turn_the_pages_of_every_list(enter: Enter, service: Running, lists: dict[str, str]) -> None:
    page = watched(enter())
    for path, title in addresses(service, lists).items():
        page.goto(path + ("&" if "?" in path else "?") + "limit=2")
        first = keys(page)
        second = turn(page, "Next", title)
        assert len(second) >= 1, path
        third = turn(page, "Next", title)
        assert second != third, path
        again = turn(page, "Previous", title), turn(page, "Previous", title)
        assert again == (second, first) or (lists is APP_LISTS and all(again)), path  # there, new rows come meanwhile
        expect(page.get_by_role("link", name="Previous")).to_have_count(0)


def test_a_list_is_sorted_and_filtered_by_its_address(enter: Enter) -> None:
    page = enter("/locks", statuses=(400,))
    expect(page.locator("#region")).not_to_contain_text("~signals")  # keys of applications are not shown
    page.get_by_role("link", name="Fence").click()
    expect(page.locator("[aria-sort=descending]")).to_have_text("Fence")
    found = page.locator("td.fence").all_text_contents()
    assert [int(text) for text in found] == sorted(map(int, found), reverse=True)
    page.get_by_role("link", name="Fence").click()
    expect(page.locator("[aria-sort=ascending]")).to_have_text("Fence")
    page.get_by_label("Containing").fill("ged:3")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#region th .key")).to_have_text(["paged:3"])
    assert page.url.endswith("/locks?text=ged%3A3&sort=fence")
    page.goto("/claims?state=held&prefix=paged:")
    expect(page.locator("#region .empty")).to_contain_text("matches the filter")
    page.goto("/locks?sort=weight")
    expect(page.locator("main")).to_contain_text("'weight' is not one of key, state")


def test_all_of_a_host_is_released_after_a_look_at_what_that_is(enter: Enter, service: Running, shots: Path) -> None:
    page = enter("/locks?text=dead:")
    page.get_by_role("link", name=f"{OTHER_HOST} pid 7").first.click()
    expect(page.locator("#region th .key")).to_have_count(5)
    page.get_by_role("button", name=f"Release all of {OTHER_HOST}…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Release 5 keys that {OTHER_HOST} holds?")
    expect(dialog).to_contain_text("5: dead:0, dead:1, dead:2, dead:3, dead:4")
    page.screenshot(path=shots / "release-host.png")
    dialog.get_by_label("Reason").fill("its disk died")
    dialog.get_by_role("button", name="Release").click()
    expect(page.get_by_role("status")).to_contain_text("in the audit log")
    page.goto("/locks?text=dead:")
    expect(page.locator("#region .empty")).to_be_visible()
    page.goto("/audit")
    expect(page.get_by_role("row").nth(1)).to_contain_text("done released 5")


def test_the_search_opens_a_key_and_lists_those_that_are_like_a_part_of_one(enter: Enter, shots: Path) -> None:
    page = enter()
    box = page.get_by_role("searchbox")
    box.fill("aged:")
    box.press("Enter")
    expect(page.get_by_role("heading", level=2)).to_contain_text(["Locks", "Claims", "Reservations", "Marks"])
    expect(page.locator("#main")).to_contain_text("No key is exactly aged:")
    page.screenshot(path=shots / "search.png")
    locks = page.locator("section").filter(has=page.get_by_role("heading", name="Locks"))
    expect(locks.get_by_role("link", name="paged:", exact=False)).to_have_count(5)
    expect(locks).to_contain_text("contains it")
    box.fill("paged:")
    box.press("Enter")
    expect(locks).to_contain_text("begins with it")
    box.fill("nobody-has-this")
    box.press("Enter")
    expect(page.locator(".empty")).to_contain_text("No key begins with nobody-has-this, and none contains it.")
    box.fill("paged:1")
    box.press("Enter")
    page.wait_for_url(re.compile(r"paged"))
    expect(page.locator("main")).to_contain_text("paged:1")
    assert "/search" not in page.url


def test_events_are_sentences_that_are_counted_filtered_and_paused(enter: Enter, service: Running, shots: Path) -> None:
    async def burst(name: str) -> None:
        for number in range(100):
            await service.service.once.first(f"{name}:{number}", ttl=600)

    page = enter("/events")
    page.get_by_label("Kind").select_option("mark")
    page.get_by_label("Key contains").fill("burst")
    page.get_by_role("button", name="Show").click()
    service.run(burst("burst:a"))
    counted = page.locator("tr").filter(has_text="burst:a:*").first
    expect(counted).to_contain_text("× marked for the first time", timeout=PATIENCE)
    page.screenshot(path=shots / "events.png")
    assert set(page.locator(".events td:nth-child(2)").all_text_contents()) <= {"mark burst:a:*"} | {
        f"mark burst:a:{number}" for number in range(100)
    }
    page.get_by_role("button", name="Live updates").click()
    expect(page.locator("#live")).to_have_text("Paused")
    service.run(burst("burst:b"))
    expect(page.locator("#region")).not_to_contain_text("burst:b")
    page.get_by_role("button", name="Live updates").click()
    expect(page.locator("tr").filter(has_text="burst:b:*").first).to_be_visible(timeout=PATIENCE)


def test_a_replay_that_replayed_nothing_is_not_green(enter: Enter, service: Running) -> None:
    async def done() -> None:
        once = service.service.once
        for number in range(2):
            claim = await once.claim(f"done:{number}", ttl=60)
            await claim.publish({"charge": number})
            await once.dead_letters("done").push({"n": number}, error="Timeout: slow", key=f"done:{number}")

    ran: list[Any] = []
    service.service.dashboard.replays["done"] = ran.append
    service.run(done())
    page = enter("/dead-letters?group=done")
    page.get_by_role("button", name="Replay all…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Replay 2 dead letters of 'done'?")  # nothing runs before somebody confirms it
    dialog.get_by_role("button", name="Replay").click()
    result = page.get_by_label("Replay", exact=True).first
    expect(result).to_contain_text("2 of 2 · 2 skipped", timeout=PATIENCE)
    expect(result.locator(".badge")).to_have_class("badge warning")
    expect(result.locator(".badge")).to_contain_text("nothing replayed")
    assert ran == []


def test_problems_are_pages_and_the_login_is_in_the_middle(enter: Enter, service: Running, shots: Path) -> None:
    page = enter("/locks", statuses=(404, 400))
    for path, text in (("/no-such-page", "Not found"), ("/v1/entries/explain", "Invalid request")):
        answer = page.goto(path)
        assert answer is not None
        assert answer.headers["content-type"].startswith("text/html")
        expect(page.get_by_role("heading", level=1)).to_have_text(text)
        assert page.evaluate("getComputedStyle(document.querySelector('.card')).borderTopWidth") == "1px"
    page.screenshot(path=shots / "problem.png")
    assert service.get("/no-such-page").headers["content-type"] == "application/problem+json"
    page.goto("/login")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        box = page.locator("main").bounding_box()
        assert box is not None
        assert abs(2 * box["x"] + box["width"] - width) <= 2
        assert abs(2 * box["y"] + box["height"] - 900) <= 2
        page.screenshot(path=shots / f"login-{width}.png")


def test_a_warning_about_the_store_is_folded(enter: Enter, service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(*of: object) -> list[Finding]:
        return [Finding("warning", "version", "use a later one"), Finding("ok", "grants", "the store grants")]

    monkeypatch.setattr("solely.service.dashboard.overview.findings", found)
    service.on_loop(service.service.dashboard.views.clear)
    page = watched(enter())
    page.goto("/")
    folded = page.locator("#store-warnings")
    expect(folded).to_contain_text("1 warning about the store, which needs no action now")
    expect(folded.get_by_text("use a later one")).not_to_be_visible()
    folded.locator("summary").click()
    page.evaluate("window.updates = 0")
    updated(page)
    expect(folded.get_by_text("use a later one")).to_be_visible()  # it stays open while the page is updated
    expect(page.locator(".attention > ul")).not_to_contain_text("use a later one")
