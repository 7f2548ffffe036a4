"""The pages of the task-trigger API as people use them, in a real Chromium.

With SOLELY_TEST_SHOTS=folder the pictures stay there, to be looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Enter
from tests.browser.test_alerts import BECAUSE, LEGIBLE
from tests.browser.test_dashboard import CONTRAST
from tests.service.serving import TOKENS, Running, bearer

WIDTHS = (1440, 390)  # a desktop and a phone
LONG = {"address": "a-rather-long-value-without-a-blank" * 8, "lines": list(range(12))}


def post(service: Running, path: str, body: dict[str, Any]) -> Any:
    answer = service.post(path, body, headers=bearer(TOKENS["write"]))
    assert answer.status_code == 200, answer.text
    return answer.json()


def trigger(service: Running, task: str, payload: Any = None, **options: Any) -> str:
    """The id of a run."""
    return str(post(service, f"/api/v1/tasks/{task}/trigger", {"payload": payload, "options": options})["id"])


def attempt(service: Running, task: str, how: str, **said: Any) -> None:
    """Takes a run of the task and ends the attempt so."""
    run = post(service, "/api/v1/workers/take", {"tasks": [task], "worker": "web-1:4711"})["run"]
    post(service, f"/api/v1/runs/{run['id']}/{how}", {"token": run["token"], **said})


@pytest.fixture(scope="module")
def failed(service: Running) -> str:
    """A run that has failed for good, beside others in every state."""
    options: dict[str, Any] = {"tags": ["customer-7", "eu"], "metadata": {"plan": "pro"}, "maxAttempts": 2}
    id = trigger(service, "charge-card", LONG, idempotencyKey="order-2026-11-17-000042:" + "k" * 80, **options)
    attempt(service, "charge-card", "fail", error="connection reset by peer", delay=0)
    attempt(service, "charge-card", "fail", error="Traceback: the card was declined\n  in charge, tasks.py:12")
    trigger(service, "send-mail", {"to": "Ann"})
    attempt(service, "send-mail", "complete", output={"sent": True})
    trigger(service, "resize", delay="1h")
    trigger(service, "report")
    post(service, "/api/v1/workers/take", {"tasks": ["report"], "worker": "web-2:99", "lease": 600})
    for _ in range(3):
        trigger(service, "send-mail", {"to": "Bob"}, tags=["newsletter"])
    return id


@pytest.fixture(scope="module")
def waiting(service: Running) -> str:
    """A run that waits for a child."""
    id = trigger(service, "order")
    run = post(service, "/api/v1/workers/take", {"tasks": ["order"], "worker": "web-1:4711"})["run"]
    child = trigger(service, "charge", idempotencyKey="of-order", parentRunId=id, resumeParentOnCompletion=True)
    assert post(service, f"/api/v1/runs/{id}/wait", {"token": run["token"], "child": child})["state"] == "WAITING"
    return id


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_of_runs_fits_and_is_legible(
    enter: Enter, failed: str, waiting: str, shots: Path, width: int
) -> None:
    page = enter("/triggers", viewport={"width": width, "height": 900})
    pages = {
        "overview": "/triggers", "filtered": "/triggers?state=CANCELED", "run": f"/triggers/run?id={failed}",
        "replay": f"/triggers/replay?id={failed}", "reset": "/triggers/reset", "waiting": f"/triggers/run?id={waiting}",
    }  # fmt: skip
    for name, path in pages.items():
        page.goto(path)
        page.wait_for_load_state()
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            page.screenshot(path=shots / f"triggers-{name}-{width}-{colours}.png", full_page=True)
            ratio, where = page.evaluate(CONTRAST)
            assert ratio >= LEGIBLE, (path, colours, where)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_on_a_phone_a_run_of_the_list_has_two_lines_and_a_page_has_25(enter: Enter, service: Running) -> None:
    """It had eight lines: the page was 10,000 pixels tall."""
    for number in range(26):
        trigger(service, "listed-on-a-phone", {"n": number}, tags=["one", "two"], idempotencyKey=f"phone-{number}")
    page = enter("/triggers?task=listed-on-a-phone", viewport={"width": 390, "height": 900})
    rows = page.locator("#runs tbody tr")
    expect(rows).to_have_count(25)
    line = page.evaluate("parseFloat(getComputedStyle(document.body).lineHeight)")
    assert max(box["height"] for row in rows.all() if (box := row.bounding_box())) < 3 * line + 20
    expect(rows.first).to_contain_text("queued")
    page.get_by_role("link", name="Next").click()  # also if the list was updated since: it led to the stream then
    expect(rows).to_have_count(1)


def test_a_run_appears_while_one_looks_and_is_canceled_on_its_page(enter: Enter, service: Running) -> None:
    page = enter("/triggers?task=watched", scope="write")
    expect(page.locator("#runs")).to_contain_text("There is no such run.")
    id = trigger(service, "watched", {"n": 1})
    row = page.locator("#runs tbody tr").filter(has_text=id)
    expect(row).to_contain_text("queued")
    row.get_by_role("link", name=id).click()
    expect(page.locator("#attempts")).to_contain_text("No worker has taken it yet.")
    post(service, "/api/v1/workers/take", {"tasks": ["watched"], "worker": "seen-live"})
    expect(page.locator("#attempts")).to_contain_text("seen-live")
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text(f"Cancel the run {id}?")
    dialog.get_by_role("button", name="Cancel", exact=True).first.click()
    expect(page.locator("#timeline")).to_contain_text("canceled")
    expect(page.locator("#attempts .badge")).to_contain_text("canceled")


def test_a_failed_run_is_found_by_its_state_and_replayed(enter: Enter, failed: str) -> None:
    page = enter("/triggers")
    page.get_by_label("State").select_option("FAILED")
    page.get_by_role("button", name="Show").click()
    row = page.locator("#runs tbody tr").filter(has_text=failed)
    expect(row).to_contain_text("2 of 2")
    row.get_by_role("link", name=failed).click()
    expect(page.locator("#timeline")).to_contain_text("failed for good")
    page.get_by_role("button", name="Replay…").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Key of the new run").fill("order-42-again")
    dialog.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator(".notice.ok")).to_contain_text("Done.")
    page.goto("/triggers?key=order-42-again")
    expect(page.locator("#runs tbody tr")).to_have_count(1)


def test_an_admin_resets_a_key_on_the_page(enter: Enter, service: Running) -> None:
    id = trigger(service, "keyed", idempotencyKey="order-9")
    page = enter("/triggers")
    page.get_by_role("button", name="Reset an idempotency key…").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Task").fill("keyed")
    dialog.get_by_label("Key").fill("order-9")
    dialog.get_by_label("Reason").fill(BECAUSE)
    dialog.get_by_role("button", name="Reset", exact=True).click()
    expect(page.locator(".notice.ok")).to_contain_text("Done.")
    assert trigger(service, "keyed", idempotencyKey="order-9") != id
