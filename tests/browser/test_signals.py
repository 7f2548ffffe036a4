"""The page of signals as people use it, in a real Chromium.

With SOLELY_TEST_SHOTS=folder the pictures stay there, to be looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from solely.apps.signals.app import SignalsApp
from tests.browser.conftest import Enter
from tests.browser.test_alerts import BECAUSE, LEGIBLE
from tests.browser.test_dashboard import CONTRAST
from tests.service.serving import TOKENS, Running, bearer

WIDTHS = (1440, 390)


def post(service: Running, group: str, *names: str, **more: Any) -> None:
    signals = [{"username": name, **more} for name in names]
    answer = service.post(f"/api/signals/{group}", {"signals": signals}, headers=bearer(TOKENS["write"]))
    assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module", autouse=True)
def filled(service: Running) -> None:
    """Something of every kind."""
    app = service.service.apps["signals"]
    assert isinstance(app, SignalsApp)
    post(service, "north/slots", *(f"player-{number}" for number in range(20)), priority=3)
    post(service, "north/slots", "player-1", "player-2")
    post(service, "south-with-a-very-long-name-of-its-house/progressive jackpot", "ann", "bob", priority=4)

    async def fails(*given: Any) -> bool:
        raise OSError("no space left on device")

    vars(app.table)["write"] = fails
    post(service, "east/keno", "eve")
    del vars(app.table)["write"]


def test_the_page_is_legible_in_light_and_dark_wide_and_narrow(enter: Enter, shots: Path) -> None:
    for scheme in ("light", "dark"):
        page = enter("/signals", color_scheme=scheme)
        expect(page.get_by_role("heading", level=1)).to_have_text("Signals")
        expect(page.locator("nav.side [aria-current=page]")).to_have_text("Signals")
        expect(page.locator("#groups tbody tr").filter(has_text="slots").first).to_contain_text("20")
        ratio, where = page.evaluate(CONTRAST)
        assert ratio >= LEGIBLE, where
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.screenshot(path=shots / f"signals-{scheme}-{width}.png", full_page=True)


def test_an_admin_replays_dead_letters_and_switches_the_flag(enter: Enter, shots: Path) -> None:
    page = enter("/signals")
    expect(page.locator("#letters tbody tr")).to_contain_text("no space left on device")
    page.get_by_role("button", name="Replay all").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("Replay 1 dead letter of signals?")
    dialog.get_by_label("Reason").fill(BECAUSE)
    page.screenshot(path=shots / "signals-replay.png")
    dialog.get_by_role("button", name="Replay").click()
    expect(page.locator("#letters")).to_contain_text("No signal failed.")
    page.get_by_role("button", name="Switch idempotent signals off").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("Disable idempotent signals?")
    dialog.get_by_label("Reason").fill(BECAUSE)
    dialog.get_by_role("button", name="Disable").click()
    expect(page.locator("#region")).to_contain_text("Idempotent signals are off: admin")
    page.screenshot(path=shots / "signals-off.png", full_page=True)
    page.get_by_role("button", name="Switch idempotent signals on").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Reason").fill(BECAUSE)
    dialog.get_by_role("button", name="Enable").click()
    expect(page.get_by_role("button", name="Switch idempotent signals off")).to_be_visible()


def test_the_page_follows_what_happens_and_offers_nothing_to_who_may_only_look(enter: Enter, service: Running) -> None:
    page = enter("/signals", scope="read")
    expect(page.get_by_role("button", name="Switch")).to_have_count(0)
    post(service, "west/bingo", "zoe", priority=9)
    expect(page.locator("#waiting tbody tr").first).to_contain_text("zoe")
