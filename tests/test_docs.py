"""What the README and the docs show is run, word for word; their commands and links exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import solely
from solely import kit
from solely.service.mount import all_routes
from solely.service.service import Service
from tests.http_service import HttpServices
from tests.servers import Valkey
from tests.service.serving import running, settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ["README.md", *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")))]
END = 300  # seconds for the commands of a page: they take some seconds, but a test machine can be very busy

# Pages whose blocks are run one by one, on the servers that they name: the test beside each.
ELSEWHERE = {"docs/fencing.md": "tests/test_fencing.py"}


def blocks(page: str) -> list[str]:
    return FENCE.findall((ROOT / page).read_text())


# -- Python


@pytest.fixture
def here(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Returns a block with the servers of this test run in place of those that it names."""

    def replaced(block: str) -> str:
        if "redis://localhost" in block or "6379" in block:
            valkey: Valkey = request.getfixturevalue("valkey")
            block = re.sub(r"redis://localhost(?![:\w.])", f"redis://localhost:{valkey.port}", block)
            block = block.replace("6379", str(valkey.port))
        if "https://solely.example.org" in block:
            services: HttpServices = request.getfixturevalue("http_services")
            block = block.replace("https://solely.example.org", services.url())
        return block

    return replaced


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the clients that a page opens for as long as its program runs."""
    opened: list[solely.Client] = []
    start = solely.Client.__init__

    def noted(client: solely.Client, *words: Any, **options: Any) -> None:
        start(client, *words, **options)
        opened.append(client)

    monkeypatch.setattr(solely.Client, "__init__", noted)
    yield
    for each in opened:
        each.close()


@pytest.mark.usefixtures("closing")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) and page not in ELSEWHERE])
def test_every_python_block_runs_after_those_before_it(
    page: str, here: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shared: dict[str, object] = {}
    for number, block in enumerate(blocks(page), 1):
        exec(compile(here(block), f"{page}, block {number}", "exec"), shared)


@pytest.mark.parametrize("page", ELSEWHERE)
def test_other_pages_are_run_elsewhere(page: str) -> None:
    assert f'blocks("{page}")' in (ROOT / ELSEWHERE[page]).read_text()


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


# -- commands


def commands_of(page: str) -> list[tuple[str, list[str]]]:
    """The commands of the page's console blocks that begin with `$`, each with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/tutorial/") and commands_of(page)])
def test_the_commands_of_the_tutorial_print_what_it_shows(page: str, tmp_path: Path) -> None:
    """One shell runs all commands of a page but pip; `…` stands for anything."""
    commands = [each for each in commands_of(page) if not each[0].startswith("pip install")]
    script = "\n".join(f"echo '<{number}>'\n{command}" for number, (command, _) in enumerate(commands))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = subprocess.run(
        ["bash", "-euc", f"exec 2>&1\n{script}"], cwd=tmp_path, env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE, text=True, timeout=END, check=False,
    )  # fmt: skip
    assert shell.returncode == 0, shell.stdout
    printed = re.split(r"^<\d+>\n", shell.stdout, flags=re.MULTILINE)[1:]
    for (command, shown), actual in zip(commands, printed, strict=True):
        pattern = "".join(re.escape(line).replace("…", ".*") + "\n" for line in shown)
        assert re.fullmatch(pattern, actual), f"$ {command}\n{actual}"


# -- the API, links, sizes


def test_the_api_page_names_every_route() -> None:
    page = (ROOT / "docs/api.md").read_text()
    for route in all_routes():
        if route.path.startswith("/v1/") and not route.hidden:
            assert f"`{route.method} {route.path}`" in page


def test_the_readme_fits_two_screens() -> None:
    assert len(README.splitlines()) <= 105


def test_every_link_between_pages_leads_somewhere() -> None:
    """Files here; `scripts/docs` checks the anchors too, in the built site."""
    others = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md"]
    for page in (ROOT / name for name in [*PAGES, *others]):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
