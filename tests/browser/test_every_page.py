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
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from tests.browser.conftest import Enter
from tests.browser.demonstrated import addresses, demonstrate
from tests.service.serving import LINES, Running, running

TALLEST = 5500  # px of a page on a phone: some screens to scroll; the policy and what is written out are taller
TALL = ("/policy", "/events", "/triggers", "/repos")
RULES = {"resultTypes": ["violations"], "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
# What is wider than the screen, or has letters smaller than 13 px.
MISFITS = """() => {
  const aside = "thead, .unseen, .skip, nav.side, svg";
  const shown = [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && !e.closest(aside));
  const wide = shown.filter(e => e.closest("main") && e.getBoundingClientRect().right > innerWidth + 1);
  const small = shown.filter(e => parseFloat(getComputedStyle(e).fontSize) < 13
    && [...e.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.textContent.trim()));
  const names = found => found.map(e => e.outerHTML.slice(0, 100));
  return {wide: names(wide), small: names(small), width: document.documentElement.scrollWidth};
}"""


@pytest.fixture(scope="module")
def service(store: str) -> Iterator[Running]:
    """All applications, with demo data."""
    with running(url=store, tokens=LINES) as it:
        demonstrate(it)
        yield it


def violations(page: Page) -> list[dict[str, Any]]:
    """What axe-core finds on the page as it stands."""
    found = Axe().run(page, options=RULES).response["violations"]
    return [{"rule": each["id"], "nodes": [node["html"][:200] for node in each["nodes"]][:5]} for each in found]


def picture(page: Page, path: Path) -> None:
    """Takes a picture if somebody wants to look at it: a hundred of them take a while."""
    if "SOLELY_TEST_SHOTS" in os.environ:
        page.screenshot(path=path)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_fits_on_a_phone(enter: Enter, service: Running, shots: Path, scheme: str) -> None:
    wide, narrow = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
    page = enter(viewport=wide, color_scheme=scheme, reduced_motion="reduce", statuses=(404,))
    wrong: dict[str, Any] = {}
    for path, title in addresses(service).items():
        page.goto(path)
        if title:
            expect(page.get_by_role("heading", level=1)).to_have_text(title)
        page.evaluate("document.getElementById('live')?.click()")  # nothing changes while it is examined
        name = re.sub("[^a-z]+", "-", path)
        picture(page, shots / f"1440-{scheme}{name}.png")
        found = violations(page)
        page.set_viewport_size(narrow)  # type: ignore[arg-type]
        misfits = page.evaluate(MISFITS)
        picture(page, shots / f"390-{scheme}{name}.png")
        height = page.evaluate("document.documentElement.scrollHeight")
        if found or misfits != {"wide": [], "small": [], "width": 390}:
            wrong[path] = (found, misfits)
        if height > TALLEST and not path.startswith(TALL):
            wrong[f"{path} (height)"] = height
        page.set_viewport_size(wide)  # type: ignore[arg-type]
    assert wrong == {}, pformat(wrong, width=200)
    page.goto("/locks")
    page.evaluate("document.querySelector('main').append(new Image())")
    assert [each["rule"] for each in violations(page)] == ["image-alt"]  # it does find what is wrong
