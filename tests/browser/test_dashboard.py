"""The dashboard as people use it, in a real Chromium, against a real service on Redis.

With SOLELY_TEST_SHOTS=folder the pictures stay there, to be looked at.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from playwright.sync_api import expect

from solely import AsyncClient, AsyncLease, AsyncSchedule, Tick
from tests.browser.conftest import Enter
from tests.service.serving import Running, until

PAGES = {
    "/": "Overview",
    "/health": "Health",
    "/locks": "Locks",
    "/claims": "Claims",
    "/reservations": "Reservations",
    "/dedup": "Dedup",
    "/dedup?key=order-1": "Dedup",
    "/limits": "Limits",
    "/queues": "Queues",
    "/queues?queue=mails": "Queues",
    "/dead-letters": "Dead letters",
    "/dead-letters?group=signals": "Dead letters",
    "/watermarks": "Watermarks",
    "/schedules": "Schedules",
    "/audit": "Audit log",
    "/applications": "Applications",
}
# The moment, on the clock that all processes of this machine share, at which the row of a lock was there.
WATCH = """key => new Promise(found => {
  const look = () => [...document.querySelectorAll("tbody th")].some(cell => cell.textContent.trim() === key);
  const watcher = new MutationObserver(() => { if (look()) { watcher.disconnect(); found(Date.now() / 1000); } });
  watcher.observe(document.body, { childList: true, subtree: true });
})"""
# Every text against what is behind it: the lowest contrast by WCAG's formula, and where.
CONTRAST = """() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(v => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let each = element; each; each = each.parentElement) {
      const ground = channels(getComputedStyle(each).backgroundColor);
      if (ground.length === 3 || ground[3] > 0.99) return ground;
    }
    return [255, 255, 255];
  };
  let worst = [21, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    const aside = ".unseen, .skip, script, canvas, [data-fresh]";
    if (!text || !element.checkVisibility() || element.closest(aside)) continue;
    const [one, other] = [light(channels(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < worst[0]) worst = [ratio, `${element.tagName}.${element.className}: ${text}`];
  }
  return worst;
}"""


class Holder:
    """Another process, which holds a lock on the same store."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self.says() == "ready"

    def says(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def take(self) -> float:
        """Takes the lock; when, on the wall clock."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(self.says().removeprefix("held "))


@contextmanager
def holder(store: str, key: str, ttl: float = 10.0) -> Iterator[Holder]:
    command = [sys.executable, "-m", "tests.browser.holder", store, key, str(ttl)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Holder(process)
        finally:
            process.kill()


async def _nothing(tick: Tick[AsyncLease]) -> None: ...


async def _fail(schedule: AsyncSchedule) -> None:
    schedule.stop()
    raise TimeoutError("the source did not answer")


@pytest.fixture(scope="module", autouse=True)
def filled(service: Running) -> None:
    """Something of every kind."""

    async def fill(once: AsyncClient) -> None:
        await once.lock("nightly-import", ttl=300, purpose="all customers")
        await once.first("review:42:7:abc123", ttl=600)
        claim = await once.claim("order-1", ttl=60)
        await claim.publish({"charge": "ch_0017", "amount": "12.50"})
        for _ in range(3):
            await once.limit("api:tenant-7", limit=2, per=600)
        mails = once.queue("mails")
        for number in range(3):
            await mails.push(f"mail:{number}", {"to": f"customer-{number}@example.org", "template": "welcome"})
        await mails.push("mail:later", {"to": "all@example.org", "template": "newsletter"}, delay=600)
        assert await mails.take(ttl=300, id="mail:1")
        await once.queue("thumbnails").push("image:7", b"GIF89a")
        async with await once.reserve("cpu-high:critical", quiet=600):
            pass
        await once.reserve("cpu-high:critical", quiet=600)
        await once.watermark("gitlab:42").advance(1_700_000_000)
        for name, when in (("report:nightly", "0 3 * * *"), ("clean-up", 3_600.0)):
            await once.every(name, when, tz="Europe/Berlin").run_due(_nothing)
        failing = once.every("import:customers", 0.1)
        await failing.run(lambda tick: _fail(failing))
        await once.dead_letters("signals").push({"signal": 17}, error="Timeout: the bank did not answer", key="s-17")

    service.run(fill(service.service.once))


def test_every_page_renders(enter: Enter, shots: Path) -> None:
    page = enter()
    for path, title in PAGES.items():
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page.locator("nav.side [aria-current=page]")).to_have_count(1)
        if page.locator("#region").count():
            expect(page.locator("#live")).to_have_text("Live")
        page.screenshot(path=shots / f"light{re.sub('[^a-z]+', '-', path)}.png")


def test_the_charts_are_drawn(enter: Enter) -> None:
    page = enter()
    expect(page.locator(".chart canvas")).to_have_count(2)
    expect(page.locator(".chart svg.spark")).to_have_count(0)


def test_a_lock_of_another_process_appears_within_a_second_and_its_bar_runs_down(
    enter: Enter, store: str, shots: Path
) -> None:
    page = enter("/locks")
    expect(page.locator("#live")).to_have_text("Live")
    delays = []
    for number in range(3):
        key = f"deploy:web-{number}"
        with holder(store, key) as other:
            page.evaluate(f"window.seen = ({WATCH})('{key}'); null")
            taken = other.take()
            delays.append(page.evaluate("window.seen") - taken)
            if number == 0:
                bar = page.get_by_role("row", name=key).get_by_role("progressbar")
                before = float(bar.evaluate("bar => bar.value"))
                assert before > 0.8
                until(lambda before=before, bar=bar: bar.evaluate("bar => bar.value") < before - 0.05)  # type: ignore[misc]
                page.screenshot(path=shots / "lock-of-another-process.png")
    assert median(delays) < 1.0, delays


def test_force_release_asks_why_tells_the_holder_and_is_on_record(enter: Enter, store: str, shots: Path) -> None:
    page = enter("/locks")
    with holder(store, "stuck:job", ttl=2.0) as other:
        other.take()
        row = page.get_by_role("row", name="stuck:job")
        row.get_by_role("button", name="Release stuck:job").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("deploy of the web")
        expect(dialog.get_by_label("Reason")).to_be_focused()
        page.screenshot(path=shots / "confirm.png")
        dialog.get_by_role("button", name="Release").click()  # without a reason: the browser does not send it
        expect(dialog).to_be_visible()
        dialog.get_by_label("Reason").fill("its host is gone")
        dialog.get_by_role("button", name="Release").click()
        expect(page.get_by_role("status")).to_contain_text("in the audit log")
        expect(row).to_have_count(0)
        assert other.says() == "lost cleared"
    assert "note=" not in page.url
    page.get_by_role("link", name="Audit log").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("its host is gone")
    expect(page.get_by_role("row").nth(1)).to_contain_text("adminer")
    expect(page.get_by_role("row").nth(1).locator(".badge")).to_have_text(re.compile("done"))


def test_a_dead_letter_is_replayed(enter: Enter, service: Running, shots: Path) -> None:
    ran: list[Any] = []
    service.service.dashboard.replays["orders"] = ran.append
    service.run(parked(service.service.once, "orders", 1))
    page = enter("/dead-letters")
    page.get_by_role("link", name="orders").click()
    page.get_by_role("link", name="orders-0").click()
    expect(page.locator("pre.payload")).to_contain_text('"number": 0')
    page.screenshot(path=shots / "letter.png")
    page.get_by_role("button", name="Replay…").click()
    expect(page.get_by_role("dialog")).to_contain_text("Replay 1 dead letter of 'orders'?")
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    expect(page.get_by_role("status")).to_contain_text("succeeded")
    expect(page.locator("#region")).to_contain_text("No dead letter")
    assert ran == [{"number": 0}]


def test_all_letters_are_replayed_while_the_page_shows_how_far(enter: Enter, service: Running) -> None:
    service.service.dashboard.replays["bulk"] = lambda payload: None
    service.run(parked(service.service.once, "bulk", 7))
    page = enter("/dead-letters?group=bulk")
    page.get_by_role("button", name="Replay all").click()
    expect(page.get_by_role("dialog")).to_contain_text("Replay 7 dead letters of 'bulk'?")
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    expect(page.get_by_label("Replay", exact=True).first).to_contain_text("7 of 7 · 7 replayed")
    expect(page.locator("#region")).to_contain_text("No dead letter")


async def parked(once: AsyncClient, group: str, count: int) -> None:
    for number in range(count):
        await once.dead_letters(group).push({"number": number}, error="Timeout: slow", key=f"{group}-{number}")


def test_a_read_only_token_sees_no_buttons(enter: Enter, service: Running) -> None:
    service.service.dashboard.replays["signals"] = lambda payload: None
    page = enter(scope="read")
    for path in PAGES:
        page.goto(path)
        main = page.locator("main")
        expect(main.get_by_role("heading", level=1)).to_be_visible()
        names = main.get_by_role("button").all_text_contents()
        assert set(names) <= {"Show", "Explain"}, path  # these only look
        assert page.locator("form[method=post]:not([action='/logout'])").count() == 0
    del service.service.dashboard.replays["signals"]


def test_the_chosen_colours_stay(enter: Enter) -> None:
    page = enter(color_scheme="light")
    toggle = page.locator("#theme")
    expect(toggle).to_have_accessible_name("Colors: as the system")
    toggle.click()
    toggle.click()
    expect(toggle).to_have_accessible_name("Colors: dark")
    page.goto("/locks")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(228, 232, 238)"


def test_all_can_be_done_from_the_keyboard(enter: Enter, store: str) -> None:
    page = enter("/locks")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Escape")
    page.locator("main").focus()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("order-1")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("claim() does not run the work again")
    with holder(store, "by:keyboard") as other:
        other.take()
        page.goto("/locks?prefix=by:")
        page.get_by_role("button", name="Release by:keyboard").focus()
        page.keyboard.press("Space")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("row", name="by:keyboard")).to_have_count(1)


def test_focus_stays_while_the_list_changes(enter: Enter, store: str) -> None:
    page = enter("/locks")
    button = page.get_by_role("button", name="Release nightly-import")
    button.focus()
    with holder(store, "another:one") as other:
        other.take()
        expect(page.get_by_role("row", name="another:one")).to_have_count(1)
        expect(button).to_be_focused()


def test_live_can_be_paused(enter: Enter, store: str) -> None:
    page = enter("/locks")
    page.get_by_role("button", name="Live updates").click()
    expect(page.locator("#live")).to_have_text("Paused")
    with holder(store, "while:paused") as other:
        other.take()
        page.wait_for_timeout(1500)
        expect(page.get_by_role("row", name="while:paused")).to_have_count(0)
        page.get_by_role("button", name="Live updates").click()
        expect(page.get_by_role("row", name="while:paused")).to_have_count(1)


def test_without_javascript_everything_is_there(enter: Enter, store: str) -> None:
    page = enter(java_script_enabled=False)
    for path, title in PAGES.items():
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    page.goto("/")
    expect(page.locator(".chart svg.spark")).to_have_count(2)
    with holder(store, "plain:html", ttl=2.0) as other:
        other.take()
        page.goto("/locks?prefix=plain")
        expect(page.get_by_role("row", name="plain:html")).to_contain_text(" s")
        page.get_by_role("button", name="Release plain:html").click()
        page.get_by_label("Reason").fill("without a script")
        page.get_by_role("button", name="Release", exact=True).click()
        expect(page.get_by_role("status")).to_contain_text("in the audit log")
        assert other.says() == "lost cleared"
