"""The pages of the alert receiver as people use them, in a real Chromium.

With SOLELY_TEST_SHOTS=folder the pictures stay there, to be looked at.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Enter
from tests.browser.test_dashboard import CONTRAST
from tests.service.serving import TOKENS, Running, bearer

PAGES = {
    "/alerts": "Alerts",
    "/alerts/history": "Notifications",
    "/alerts/why": "Why was I not notified?",
    "/alerts/why?fingerprint=disk:db-1": "Why was I not notified?",
}
# How much of its bar the row of this fingerprint has left.
BAR = """name => [...document.querySelectorAll("#windows tbody tr")]
  .find(row => row.querySelector("th").textContent.trim() === name).querySelector("progress").value"""
LEGIBLE = 4.5  # contrast that WCAG 2 asks for, level AA
BECAUSE = "a test wants it"


def send(service: Running, fingerprint: str, severity: str = "critical", **more: Any) -> str:
    """What became of an alert."""
    alert = {"name": "Disk full", "source": "db-1", "severity": severity, "fingerprint": fingerprint, **more}
    answer = service.post("/api/alerts", alert, headers=bearer(TOKENS["write"]))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["outcome"])


@pytest.fixture(scope="module", autouse=True)
def filled(service: Running) -> None:
    """Something of every kind."""
    for severity in ("critical", "critical", "warning"):
        send(service, "disk:db-1", severity)
    send(service, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", name="CPU high")
    wanted = {"matchers": ["env=staging", "name=~Backup.*"], "lasts": 5400.0, "reason": "Staging is moved today"}
    assert service.post("/api/alerts/silences", wanted, headers=bearer(TOKENS["admin"])).status_code == 200
    send(service, "backup", name="Backup failed", labels={"env": "staging"})


def row(page: Page, text: str, section: str = "windows") -> Any:
    return page.locator(f"#{section} tbody tr").filter(has_text=text)


def test_every_page_renders_and_is_legible_in_light_and_in_dark(enter: Enter, shots: Path) -> None:
    page = enter("/alerts")
    for path, title in PAGES.items():
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page.locator("nav.side [aria-current=page]")).to_have_text("Alerts")
        expect(page.locator("#live")).to_have_text("Live")
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            page.screenshot(path=shots / f"{colours}{re.sub('[^a-z]+', '-', path)}.png", full_page=True)
            ratio, where = page.evaluate(CONTRAST)
            assert ratio >= LEGIBLE, (colours, where)


def test_pages_fit_a_small_phone(enter: Enter, shots: Path) -> None:
    page = enter("/alerts", viewport={"width": 360, "height": 780})
    for path in PAGES:
        page.goto(path)
        expect(page.locator("#live")).to_have_text("Live")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.screenshot(path=shots / f"phone{re.sub('[^a-z]+', '-', path)}.png", full_page=True)


def test_an_alert_appears_while_one_looks_and_its_bar_runs_down(enter: Enter, service: Running) -> None:
    page = enter("/alerts")
    expect(page.locator("#live")).to_have_text("Live")
    assert send(service, "live-1") == "published"
    appeared = row(page, "live-1")
    expect(appeared).to_have_count(1)
    expect(appeared.locator(".badge")).to_contain_text("quiet")
    first = page.evaluate(BAR, "live-1")
    assert 0.9 < first <= 1.0
    page.wait_for_function(f"first => ({BAR})('live-1') < first", arg=first)


def test_an_admin_ends_a_window_and_the_next_alert_is_sent(enter: Enter, service: Running) -> None:
    send(service, "to-end")
    assert send(service, "to-end") == "suppressed"
    page = enter("/alerts")
    page.get_by_role("button", name="End the window of to-end critical").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("End the window of 'to-end' critical (quiet for 5 min)?")
    dialog.get_by_label("Reason").fill(BECAUSE)
    dialog.get_by_role("button", name="End").click()
    expect(page.get_by_role("status")).to_contain_text("Done. This is recorded in the audit log.")
    expect(page.locator(".verdict")).to_contain_text("Nothing suppresses it now")
    assert send(service, "to-end") == "published"
    expect(page.locator(".verdict")).to_contain_text("is quiet for 5 min more")


def test_a_silence_is_written_corrected_made_and_ended(enter: Enter, service: Running, shots: Path) -> None:
    page = enter("/alerts", statuses=(400,))
    page.get_by_role("button", name="Silence alerts…").click()
    dialog = page.locator("dialog[open]")
    matchers = dialog.get_by_label("Matchers, all of which an alert must match")
    expect(matchers).to_be_focused()
    matchers.fill("severity=critical\nname=~Night.*")
    send(service, "meanwhile")  # the page changes under who writes
    expect(row(page, "meanwhile")).to_have_count(1)
    expect(matchers).to_have_value("severity=critical\nname=~Night.*")
    dialog.get_by_label("For how long").fill("soon")
    dialog.get_by_label("Reason").fill("The nightly build is known to fail")
    page.screenshot(path=shots / "silence-dialog.png")
    dialog.get_by_role("button", name="Silence", exact=True).click()
    lasts = page.get_by_label("For how long")
    expect(lasts).to_have_value("soon")
    expect(lasts).to_be_focused()
    expect(page.locator("#lasts-error")).to_contain_text("'soon' is not a duration")
    expect(page.get_by_label("Matchers")).to_have_value("severity=critical\nname=~Night.*")
    expect(page.get_by_label("Reason")).to_have_value("The nightly build is known to fail")
    page.screenshot(path=shots / "silence-again.png", full_page=True)
    lasts.fill("2h")
    page.get_by_role("button", name="Silence", exact=True).click()
    made = page.locator("#silences tbody tr").filter(has_text="The nightly build is known to fail")
    expect(made).to_have_count(1)
    expect(made).to_contain_text("active")
    assert send(service, "night", name="Nightly build") == "suppressed"
    made.get_by_role("button", name="End").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Reason").fill(BECAUSE)
    dialog.get_by_role("button", name="End").click()
    expect(page.get_by_role("status")).to_contain_text("Done")
    expect(made).to_have_count(0)
    assert send(service, "night", name="Nightly build") == "published"


def test_a_user_asks_why_there_was_no_notification(enter: Enter) -> None:
    page = enter("/alerts", scope="read")
    expect(page.locator("#region")).to_contain_text("disk:db-1")
    expect(page.get_by_role("button", name="End")).to_have_count(0)
    expect(page.get_by_role("button", name="Silence", exact=True)).to_have_count(0)
    page.get_by_label("Why was I not notified?").fill("backup")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".verdict")).to_contain_text("Staging is moved today")
    expect(page.locator(".verdict")).to_contain_text("no notification was sent so far")
