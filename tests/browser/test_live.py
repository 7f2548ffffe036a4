"""Live pages in a real Chromium: any number of tabs on one connection, none for those that nobody looks at; and readers
who press, select, focus and scroll while the page changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Error, Locator, Page, expect

from solely import AsyncClient
from tests.browser.conftest import HOST, Enter
from tests.service.serving import TOKENS, Running, until

PATIENCE = 60_000  # ms, for what takes a moment: this machine may be busy
PRESS = 120  # ms that people press a button
PRESSES = 150
TABS = 9  # a browser opens six connections of HTTP/1.1 to a host
OWN = "delete window.SharedWorker"
# The tab is hidden, or seen again.
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
# Counts the updates that bring something new; the times that run on the page only change texts.
COUNT_UPDATES = """() => {
  window.updates = 0;
  const brings = change => [...change.addedNodes].some(node => node.nodeType === Node.ELEMENT_NODE);
  new MutationObserver(changes => { if (changes.some(brings)) window.updates++; })
    .observe(document.getElementById("region"), { childList: true, subtree: true });
}"""


async def hold(once: AsyncClient, key: str) -> None:
    await once.lock(key, ttl=600, renew=False)


async def clear(once: AsyncClient, key: str) -> None:
    await once.clear_lock(key, reason="the test goes on")


def live(page: Page) -> None:
    expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=PATIENCE)


def shows(page: Page, key: str) -> None:
    expect(row(page, key)).to_have_count(1, timeout=PATIENCE)


def row(page: Page, key: str) -> Locator:
    return page.locator(f"tr[data-key^='{key}/']")


def followed(service: Running) -> int:
    """How many streams and pages the readers of this test follow."""
    return service.service.waiters.now["adminer"]


@pytest.fixture(autouse=True)
def quiet(service: Running) -> None:
    """Nobody follows anything before the test."""
    until(lambda: followed(service) == 0)


# -- tabs


def test_nine_tabs_of_one_browser_load_and_stay_live(enter: Enter, service: Running) -> None:
    once = service.service.once
    first = enter("/locks?prefix=tab-0:")
    tabs = [first, *(first.context.new_page() for _ in range(TABS - 1))]
    for number, tab in enumerate(tabs):
        tab.goto(f"/locks?prefix=tab-{number}:", timeout=PATIENCE)
        live(tab)
    for step in ("one", "two"):
        for number, tab in enumerate(tabs):
            service.run(hold(once, f"tab-{number}:{step}"))
            shows(tab, f"tab-{number}:{step}")
    assert followed(service) == TABS + 1, "all of them are followed through one stream"
    tabs[0].close()
    for number, tab in enumerate(tabs[1:], 1):
        service.run(hold(once, f"tab-{number}:three"))
        shows(tab, f"tab-{number}:three")
    until(lambda: followed(service) == TABS)


def test_tabs_of_the_same_page_share_it(enter: Enter, service: Running) -> None:
    first = enter("/locks?prefix=shared:")
    tabs = [first, *(first.context.new_page() for _ in range(2))]
    for tab in tabs:
        tab.goto("/locks?prefix=shared:")
        live(tab)
    service.run(hold(service.service.once, "shared:lock"))
    for tab in tabs:
        shows(tab, "shared:lock")
    assert followed(service) == 2, "a stream, and a page"


def test_tabs_share_a_stream_over_plain_http(enter: Enter, service: Running) -> None:
    """Where HTTP/1.1 is usual, browsers lack what they offer only in secure contexts, such as locks."""
    page = enter("/locks?prefix=plain-0:", base_url=f"http://{HOST}:{service.port}")
    assert not page.evaluate("isSecureContext")
    tabs = [page, page.context.new_page()]
    for number, tab in enumerate(tabs):
        tab.goto(f"/locks?prefix=plain-{number}:")
        live(tab)
        service.run(hold(service.service.once, f"plain-{number}:lock"))
        shows(tab, f"plain-{number}:lock")
    until(lambda: followed(service) == 3)


def test_a_hidden_tab_is_not_followed_and_catches_up_when_it_is_seen(enter: Enter, service: Running) -> None:
    page = enter("/locks?prefix=hidden:")
    live(page)
    until(lambda: followed(service) == 2)
    page.evaluate(HIDE, True)
    until(lambda: followed(service) == 0)
    service.run(hold(service.service.once, "hidden:lock"))
    expect(row(page, "hidden:lock")).to_have_count(0)
    page.evaluate(HIDE, False)
    shows(page, "hidden:lock")
    live(page)


def test_a_tab_that_is_opened_in_the_background_is_followed_once_it_is_seen(enter: Enter, service: Running) -> None:
    page = enter("/locks?prefix=background:")
    live(page)
    hidden = page.context.new_page()
    hidden.add_init_script("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    hidden.goto("/locks?prefix=background:later:")
    service.run(hold(service.service.once, "background:later:lock"))
    shows(page, "background:later:lock")
    expect(row(hidden, "background:later:lock")).to_have_count(0)
    assert followed(service) == 2, "a stream, and a page"
    hidden.evaluate(HIDE, False)
    shows(hidden, "background:later:lock")


def test_a_paused_tab_is_not_followed(enter: Enter, service: Running) -> None:
    page = enter("/locks?prefix=paused:")
    live(page)
    page.get_by_role("button", name="Live updates").click()
    until(lambda: followed(service) == 0)
    page.evaluate(HIDE, True)
    page.evaluate(HIDE, False)
    expect(page.locator("#live")).to_have_text("Paused")
    service.run(hold(service.service.once, "paused:lock"))
    page.get_by_role("button", name="Live updates").click()
    shows(page, "paused:lock")


def test_a_page_that_is_loaded_anew_or_gone_back_to_is_live(enter: Enter, service: Running) -> None:
    once = service.service.once
    page = enter("/locks?prefix=again:")
    moves: list[Callable[[], object]] = [page.reload, lambda: page.goto("/claims"), page.go_back, page.go_forward]
    for step, move in enumerate(moves):
        move()
        live(page)
        assert page.url.endswith(("again:", "/claims"))
        if "again:" in page.url:
            service.run(hold(once, f"again:{step}"))
            shows(page, f"again:{step}")
    until(lambda: followed(service) == 2)


def test_the_other_tabs_stay_live_when_one_crashes(enter: Enter, service: Running) -> None:
    """The shared worker may run in the process that crashes: then the others start another one."""
    once = service.service.once
    first = enter("/locks?prefix=crash-0:")
    live(first)
    others = [first.context.new_page() for _ in range(3)]
    for number, tab in enumerate(others, 1):
        tab.goto(f"/locks?prefix=crash-{number}:")
        live(tab)
    with suppress(Error):
        first.goto("chrome://crash")
    for number, tab in enumerate(others, 1):
        service.run(hold(once, f"crash-{number}:lock"))
        shows(tab, f"crash-{number}:lock")
    until(lambda: followed(service) == len(others) + 1)


def test_the_tabs_stay_live_when_their_shared_worker_is_killed(
    enter: Enter, service: Running, chromium: Browser
) -> None:
    once = service.service.once
    first = enter("/locks?prefix=killed-0:")
    tabs = [first, first.context.new_page()]
    for number, tab in enumerate(tabs):
        tab.goto(f"/locks?prefix=killed-{number}:")
        live(tab)
    devtools = chromium.new_browser_cdp_session()
    targets = devtools.send("Target.getTargets")["targetInfos"]
    workers = [each["targetId"] for each in targets if each["type"] == "shared_worker"]
    assert len(workers) == 1
    devtools.send("Target.closeTarget", {"targetId": workers[0]})
    until(lambda: followed(service) == 0)
    for number, tab in enumerate(tabs):
        service.run(hold(once, f"killed-{number}:lock"))
        shows(tab, f"killed-{number}:lock")
    assert followed(service) == len(tabs) + 1, "they share another worker"


def test_without_shared_workers_each_tab_has_a_stream_of_its_own(enter: Enter, service: Running) -> None:
    page = enter("/locks?prefix=own:")
    page.context.add_init_script(OWN)
    tabs = [page, page.context.new_page()]
    for tab in tabs:
        tab.goto("/locks?prefix=own:")
        live(tab)
    service.run(hold(service.service.once, "own:lock"))
    for tab in tabs:
        shows(tab, "own:lock")
    until(lambda: followed(service) == 4)
    tabs[1].evaluate(HIDE, True)
    until(lambda: followed(service) == 2)


def test_a_service_that_restarts_is_followed_again(enter: Enter, service: Running) -> None:
    """Its streams end, as when it stops; the browser asks again."""
    page = enter("/locks?prefix=restart:")
    live(page)
    stopping = service.service.stopping
    service.on_loop(stopping.set)
    expect(page.locator("#live")).to_have_attribute("data-state", "waiting", timeout=PATIENCE)
    service.on_loop(stopping.clear)
    service.run(hold(service.service.once, "restart:lock"))
    shows(page, "restart:lock")
    live(page)


def test_a_tab_follows_no_longer_than_its_login_and_again_after_the_next_one(enter: Enter, service: Running) -> None:
    page = enter("/locks?prefix=login:", statuses=(401,))
    live(page)
    other = page.context.new_page()
    other.goto("/locks?prefix=login:")
    other.get_by_role("button", name="Log out").click()
    expect(page.locator("#live")).to_have_text("Reconnecting", timeout=PATIENCE)
    service.run(hold(service.service.once, "login:lock"))
    expect(row(page, "login:lock")).to_have_count(0)
    other.goto("/locks?prefix=login:")
    other.get_by_label("Token").fill(TOKENS["admin"])
    other.get_by_role("button", name="Log in").click()
    for tab in (page, other):
        shows(tab, "login:lock")
        live(tab)


def test_of_more_tabs_than_a_stream_can_have_the_oldest_wait(enter: Enter, service: Running) -> None:
    """An address has at most some kilobytes: these are long, since each % becomes %2525 in it."""
    page = enter("/locks?prefix=many:")
    tabs = [page, page.context.new_page(), page.context.new_page()]
    for number, tab in enumerate(tabs):
        tab.goto(f"/locks?{urlencode({'prefix': str(number) + 500 * '%'})}")
        live(tab)
    expect(tabs[0].locator("#live")).to_have_text("Too many tabs", timeout=PATIENCE)
    assert followed(service) == 3
    tabs[2].close()
    live(tabs[0])
    live(tabs[1])


# -- readers who press


@contextmanager
def changing(service: Running) -> Iterator[None]:
    """Meanwhile the last lock of the list is always another one."""
    once, over = service.service.clearing, threading.Event()

    def change() -> None:
        number = 0
        while not over.wait(0.05):
            service.run(hold(once, f"press:z:{number + 1}"))
            service.run(clear(once, f"press:z:{number}"))
            number += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def press(page: Page, target: Locator) -> None:
    """Presses it as people do: a mouse does not move away, and a finger takes its time."""
    x, y, width, height = target.evaluate("each => Object.values(each.getBoundingClientRect().toJSON()).slice(0, 4)")
    page.mouse.move(x + width / 2, y + height / 2)
    page.mouse.down()
    page.wait_for_timeout(PRESS)
    page.mouse.up()


@pytest.mark.timeout(600)
def test_no_press_on_a_live_page_is_lost(enter: Enter, service: Running) -> None:
    for number in range(3):
        service.run(hold(service.service.once, f"press:{number}"))
    page = enter("/locks?prefix=press:&sort=key")
    live(page)
    page.evaluate(COUNT_UPDATES)
    page.evaluate("""() => {
      window.opened = [];
      document.addEventListener("click", click => {
        const link = click.target.closest("a.key");
        if (link) { click.preventDefault(); window.opened.push(link.textContent); }
      });
    }""")
    dialog, wanted, asked = page.locator("dialog[open]"), list[str](), 0
    with changing(service):
        for number in range(PRESSES):
            key = f"press:{number % 3}"
            if number % 5:
                wanted.append(key)
                press(page, page.get_by_role("link", name=key))
            else:
                press(page, page.get_by_role("button", name=f"Release {key}"))
                expect(dialog).to_contain_text(key)
                asked += 1
                page.keyboard.press("Escape")
                expect(dialog).to_have_count(0)
        until(lambda: page.evaluate("window.updates") > PRESSES / 10)
    assert page.evaluate("window.opened") == wanted
    assert len(wanted) + asked == PRESSES


def test_updates_wait_while_a_button_is_pressed_but_not_for_ever(enter: Enter, service: Running) -> None:
    once = service.service.once
    service.run(hold(once, "wait:0"))
    page = enter("/locks?prefix=wait:")
    other = page.context.new_page()
    other.goto("/locks?prefix=wait:")
    page.clock.install()
    page.goto("/locks?prefix=wait:")
    live(page)
    page.clock.pause_at(page.evaluate("Date.now()") + 1000)
    page.get_by_role("link", name="wait:0").hover()
    page.mouse.down()
    service.run(hold(once, "wait:1"))
    shows(other, "wait:1")
    expect(row(page, "wait:1")).to_have_count(0)
    page.clock.run_for(4000)
    expect(row(page, "wait:1")).to_have_count(0)
    page.clock.run_for(2000)
    shows(page, "wait:1")

    page.mouse.move(5, 300)  # the release is no click on the link
    page.mouse.up()
    page.clock.run_for(1000)
    page.mouse.down()
    service.run(hold(once, "wait:2"))
    shows(other, "wait:2")
    expect(row(page, "wait:2")).to_have_count(0)
    page.mouse.up()
    page.clock.run_for(1000)
    shows(page, "wait:2")


def test_updates_wait_while_text_is_selected(enter: Enter, service: Running) -> None:
    service.run(hold(service.service.once, "select:0"))
    page = enter("/locks?prefix=select:")
    live(page)
    page.evaluate("document.getSelection().selectAllChildren(document.querySelector('#region tbody th'))")
    service.run(hold(service.service.once, "select:1"))
    expect(page.locator("#live")).to_have_text("Held", timeout=PATIENCE)
    expect(row(page, "select:1")).to_have_count(0)
    assert page.evaluate("document.getSelection().toString().trim()") == "select:0"
    page.evaluate("document.getSelection().removeAllRanges()")
    shows(page, "select:1")
    expect(page.locator("#live")).to_have_text("Live")


def test_what_a_reader_has_opened_scrolled_and_focused_stays(enter: Enter, service: Running) -> None:
    once = service.service.once

    async def finished() -> None:
        claim = await once.claim("stays", ttl=600)
        await claim.publish([f"a longer line {number}" for number in range(1000)])

    service.run(finished())
    page = enter("/keys/claim/stays")
    live(page)
    page.locator("details.about-history summary").click()
    result = page.locator("pre.payload")
    result.focus()
    assert result.evaluate("element => { element.scrollTop = 100; return element.scrollTop; }") == 100
    events = page.locator("ol.timeline li:not(.day)")
    before = events.count()

    async def again() -> None:
        await once.claim("stays", ttl=600)

    service.run(again())
    until(lambda: events.count() > before)
    expect(result).to_be_focused()
    assert result.evaluate("element => element.scrollTop") == 100
    expect(page.locator("details.about-history")).to_have_attribute("open", "")


def test_focus_stays_on_a_row_that_moves(enter: Enter, service: Running) -> None:
    once = service.service.once
    for number in range(3):
        service.run(hold(once, f"moves:{number}"))
    page = enter("/locks?prefix=moves:&sort=-since")
    live(page)
    button = page.get_by_role("button", name="Release moves:0")
    button.focus()
    kept = button.element_handle()
    for number in range(3, 6):
        service.run(hold(once, f"moves:{number}"))
        shows(page, f"moves:{number}")
    expect(button).to_be_focused()
    assert kept.evaluate("element => element.isConnected")


# -- the change of one HTML to another


MORPHED = """([before, after]) => {
  const element = document.createElement("div"), wanted = document.createElement("div");
  document.body.append(element);
  element.innerHTML = before;
  wanted.innerHTML = after;
  const kept = new Map([...element.querySelectorAll("[id], [data-key]")].map(each => [each.id || each.dataset.key, each]));
  window.morph(element, after);
  const same = [...element.querySelectorAll("[id], [data-key]")].filter(each => kept.get(each.id || each.dataset.key) === each);
  const result = { like: element.isEqualNode(wanted), html: element.innerHTML, same: same.map(each => each.id || each.dataset.key) };
  element.remove();
  return result;
}"""  # noqa: E501
ROW = "<tr data-key='{0}'><th>{0}</th><td id='{0}-cell'>{1}</td></tr>"


def table(*rows: tuple[str, str]) -> str:
    return f"<table><tbody>{''.join(ROW.format(*each) for each in rows)}</tbody></table>"


@pytest.fixture
def blank(enter: Enter) -> Page:
    return enter("/audit")


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("", "<p>new</p>", []),
        ("<p id='a'>old</p>", "", []),
        ("<p id='a'>old</p>", "<p id='a'>new</p>", ["a"]),
        ("<p id='a' class='x' hidden>t</p>", "<p id='a' title='y'>t</p>", ["a"]),
        ("<p id='a'>t</p>", "<div id='a'>t</div>", []),
        ("text<b id='a'>b</b>", "<b id='a'>b</b>text", ["a"]),
        ("<!-- one --><i id='a'></i>", "<!-- two --><i id='a'></i>", ["a"]),
        ("<p>1</p><p>2</p><p id='a'></p>", "<p>2</p><p id='a'></p><p>3</p><p>4</p>", ["a"]),
        (table(("a", "1"), ("b", "2")), table(("a", "1"), ("b", "3")), ["a", "a-cell", "b", "b-cell"]),
        (table(("b", "2")), table(("a", "1"), ("b", "2")), ["b", "b-cell"]),
        (table(("a", "1"), ("b", "2")), table(("b", "2")), ["b", "b-cell"]),
        (table(("a", "1"), ("b", "2"), ("c", "3")), table(("c", "3"), ("b", "2"), ("a", "1")),
         ["c", "c-cell", "b", "b-cell", "a", "a-cell"]),
        (table(("a", "1"), ("a", "2")), table(("a", "2"), ("a", "1"), ("a", "0")), None),
        ("<svg id='s'><rect class='up' x='1'/></svg>", "<svg id='s'><rect class='down' x='1'/><rect/></svg>", ["s"]),
        ("<form><input name='id'><input name='key'></form>", "<form title='x'><input name='key'></form>", []),
    ],
)  # fmt: skip
def test_html_is_changed_to_other_html_and_what_is_the_same_stays(
    blank: Page, before: str, after: str, same: list[str] | None
) -> None:
    found = blank.evaluate(MORPHED, [before, after])
    assert found["like"], found["html"]
    assert same is None or found["same"] == same


FUZZ = """rounds => {
  let seed = 7;
  const random = below => { seed = (seed * 1103515245 + 12345) % 2147483648; return Math.floor(seed / 65536) % below; };
  const tree = depth => Array.from({ length: random(5) }, () => {
    const kind = random(5);
    if (kind === 0 || depth === 0) return ["text", " ", "other"][random(3)];
    if (kind === 1) return "<!--" + random(3) + "-->";
    const name = ["p", "span", "div", "details"][random(4)].replace("p", depth > 1 ? "section" : "p");
    const mark = ["", "", ` id="${random(9)}"`, ` data-key="${random(5)}"`, ` class="c${random(3)}"`][random(5)];
    return `<${name}${mark}>${tree(depth - 1)}</${name}>`;
  }).join("");
  const element = document.createElement("div"), wanted = document.createElement("div");
  document.body.append(element);
  for (let round = 0; round < rounds; round++) {
    const html = tree(4);
    const before = element.innerHTML;
    wanted.innerHTML = html;
    window.morph(element, html);
    if (!element.isEqualNode(wanted)) return [before, html, element.innerHTML];
  }
  element.remove();
  return null;
}"""


def test_any_html_is_changed_to_any_other(blank: Page) -> None:
    assert blank.evaluate(FUZZ, 3000) is None


def test_what_readers_and_scripts_have_set_stays(blank: Page) -> None:
    found = blank.evaluate("""() => {
      const element = document.createElement("div");
      document.body.append(element);
      element.innerHTML = "<details><summary>s</summary></details><div data-keep='chart'></div><input id='i' value='1'>";
      const [details, chart, input] = element.children;
      details.open = true;
      chart.append("drawn");
      input.value = "written";
      input.focus();
      window.morph(element, "<p>first</p><input id='i' value='1'><div data-keep='chart' class='x'><b></b></div><details></details>");
      const kept = [details.open, chart.textContent, input.value, document.activeElement === input,
        [...element.children].map(each => each.localName).join(" ")];
      window.morph(element, "<div data-keep='another chart'>new</div>");
      return [...kept, element.innerHTML];
    }""")  # noqa: E501
    assert found == [True, "drawn", "written", True, "p input div details", '<div data-keep="another chart">new</div>']


def test_the_scripts_are_sent_with_a_policy_that_lets_them_reach_only_this_service(service: Running) -> None:
    for name in ("/static/live.js", "/static/app.js"):
        policy = service.get(name).headers["content-security-policy"]
        assert policy == "default-src 'none'; connect-src 'self'; frame-ancestors 'none'"
