"""The pages of the prober as people use them, in a real Chromium.

With SOLELY_TEST_SHOTS=folder the pictures stay there, to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.apps.hooks import Answer, hooks_aside
from tests.browser.conftest import Enter
from tests.browser.test_dashboard import CONTRAST
from tests.service.serving import LINES, TOKENS, Running, bearer, running, until

PAGES = {"/probes": "Probes", "/probes/target?name=shop": "shop", "/status": "Status"}
LEGIBLE = 4.5  # contrast that WCAG 2 asks for, level AA
BECAUSE = "a test wants it"
SOON = 60.0


@pytest.fixture(scope="module")
def service(store: str) -> Iterator[Running]:
    """A service with targets that are up, down and paused."""
    with hooks_aside() as site, hooks_aside() as broken:
        broken.answers.extend([Answer(503)] * 100_000)
        base = {"interval": 1, "public": True}
        targets = [
            {"name": "shop", "url": site.url, "title": "Shop", **base},
            {"name": "search", "url": broken.url, "title": "Search of the whole catalogue", **base},
            {"name": "legacy", "url": f"tcp://127.0.0.1:{site.port}", **base},
        ]
        section = {"targets": targets, "guard_allow": ["127.0.0.0/8"]}
        with running(url=store, tokens=LINES, apps=("probes",), probes=section) as it:
            until(lambda: states(it) == {"shop": "UP", "search": "DOWN", "legacy": "UP"}, SOON)
            for name in ("shop", "search") * 15:  # on demand, which is sooner than at their intervals
                assert it.post("/api/probes/run", {"name": name}, headers=bearer(TOKENS["write"])).status_code == 200
            post(it, "pause", name="legacy")
            post(it, "maintenance", targets=["shop"], lasts="3h")
            until(lambda: len(results(it, "search")) > 15 and len(results(it, "shop")) > 15, SOON)
            yield it


def states(service: Running) -> dict[str, str]:
    answer = service.get("/api/probes/targets", headers=bearer(TOKENS["read"])).json()
    return {each["name"]: each["state"] for each in answer["targets"]}


def results(service: Running, target: str) -> list[Any]:
    path = "/api/probes/results"
    return list(service.get(path, params={"target": target}, headers=bearer(TOKENS["read"])).json()["results"])


def post(service: Running, path: str, **body: Any) -> None:
    answer = service.post(f"/api/probes/{path}", {"reason": BECAUSE, **body}, headers=bearer(TOKENS["admin"]))
    assert answer.status_code == 200, answer.text


def row(page: Page, name: str) -> Any:
    return page.locator(f'#targets tr[data-key="{name}"]')


def test_every_page_renders_and_is_legible_in_light_and_in_dark(enter: Enter, shots: Path) -> None:
    page = enter("/probes")
    for path, title in PAGES.items():
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        for colors in ("light", "dark"):
            page.emulate_media(color_scheme=colors)
            for width in (1440, 390):
                page.set_viewport_size({"width": width, "height": 900})
                name = title.lower()
                page.screenshot(path=shots / f"probes-{name}-{colors}-{width}.png", full_page=True)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            ratio, where = page.evaluate(CONTRAST)
            assert ratio >= LEGIBLE, (path, colors, where)


def test_the_worst_target_is_the_first_and_says_why(enter: Enter) -> None:
    page = enter("/probes")
    expect(page.locator("#targets tbody tr").first).to_contain_text("Search of the whole catalogue")
    expect(row(page, "search")).to_contain_text("status 503 is not 2xx")
    expect(row(page, "search").locator("svg.bars rect.down").first).to_be_visible()
    expect(row(page, "shop")).to_contain_text("maintenance")
    expect(row(page, "legacy")).to_contain_text("paused")


def test_a_target_is_added_and_paused_on_the_page(enter: Enter, service: Running) -> None:
    page = enter("/probes")
    page.get_by_role("button", name="Add a target…").click()
    page.locator("dialog [name=name]").fill("added")
    page.locator("dialog [name=url]").fill("http://127.0.0.1:1/")
    page.locator("dialog [name=interval]").fill("3600")
    page.locator("dialog [name=reason]").fill(BECAUSE)
    page.locator("dialog button[type=submit]").click()
    expect(row(page, "added")).to_contain_text("pending")
    page.get_by_role("button", name="Pause added").click()
    page.locator("dialog [name=reason]").fill(BECAUSE)
    page.locator("dialog button[type=submit]").click()
    expect(row(page, "added")).to_contain_text("paused")
    assert states(service)["added"] == "PAUSED"
    post(service, "targets/remove", name="added")


def test_everybody_sees_the_status_page(enter: Enter, service: Running) -> None:
    page = enter("/probes")
    page.context.clear_cookies()
    page.goto("/status")
    expect(page.get_by_role("status")).to_have_text("1 of 3 is down.")
    expect(page.locator("body")).not_to_contain_text("127.0.0.1")
