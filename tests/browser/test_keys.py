"""The page of one key and the charts, as people use them, in a real Chromium."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Enter
from tests.service.serving import TOKENS, Running

PATIENCE = 60_000  # ms: a machine can be very busy
WRITER = {"authorization": f"Bearer {TOKENS['write']}", "solely-holder": "web-3 pid 4711"}


def act(service: Running, path: str, body: dict[str, object]) -> dict[str, str]:
    answer = service.post(f"/v1/locks/{path}", body, headers=WRITER)
    found: dict[str, str] = answer.json()
    return found


def test_a_lock_leads_to_its_page_which_says_who_waits_and_what_happened(
    enter: Enter, service: Running, shots: Path
) -> None:
    lease = act(service, "acquire", {"key": "deploy/web", "ttl": 600, "purpose": "release 4.2"})
    for _ in range(14):
        act(service, "renew", {"token": lease["token"]})
    act(service, "acquire", {"key": "deploy/web"})
    waiter = threading.Thread(target=act, args=(service, "acquire", {"key": "deploy/web", "wait": 50}))
    waiter.start()
    page = enter("/locks")
    page.get_by_role("link", name="deploy/web").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Lock deploy/web")
    expect(page.locator("nav.side [aria-current=page]")).to_have_text("Locks")
    facts = page.locator("dl.facts")
    expect(facts).to_contain_text("writeer, web-3 pid 4711 from 127.0.0.1")
    expect(facts).to_contain_text("release 4.2")
    expect(page.locator(".waiting li")).to_have_count(1, timeout=PATIENCE)
    lines = page.locator(".timeline li:not(.day)")
    expect(lines).to_have_count(3)
    expect(lines.nth(0)).to_contain_text("refused")
    expect(lines.nth(1)).to_contain_text("14 times")
    expect(lines.nth(2)).to_contain_text("acquired")
    page.screenshot(path=shots / "key-1440-light.png", full_page=True)
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 900})
    release_it(page)
    expect(lines.filter(has_text="its host is gone")).to_have_count(1, timeout=PATIENCE)  # live
    expect(lines.filter(has_text="adminer")).to_have_count(1)
    waiter.join(60)


def release_it(page: Page) -> None:
    page.get_by_role("button", name="Release deploy/web").click()
    page.get_by_label("Reason").fill("its host is gone")
    page.get_by_role("button", name="Release", exact=True).click()
    page.goto("/keys/lock/deploy/web")


@pytest.mark.parametrize("path", ["/", "/alerts"])
def test_charts_have_ranges_and_values_under_the_cursor(enter: Enter, path: str, shots: Path) -> None:
    page = enter(path)
    chart = page.locator("figure.chart").first
    expect(chart.locator("canvas")).to_have_count(1, timeout=PATIENCE)
    latest = chart.locator("time.at").inner_text()
    assert latest
    box = chart.locator(".plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + box["height"] / 2)
    expect(chart).to_have_class("chart pointed")
    expect(chart.locator(".value").first).to_contain_text("/s")
    page.screenshot(path=shots / "chart.png")
    page.get_by_role("link", name="7 days").click()
    expect(page.locator("#range-7d")).to_have_attribute("aria-current", "true")
    assert "range=7d" in page.url
    expect(page.locator("#live")).to_have_text("Live")
