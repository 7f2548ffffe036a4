"""The API reference in a browser: reached from the navigation, readable on a phone, without a complaint of axe-core."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect

from tests.browser.conftest import Enter


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_api_leads_to_an_operation_with_its_example(enter: Enter, width: int, scheme: str) -> None:
    page = enter("/", scope="read", viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.get_by_role("link", name="API", exact=True).click()
    expect(page.get_by_role("heading", name="API", exact=True)).to_be_visible()
    violations = Axe().run(page).response["violations"]
    page.get_by_role("link", name="POST /v1/locks/acquire").click()
    expect(page.get_by_label("Request", exact=True).nth(1)).to_contain_text("/v1/locks/acquire")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations + Axe().run(page).response["violations"] == []
