"""The pages of the repositories as people use them, in a real Chromium.

With SOLELY_TEST_SHOTS=folder the pictures stay there, to be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.apps.repos.forge_server import Forges, forges
from tests.apps.repos.pods import Hooks, settings, shell
from tests.browser.conftest import Enter
from tests.browser.test_dashboard import CONTRAST
from tests.service.serving import LINES, TOKENS, Running, bearer, running, until

LEGIBLE = 4.5  # contrast that WCAG 2 asks for, level AA
PATIENCE = 30_000  # ms for a job to be done on a machine that others use too
REVIEW = 'if test "$SOLELY_JOB_TITLE" = "Wait"; then while ! test -e "$GO"; do sleep 0.1; done; fi; echo "It is fine"'


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forges]:
    with forges(tmp_path_factory.mktemp("browser") / "repositories") as it:
        it.gitlab.project()
        yield it


@pytest.fixture(scope="module")
def go(stub: Forges) -> Path:
    """What the review of the merge request "Wait" waits for."""
    return stub.folder / "go"


@pytest.fixture(scope="module")
def service(store: str, stub: Forges, go: Path) -> Iterator[Running]:
    """A service with a review that was reported twice, one that failed, and a polled project."""
    project = next(iter(stub.gitlab.projects))
    jobs = {"review": shell(REVIEW, environment={"GO": str(go)}), "command": shell("exit 1"), "max_attempts": 1}
    given = settings(stub, jobs)
    given["gitlab"] |= {"projects": [project]}
    with running(url=store, tokens=LINES, apps=("repos",), repos=given) as it:
        hooks, gitlab = Hooks(stub), stub.gitlab
        gitlab.merge_request(project, title="A title that is somewhat longer than most titles of merge requests are")
        for _ in range(2):
            hooks.opened(it.address, project, 1)
        hooks.noted(it.address, project, 1, gitlab.note(project, 1, "/copilot fail"))
        until(lambda: {"done", "failed"} <= {row["state"] for row in jobs_of(it)}, 60.0)
        yield it


def jobs_of(service: Running) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = service.get("/api/repos/jobs", headers=bearer(TOKENS["read"])).json()["jobs"]
    return rows


def test_every_page_renders_and_is_legible_in_light_and_in_dark_wide_and_narrow(
    enter: Enter, service: Running, shots: Path
) -> None:
    id = next(row["id"] for row in jobs_of(service) if row["state"] == "done")
    page = enter("/repos")
    for path, title in {"/repos": "Repositories", "/repos/jobs": "Jobs", f"/repos/job?id={id}": "Job"}.items():
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page.locator("nav.side [aria-current=page]")).to_have_text("Repositories")
        expect(page.locator("#live")).to_have_text("Live")
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            for width in (1440, 390):
                page.set_viewport_size({"width": width, "height": 900})
                name = re.sub("[^a-z]+", "-", path.partition("?")[0])
                page.screenshot(path=shots / f"{colours}{name}-{width}.png", full_page=True)
                assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.set_viewport_size({"width": 1440, "height": 900})
            ratio, where = page.evaluate(CONTRAST)
            assert ratio >= LEGIBLE, (colours, where)


def test_a_job_appears_while_one_looks_and_its_log_can_be_read(
    enter: Enter, service: Running, stub: Forges, go: Path
) -> None:
    gitlab, project = stub.gitlab, next(iter(stub.gitlab.projects))
    page = enter("/repos")
    request = gitlab.merge_request(project, "waits", "Wait")
    Hooks(stub).opened(service.address, project, request["iid"])
    row = page.locator("tr").filter(has_text="Wait").first
    expect(row).to_contain_text("running", timeout=PATIENCE)
    go.touch()
    expect(row).to_contain_text("done", timeout=PATIENCE)
    row.get_by_role("link", name=f"review !{request['iid']}").click()
    expect(page.locator("pre.payload")).to_have_text("It is fine\n")


def test_an_admin_repeats_a_job_and_says_why(enter: Enter, service: Running, stub: Forges) -> None:
    project = next(iter(stub.gitlab.projects))
    before = len(stub.gitlab.comments(project, 1))
    page = enter("/repos/jobs?kind=review")
    page.locator("tr").filter(has_text="somewhat longer").get_by_role("button", name="Repeat").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the reviewer has learned something")
    dialog.get_by_role("button", name="Repeat", exact=True).click()
    until(lambda: len(stub.gitlab.comments(project, 1)) > before, 60.0)
    audited = service.get("/audit", params={"format": "json"}, headers=bearer(TOKENS["read"])).text
    assert "the reviewer has learned something" in audited
