"""Every page of the dashboard and of all applications, with demo data: it can be used by people who see, hear or zoom
in other ways than most (axe-core finds nothing), in both schemes, and it fits on a phone.

With SOLELY_TEST_SHOTS=folder the pictures stay there, to be looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from pprint import pformat
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.conftest import Enter
from tests.browser.demonstrated import addresses, demonstrate
from tests.service.serving import LINES, Running, running

TALLEST = 5500  # px of a page on a phone: some screens to scroll; the policy and what is written out are taller
TALL = ("/policy", "/events", "/triggers", "/repos")
WIDE, NARROW = ViewportSize(width=1440, height=900), ViewportSize(width=390, height=844)
FITS = {"wide": [], "small": [], "broken": [], "width": NARROW["width"]}
# What axe-core is to look for: in the dark scheme only what differs from the light one.
SCHEMES: dict[Literal["light", "dark"], dict[str, Any]] = {
    "light": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]},
    "dark": {"type": "rule", "values": ["color-contrast"]},
}
# What is wider than the screen, has letters smaller than 13 px, or is a short word on several lines.
MISFITS = """() => {
  const aside = "thead, .unseen, .skip, nav.side, svg";
  const shown = [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && !e.closest(aside));
  const wide = shown.filter(e => e.closest("main") && e.getBoundingClientRect().right > innerWidth + 1);
  const small = shown.filter(e => parseFloat(getComputedStyle(e).fontSize) < 13
    && [...e.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.textContent.trim()));
  const lines = (node, start, end) => {
    const range = document.createRange();
    range.setStart(node, start);
    range.setEnd(node, end);
    return new Set([...range.getClientRects()].map(each => Math.round(each.top))).size;
  };
  const breaks = node => node.nodeType === Node.TEXT_NODE
    && [...node.data.matchAll(/[a-z]{2,10}/gi)].some(word => lines(node, word.index, word.index + word[0].length) > 1);
  const broken = shown.filter(e => e.matches("table.plain th") && [...e.childNodes].some(breaks));
  const names = found => found.map(e => e.outerHTML.slice(0, 100));
  return {wide: names(wide), small: names(small), broken: names(broken), width: document.documentElement.scrollWidth};
}"""


@pytest.fixture(scope="module")
def service(store: str) -> Iterator[Running]:
    """All applications, with demo data."""
    with running(url=store, tokens=LINES) as it:
        demonstrate(it)
        yield it


def violations(page: Page, **chosen: Any) -> list[dict[str, Any]]:
    """What axe-core finds on the page as it stands, by these rules."""
    found = Axe().run(page, options={"resultTypes": ["violations"], "runOnly": chosen}).response["violations"]
    return [{"rule": each["id"], "nodes": [node["html"][:200] for node in each["nodes"]][:5]} for each in found]


def picture(page: Page, path: Path) -> None:
    """Takes a picture if somebody wants to look at it: a hundred of them take a while."""
    if "SOLELY_TEST_SHOTS" in os.environ:
        page.screenshot(path=path)


def misfits(page: Page) -> dict[str, Any]:
    """What does not fit on a phone: at last, since charts are drawn anew a moment after the window has changed."""
    for _ in range(50):
        found: dict[str, Any] = page.evaluate(MISFITS)
        if found == FITS:
            break
        page.wait_for_timeout(100)
    return found


@pytest.mark.timeout(900)  # forty pages, on a machine that others use too
def test_every_page_is_accessible_and_fits_on_a_phone(enter: Enter, service: Running, shots: Path) -> None:
    page = enter(viewport=WIDE, reduced_motion="reduce", statuses=(404,))
    wrong: dict[str, Any] = {}
    for path, title in addresses(service).items():
        page.goto(path)
        if title:
            expect(page.get_by_role("heading", level=1)).to_have_text(title)
        page.evaluate("document.getElementById('live')?.click()")  # nothing changes while it is examined
        name = re.sub("[^a-z]+", "-", path)
        found = []
        for scheme, rules in SCHEMES.items():
            page.emulate_media(color_scheme=scheme)
            picture(page, shots / f"1440-{scheme}{name}.png")
            found += violations(page, **rules)
        page.set_viewport_size(NARROW)
        unfit = misfits(page)
        picture(page, shots / f"390-dark{name}.png")
        height = page.evaluate("document.documentElement.scrollHeight")
        page.set_viewport_size(WIDE)
        if found or unfit != FITS or (height > TALLEST and not path.startswith(TALL)):
            wrong[path] = (found, unfit, height)
    assert wrong == {}, pformat(wrong, width=200)
    page.goto("/locks")
    page.evaluate("document.querySelector('main').append(new Image())")
    assert [each["rule"] for each in violations(page, **SCHEMES["light"])] == ["image-alt"]  # it finds what is wrong
    page.evaluate("document.querySelector('h1').style.color = '#333'")
    assert [each["rule"] for each in violations(page, **SCHEMES["dark"])] == ["color-contrast"]
