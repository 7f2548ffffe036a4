"""What the README and the docs show is run, word for word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from solely import kit
from solely.service.mount import all_routes
from solely.service.service import Service
from tests.http_service import HttpServices
from tests.servers import Valkey
from tests.service.serving import running, settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return FENCE.findall((ROOT / page).read_text())


def test_first_example_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(blocks("README.md")[0], {})
    deploying, *others = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"deploying under fence \d+", deploying)
    assert others == ["sending the invoice", "already sent: nothing to do", "paging somebody"]


def test_the_alert_of_the_readme_is_published_once() -> None:
    (call,) = re.findall(r"^curl -s localhost:8765(/api/alerts) -H '(.*?): (.*?)' -d '(.*?)'$", README, re.MULTILINE)
    path, header, value, body = call
    with running() as service:
        answers = [service.http.post(path, content=body, headers={header: value}).json() for _ in range(10)]
    assert [each["outcome"] for each in answers] == ["published", *["suppressed"] * 9]


def test_the_lock_of_the_readme() -> None:
    (call,) = re.findall(r"^curl -s localhost:8765(/v1/\S+) -H '(.*?): (.*?)' -d '(.*?)'$", README, re.MULTILINE)
    path, header, value, body = call
    with running() as service:
        assert service.http.post(path, content=body, headers={header: value}).json()["fence"] > 0


@pytest.mark.parametrize("number", range(len(blocks("docs/testing.md"))))
def test_examples_of_the_testing_page(number: int, valkey: Valkey) -> None:
    exec(blocks("docs/testing.md")[number].replace("6379", str(valkey.port)), {})


@pytest.mark.parametrize(
    "page",
    [
        "docs/applications.md",
        "docs/claims.md",
        "docs/client.md",
        "docs/dashboard.md",
        "docs/dead-letters.md",
        "docs/watermarks.md",
        "docs/http-idempotency.md",
        "docs/integrations.md",
        "docs/outgoing.md",
        "docs/reservations.md",
        "docs/resilience.md",
        "docs/stores.md",
    ],
)
def test_examples_of_pages_that_need_no_server(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shared: dict[str, object] = {}
    for block in blocks(page):
        exec(block, shared)


def test_the_applications_of_the_page_declare_their_routes() -> None:
    shared: dict[str, Any] = {}
    for block in blocks("docs/applications.md"):
        exec(block, shared)
    service, paths = Service(settings()), set[str]()
    for kind in [each for each in shared.values() if isinstance(each, type) and issubclass(each, kit.Application)]:
        app = kind(service, kind.Settings())
        acts = [route for act, perform in app.acts().items() for route in kit.act_routes(act, perform)]
        paths |= {route.path for route in (*app.routes(), *acts)}
    assert paths == {"/api/mails", "/api/probes/pause", "/probes/pause"}


def test_examples_of_the_api_page(http_services: HttpServices) -> None:
    url = http_services.url()
    for block in blocks("docs/api.md"):
        exec(block.replace("https://solely.example.org", url), {})


def test_the_api_page_names_every_route() -> None:
    page = (ROOT / "docs/api.md").read_text()
    for route in all_routes():
        if route.path.startswith("/v1/") and not route.hidden:
            assert f"`{route.method} {route.path}`" in page


def test_the_readme_fits_two_screens() -> None:
    assert len(README.splitlines()) <= 105


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
