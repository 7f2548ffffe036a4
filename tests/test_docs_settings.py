"""Every settings file of the docs goes through `solely check-config` and a real start, and does what its page says.

Only hosts and secrets are replaced, by those of servers on loopback.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from solely.apps import APPS
from solely.cli.program import perform
from tests.apps.inbox import SECRET, is_genuine
from tests.apps.probes.sites import NameServer
from tests.apps.repos.forge_server import TOKEN, Forges, forges
from tests.apps.repos.pods import HOOK, Hooks
from tests.apps.repos.test_webhooks import merge_request
from tests.cli.conftest import Start
from tests.cli.conftest import start as start  # a fixture
from tests.service.serving import Process, bearer, running, until
from tests.test_docs import blocks

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")), ROOT / "examples" / "README.md"]
LANGUAGES = ("toml", "yaml", "yml", "ini", "env")


def _shown() -> dict[str, str]:
    """The configuration that pages show, by page, language (unless it is TOML) and number."""
    found: dict[str, str] = {}
    for page in PAGES:
        for language, text in re.findall(r"^ *```(\w+)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
            kind = page.name if language == "toml" else f"{page.name}-{language}"
            printed = re.findall(r"^\$ cat \S+\.(?:toml|yml)\n(.*?)^(?=\$ |\Z)", text, re.MULTILINE | re.DOTALL)
            for each in [text] if language in LANGUAGES else printed:
                number = next(number for number in range(1, 99) if f"{kind}-{number}" not in found)
                found[f"{kind}-{number}"] = each
    return found


SHOWN = _shown()
TESTS = ("test_docs_settings.py", "test_docs_clients.py", "test_docs_calls.py")
# Configuration that another test starts.
ELSEWHERE = {"probes.md-1": "tests/apps/probes/test_front_door.py"}  # with Django's own login
NOWHERE = "http://127.0.0.1:1"  # where nobody listens


class Service:
    """A service that was started with a settings file."""

    def __init__(self, process: Process) -> None:
        self.http = httpx2.Client(base_url=process.address(), timeout=60.0)

    def post(self, path: str, body: object, token: str = "") -> Any:
        answer = self.http.post(path, json=body, headers=bearer(token) if token else {})
        assert answer.status_code < 300, answer.text
        return answer.json()


@contextmanager
def started(folder: Path, text: str, **environ: str) -> Iterator[Service]:
    """The service, once `solely check-config` accepts the file and it is ready."""
    file = folder / "solely.toml"
    file.write_text(text)
    assert perform(["check-config", "--config", str(file)]) == 0
    with Process(folder, "--config", str(file), **environ) as process:
        service = Service(process)
        with service.http:
            until(lambda: service.http.get("/readyz").status_code == 200)
            yield service


class Receiver(ThreadingHTTPServer):
    """Collects what is posted to it, with the headers."""

    daemon_threads, block_on_close = True, False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, Any, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def of(self, path: str) -> list[tuple[Any, bytes]]:
        return [(headers, body) for asked, headers, body in [*self.got] if asked == path]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.path, self.headers, body))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what matters is kept."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as it:
        thread = threading.Thread(target=it.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield it
        finally:
            it.shutdown()
            thread.join(60)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOLELY_URL", raising=False)


def alert(severity: str, fingerprint: str = "disk") -> dict[str, str]:
    return {"name": "Disk full", "severity": severity, "source": "db-1", "fingerprint": fingerprint}


# -- one test for each example


def test_tokens_of_two_environments_share_no_run(tmp_path: Path) -> None:
    """triggers.md-1"""
    tokens = {name: f"the-token-of-{name}-in-these-tests" for name in ("shop", "shop-staging")}
    lines = ",".join(f"{name}:write:{hashlib.sha256(each.encode()).hexdigest()}" for name, each in tokens.items())
    with started(tmp_path, SHOWN["triggers.md-1"], SOLELY_TOKENS=lines) as service:
        body = {"payload": {"order": 1}, "options": {"idempotencyKey": "order-1"}}
        runs = {
            name: [service.post("/api/v1/tasks/charge/trigger", body, each)["id"] for _ in range(2)]
            for name, each in tokens.items()
        }
        (shop,), (staging,) = (set(each) for each in runs.values())
        assert shop != staging
        for name, status in (("shop", 200), ("shop-staging", 404)):
            answer = service.http.get(f"/api/v3/runs/{shop}", headers=bearer(tokens[name]))
            assert answer.status_code == status
        gates = service.http.get("/api/triggers/gate", headers=bearer(tokens["shop"])).json()["gates"]
        assert [(each["environment"], each["buffer"]) for each in gates] == [("production", "sql")]


def test_publishers_get_the_alerts_that_match(tmp_path: Path, receiver: Receiver) -> None:
    """alerts.md-1"""
    text = re.sub(r"https://(pager|hooks\.slack)\.example\.(org|com)", receiver.url, SHOWN["alerts.md-1"])
    text = re.sub(r"whsec_\w+", SECRET, text)
    with started(tmp_path, text) as service:
        assert service.post("/api/alerts", alert("critical"))["outcome"] == "published"
        assert service.post("/api/alerts", alert("critical"))["outcome"] == "suppressed"
        assert service.post("/api/alerts", alert("info", "other") | {"name": "Other"})["outcome"] == "published"
        until(lambda: len(receiver.got) >= 3)
    ((headers, body),) = receiver.of("/hooks/solely")
    assert is_genuine(headers, body)
    assert "Disk full" in body.decode()
    chat = [body.decode() for _, body in receiver.of("/services/T0/B0/x")]
    assert ["Disk full" in each for each in sorted(chat)].count(True) == 1
    assert len(chat) == 2


@pytest.mark.parametrize("example", ["alerts.md-2", "applications.md-1", "applications.md-2"])
def test_an_alert_is_published_once(example: str, tmp_path: Path) -> None:
    with started(tmp_path, SHOWN[example]) as service:
        answers = [service.post("/api/alerts", alert("critical")) for _ in range(3)]
        assert [each["outcome"] for each in answers] == ["published", "suppressed", "suppressed"]
        assert 200 < answers[-1]["retryAfter"] <= 300, "quiet is 5 m"
        other = [service.post("/api/alerts", alert("info", "other") | {"name": "Other"}) for _ in range(2)]
        assert other[-1]["retryAfter"] > 300, "which is of the severity critical alone"
        probes = service.http.get("/api/probes/targets").status_code
        assert probes == (404 if example == "applications.md-1" else 200)


def test_forges_are_believed_by_the_secrets_of_the_file(tmp_path: Path) -> None:
    """repos.md-2"""
    text = SHOWN["repos.md-2"].replace('url = "https://gitlab.example.org"', f'url = "{NOWHERE}"')
    text = text.replace("https://example.atlassian.net", NOWHERE)
    text = text.replace("[repos.github]", f'[repos.github]\nurl = "{NOWHERE}"')
    with started(tmp_path, text) as service:
        # The second is a duplicate of the first.
        for token, status in (("the new one", 202), ("the old one", 200), ("another", 401)):
            headers = {"x-gitlab-token": token, "x-gitlab-event": "Merge Request Hook"}
            assert service.http.post("/api/repos/gitlab", json=merge_request(), headers=headers).status_code == status
        body = json.dumps({"zen": "Keep it simple.", "hook_id": 1}).encode()
        for secret, expected in (("a secret", {200, 202, 204}), ("another", {401})):
            signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
            headers = {"x-hub-signature-256": signature, "x-github-event": "ping", "content-type": "application/json"}
            assert service.http.post("/api/repos/github", content=body, headers=headers).status_code in expected
        assert service.http.get("/repos").status_code == 200


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[Forges]:
    with forges(tmp_path / "repositories") as it:
        yield it


def test_a_hook_makes_jobs_which_wait_for_commands(tmp_path: Path, stub: Forges) -> None:
    """repos.md-console-1"""
    text = SHOWN["repos.md-console-1"].replace("https://gitlab.example.org", stub.url).replace("glpat-…", TOKEN)
    project = stub.gitlab.project("group/project")
    stub.gitlab.merge_request(project)
    event = stub.gitlab.merge_request_event(project, 1)
    with started(tmp_path, text) as service:
        for secret, status in (("another", 401), ("a secret that the hook sends", 202)):
            headers = {"x-gitlab-token": secret, "x-gitlab-event": "Merge Request Hook"}
            assert service.http.post("/api/repos/gitlab", json=event, headers=headers).status_code == status
        queues = service.http.get("/v1/queues").json()["queues"]
        assert [each["items"] for each in queues if each["queue"] == "~repos/jobs"] == [1]


def test_the_commands_of_jobs_are_run(tmp_path: Path, stub: Forges) -> None:
    """repos.md-1, with the forge of repos.md-console-1"""
    agent = tmp_path / "agent"
    agent.mkdir()
    (agent / "review").write_text('#!/bin/sh\necho "reviewed $1"\n')
    (agent / "code").write_text('#!/bin/sh\ntest "$MODEL_KEY" = x && echo coded | tee work.txt\n')
    for each in agent.iterdir():
        each.chmod(0o755)
    gitlab = f'[repos.gitlab]\nurl = "{stub.url}"\ntoken = "{TOKEN}"\nwebhook_tokens = ["{HOOK}"]\n'
    text = gitlab + SHOWN["repos.md-1"].replace("/opt/agent", str(agent))
    project = stub.gitlab.project()
    stub.gitlab.merge_request(project)
    note = stub.gitlab.note(project, 1, "/copilot work")
    with started(tmp_path, text) as service:
        hooks, address = Hooks(stub), str(service.http.base_url).rstrip("/")
        hooks.opened(address, project, 1)
        hooks.noted(address, project, 1, note)
        wanted = ("reviewed --brief", "coded")
        until(lambda: all(said in "".join(stub.gitlab.comments(project, 1)) for said in wanted))
        assert stub.gitlab.repositories[project].file("feature", "work.txt") == "coded"


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    """A name server on a thread of its own."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    server = NameServer(0, "192.0.2.7")

    async def serve() -> None:
        transport, _ = await loop.create_datagram_endpoint(lambda: server, ("127.0.0.1", 0))
        ready.set()
        await ended.wait()
        transport.close()

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    yield server
    loop.call_soon_threadsafe(ended.set)
    thread.join(60)
    loop.close()


def test_a_module_asks_the_name_server(tmp_path: Path, name_server: NameServer) -> None:
    """probes.md-2"""
    text = f'probes.guard_allow = ["127.0.0.0/8"]\n{SHOWN["probes.md-2"]}'
    with started(tmp_path, text) as service:
        query = {"target": f"127.0.0.1:{name_server.port}", "module": "dns_example"}
        answer = service.http.get("/probe", params=query).text
        assert re.search(r"^probe_success 1(\.0)?$", answer, re.MULTILINE), answer
    assert any(b"\x07example\x03org" in asked for asked in name_server.asked)


def test_the_jobs_of_cron_run(tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """schedules.md-1: as it is, it waits for three in the morning."""
    file, ran = tmp_path / "jobs.toml", tmp_path / "ran"
    file.write_text(SHOWN["schedules.md-1"])
    url = f"sqlite:///{tmp_path}/store.db"
    assert perform(["cron", str(file), "--check", "--url", url]) == 0
    assert re.search(r"^report +0 3 \* \* \* ", capfd.readouterr().out, re.MULTILINE)
    (tmp_path / "report").write_text(f'#!/bin/sh\necho "$LANG $*" > {ran}.new; mv {ran}.new {ran}\n')
    (tmp_path / "report").chmod(0o755)
    often = SHOWN["schedules.md-1"].replace('"0 3 * * *" ', "0.2 ").replace('["report"', f'["{tmp_path}/report"')
    file.write_text(often)
    start(url, "cron", str(file))
    until(ran.exists)
    assert ran.read_text() == "C --daily\n"


def test_an_application_without_a_name_is_mounted_nowhere(tmp_path: Path) -> None:
    """applications.md-1, with its second line instead of its first"""
    _, second = SHOWN["applications.md-1"].splitlines()
    with started(tmp_path, second.removeprefix("# ")) as service:
        assert service.http.post("/api/alerts", json=alert("critical")).status_code == 404
        assert service.http.get("/readyz").status_code == 200


@pytest.fixture
def mails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The application that docs/applications.md has its reader write."""
    (source,) = [block for block in blocks("docs/applications.md") if "class Mails(" in block]
    package = tmp_path / "packages" / "mails_of_the_page"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Mails: sends each mail once."""\n')
    (package / "app.py").write_text(source)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setitem(APPS, "mails", f"{package.name}:Mails")
    yield
    for name in (package.name, f"{package.name}.app"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("mails")
def test_an_application_of_ones_own_calls_what_its_section_names(tmp_path: Path, receiver: Receiver) -> None:
    """applications.md-3"""
    text = SHOWN["applications.md-3"].replace("https://mail.example.org", receiver.url)
    file = tmp_path / "solely.toml"
    file.write_text(text)
    assert perform(["check-config", "--config", str(file)]) == 0
    section = tomllib.loads(text)["mails"]
    with running(apps=["mails"], **{f"mails.{name}": value for name, value in section.items()}) as service:
        assert [service.post("/api/mails", {"to": "ann"}).json() for _ in range(2)] == [{"new": True}, {"new": False}]
        until(lambda: receiver.got)
    ((_, body),) = receiver.of("/send")
    assert json.loads(body) == {"to": "ann"}


def test_every_example_is_started() -> None:
    """A new one needs a test: one in TESTS names it."""
    here = "".join((ROOT / "tests" / name).read_text() for name in TESTS)
    assert [name for name in SHOWN if not re.search(rf"[\"\[]{re.escape(name)}\"", here)] == []
    for name, test in ELSEWHERE.items():
        assert name.rpartition("-")[0] in (ROOT / test).read_text()
