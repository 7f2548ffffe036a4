"""Acknowledging on the pages of the alert receiver, in a real Chromium."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import Enter
from tests.browser.test_alerts import LEGIBLE, send
from tests.browser.test_dashboard import CONTRAST
from tests.service.serving import Running


def test_somebody_acknowledges_an_alert_and_takes_it_back(enter: Enter, service: Running, shots: Path) -> None:
    assert send(service, "node-1", group="rack 7") == "published"
    assert send(service, "node-2", group="rack 7", name="Node down") == "suppressed"
    page = enter("/alerts/why?fingerprint=node-2", scope="write")
    expect(page.locator("#region")).to_contain_text("It shares notifications with its group rack 7, of which 2 fire")
    page.get_by_role("button", name="Acknowledge node-2").click()
    dialog = page.locator("dialog[open]")
    expect(dialog.get_by_label("At most for")).to_have_value("1d")
    dialog.get_by_label("At most for").fill("2h")
    dialog.get_by_label("Comment").fill("replacing the power supply")
    page.screenshot(path=shots / "acknowledge-dialog.png")
    dialog.get_by_role("button", name="Acknowledge").click()
    expect(page.locator(".verdict")).to_contain_text("replacing the power supply")
    page.screenshot(path=shots / "acknowledged-why.png", full_page=True)
    page.goto("/alerts")
    listed = page.locator("#acknowledged tbody tr").filter(has_text="node-2")
    expect(listed).to_contain_text("writeer")
    ratio, where = page.evaluate(CONTRAST)
    assert ratio >= LEGIBLE, where
    page.screenshot(path=shots / "acknowledged-overview.png", full_page=True)
    page.set_viewport_size({"width": 360, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.screenshot(path=shots / "acknowledged-phone.png", full_page=True)
    page.locator("#firing").get_by_role("button", name="Change the acknowledgement of node-2").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_role("button", name="Remove the acknowledgement…").click()
    expect(dialog).to_contain_text("Remove the acknowledgement of 'node-2'?")
    page.screenshot(path=shots / "unacknowledge-dialog.png")
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator(".verdict")).not_to_contain_text("Acknowledged by")


def test_who_may_only_look_is_offered_nothing(enter: Enter, service: Running) -> None:
    send(service, "looked-at")
    page = enter("/alerts/why?fingerprint=looked-at", scope="read")
    expect(page.locator(".verdict")).to_contain_text("is quiet")
    expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)


def test_an_unknown_alert_cannot_be_acknowledged(enter: Enter) -> None:
    page = enter("/alerts/why?fingerprint=no-such-alert")
    expect(page.locator(".verdict")).to_contain_text("The history has no alert of this fingerprint")
    expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)
