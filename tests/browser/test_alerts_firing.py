"""What fires now, as the first thing that people see on the page of alerts, in a real Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Enter
from tests.browser.test_alerts import BECAUSE, LEGIBLE, PAGES, row, send
from tests.browser.test_dashboard import CONTRAST
from tests.service.serving import Running

WIDTHS = (1440, 390)  # a desktop and a phone


def test_two_critical_alerts_fire_and_somebody_acknowledges_one_and_silences_the_other(
    enter: Enter, service: Running, shots: Path
) -> None:
    page = enter("/alerts")
    expect(page.locator("#firing")).to_contain_text("No alert fires.")
    assert send(service, "disk:db-1", labels={"host": "db-1"}) == "published"
    assert send(service, "cpu:web-7", name="CPU high", labels={"host": "web-7"}) == "published"
    disk, cpu = row(page, "disk:db-1", "firing"), row(page, "cpu:web-7", "firing")
    for each in (disk, cpu):
        expect(each).to_have_count(1)
        expect(each.locator(".badge.bad")).to_contain_text("critical")
        expect(each.locator(".badge.ok, .badge.done")).to_have_count(0)
    assert page.locator("#region section").first.get_attribute("id") == "firing"

    page.get_by_role("button", name="Acknowledge disk:db-1").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("Acknowledge 'disk:db-1'?")
    dialog.get_by_label("Comment").fill("replacing the volume")
    page.screenshot(path=shots / "firing-acknowledge.png")
    dialog.get_by_role("button", name="Acknowledge").click()
    expect(page.locator(".verdict")).to_contain_text("Acknowledged by adminer")
    page.get_by_role("link", name="Alerts").first.click()
    expect(disk).to_contain_text("by adminer: replacing the volume")

    page.get_by_role("button", name="Silence cpu:web-7").click()
    dialog = page.locator("dialog[open]")
    expect(dialog.get_by_label("Matchers")).to_have_value(
        'name="CPU high"\nseverity="critical"\nsource="db-1"\nhost="web-7"'
    )
    expect(dialog).to_contain_text("1: CPU high (critical)")
    dialog.get_by_label("Reason").fill(BECAUSE)
    page.screenshot(path=shots / "firing-silence.png")
    dialog.get_by_role("button", name="Silence", exact=True).click()
    expect(cpu).to_contain_text("silenced")
    expect(cpu).to_contain_text("by adminer until")
    expect(cpu.locator(".badge.bad")).to_contain_text("critical")  # it still fires
    expect(page.locator("#silences")).to_contain_text(BECAUSE)
    assert send(service, "cpu:web-7", name="CPU high", labels={"host": "web-7"}) == "suppressed"

    assert send(service, "disk:db-1", status="resolved") == "published"
    expect(disk).to_have_count(0)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_is_legible(enter: Enter, service: Running, shots: Path, width: int) -> None:
    long = {f"label_{number}": "a-rather-long-value-without-a-blank" for number in range(8)}
    send(service, "d" * 200, name="Certificate of the ingress in the eastern cluster ends soon", labels=long)
    send(service, "node-1", "warning", name="Node down", group="rack 7")
    page = enter("/alerts", viewport={"width": width, "height": 900})
    expect(row(page, "Certificate", "firing")).to_have_count(1)
    for path in (
        *PAGES,
        f"/alerts/why?fingerprint={'d' * 200}",
        "/alerts/silences",
        "/alerts/acknowledge?fingerprint=node-1",
    ):
        page.goto(path)
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            name = re.sub("[^a-z]+", "-", path.replace("d" * 200, "long"))
            page.screenshot(path=shots / f"all{name}-{width}-{colours}.png", full_page=True)
            ratio, where = page.evaluate(CONTRAST)
            assert ratio >= LEGIBLE, (path, colours, where)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_who_may_only_look_sees_what_fires_and_may_change_nothing(enter: Enter, service: Running) -> None:
    send(service, "seen")
    page = enter("/alerts", scope="read")
    expect(row(page, "seen", "firing")).to_have_count(1)
    expect(page.locator("#region").get_by_role("button")).to_have_count(0)


def test_on_a_phone_alerts_that_fire_are_told_apart(enter: Enter, service: Running, shots: Path) -> None:
    for host in ("web-1", "web-2"):
        send(service, f"load:{host}", name="Load of a phone", labels={"host": host, "team": "platform"})
    for number in (1, 2):
        send(service, f"job:{number}", name="Job of a phone", labels={"team": "platform"})
    page = enter("/alerts", viewport={"width": 390, "height": 844})
    cards = page.locator("#firing tbody tr").filter(has_text="of a phone")
    expect(cards).to_have_count(4)
    page.screenshot(path=shots / "firing-on-a-phone.png")
    seen = sorted(cards.locator("th").all_inner_texts())
    assert seen == [
        "Job of a phone db-1 job:1",
        "Job of a phone db-1 job:2",
        "Load of a phone host=web-1 db-1",
        "Load of a phone host=web-2 db-1",
    ]
    for number in range(4):
        expect(cards.nth(number).locator("td[data-label=Since]")).to_be_visible()
