"""Every `curl` that a page shows is sent, word for word but for the port, and gets what the page prints; so are the
other requests of the pages."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from tests.conftest import AMTOOL
from tests.service.serving import LINES, TOKENS, running
from tests.test_docs_commands import SHELLS
from tests.test_docs_settings import PAGES, ROOT, SHOWN

# Of the lists and marks of the page, these values are different each time.
VARYING = {"id", "fence", "token", "left", "at", "retryAfter"}


class Call(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: str | None
    printed: str  # "" where the page shows no answer


def blocks_of(page: Path, having: str = "curl ") -> list[str]:
    """The blocks of commands that have this text."""
    found = re.findall(r"^ *```([^\n`]*)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [block for language, block in found if language in SHELLS and having in block]


def calls_of(block: str) -> Iterator[Call]:
    """The calls of a block, in which a variable may have a body; and what is printed below each."""
    variables: dict[str, str] = {}
    lines = [each.removeprefix("$ ") for each in block.replace("\\\n", " ").splitlines()]
    for number, line in enumerate(lines):
        if assigned := re.fullmatch(r"(\w+)='(.*)'", line):
            variables[assigned[1]] = assigned[2]
        elif line.startswith("curl "):
            below = lines[number + 1] if number + 1 < len(lines) else ""
            yield read_call(line, variables, below if below.startswith("{") else "")


def read_call(line: str, variables: dict[str, str], printed: str) -> Call:
    method, path, headers, body = "GET", "", dict[str, str](), None
    words = iter(shlex.split(line)[1:])
    for word in words:
        if word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "-d":
            method, body = "POST", next(words)
            body = variables.get(body.removeprefix("$"), body)
        elif word == "-X":
            method = next(words)
        elif not word.startswith("-"):
            address = re.fullmatch(r"(?:http://)?(?:localhost|127\.0\.0\.1):8765(/\S*)", word)
            assert address, word
            path = address[1]
    return Call(method, path, headers, body, printed)


def check(answer: Any, printed: Any) -> None:
    """The answer has the fields that are printed, in their order, and the values of those that do not vary."""
    assert list(answer) == list(printed)
    for name, value in printed.items():
        if isinstance(value, dict):
            check(answer[name], value)
        elif name not in VARYING:
            assert answer[name] == value, name
        else:
            assert type(answer[name]) is type(value) or isinstance(answer[name], int | float), name


WITH_CALLS = [page for page in PAGES if blocks_of(page)]


@pytest.mark.parametrize("page", WITH_CALLS, ids=lambda page: page.stem)
def test_the_calls_of_a_page_get_what_it_prints(page: Path) -> None:
    token = ""
    for block in blocks_of(page):
        with running() as service:
            for call in calls_of(block):
                body = None if call.body is None else re.sub(r'(?<="token": ")[^"]*…', token, call.body)
                answer = service.http.request(call.method, call.path, content=body, headers=call.headers)
                assert answer.status_code == 200, (call, answer.text)
                if call.printed:
                    check(answer.json(), json.loads(re.sub(r"(?<=:)…", "0", call.printed)))
                token = answer.json().get("token", token)


def test_the_pages_with_calls_are_found() -> None:
    named = {"README.md", "alerts.md", "api.md", "service.md", "signals.md", "triggers.md"}
    assert {page.name for page in WITH_CALLS} == named
    assert sum(line.count("curl -") for page in PAGES for line in page.read_text().splitlines()) == sum(
        1 for page in WITH_CALLS for block in blocks_of(page) for _ in calls_of(block)
    ), "a curl in another kind of block"


def test_the_operations_of_the_page_of_the_api() -> None:
    (shown,) = re.findall(r"```\nPOST (/v1/ops)\n(.*?)\n\n(.*?)\n```", (ROOT / "docs/api.md").read_text(), re.DOTALL)
    path, body, printed = shown
    owner = secrets.token_hex(16)
    with running() as service:
        asked = json.loads(body.replace("b5e4…", owner))
        replies = service.post(path, asked).json()["replies"]
    expected = json.loads(printed.replace("b5e4…", owner).replace(", …}", "}"))["replies"]
    assert len(replies) == len(expected) == len(asked["ops"])
    for reply, wanted in zip(replies, expected, strict=True):
        assert wanted.items() - reply.items() <= {(name, wanted.get(name)) for name in VARYING}
        assert wanted.keys() <= reply.keys()


def test_the_status_of_mutexes_has_the_fields_of_its_page() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs/probes.md").read_text(), re.DOTALL)
    with running(public_base_url=json.loads(shown)["public_base_url"]) as service:
        status = service.get("/api/internal/pilot/probe-mutex/status").json()
    assert list(status) == list(json.loads(shown))
    for name in ("config", "public_base_url"):
        assert status[name] == json.loads(shown)[name]


def test_a_token_that_a_shell_makes_is_accepted() -> None:
    """docs/alerts.md, for clients of PagerDuty; what it makes of no text at all is refused."""
    (make,) = re.findall(r"\$ (echo \"pager:write:.*)$", (ROOT / "docs/alerts.md").read_text(), re.MULTILINE)

    def line_of(token: str) -> str:
        command = make.replace("<those 32 characters>", f"'{token}'")
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout.strip()

    token = secrets.token_hex(16)
    assert line_of(token) == f"pager:write:{hashlib.sha256(token.encode()).hexdigest()}"
    event = {"event_action": "trigger", "dedup_key": "disk", "payload": {
        "summary": "Disk full", "severity": "critical", "source": "db-1"}}  # fmt: skip
    with running(tokens=(line_of(token),)) as service:
        assert service.post("/v2/enqueue", {**event, "routing_key": token}).status_code == 202
        assert service.post("/v2/enqueue", {**event, "routing_key": ""}).status_code in (400, 401)


def test_the_crontabs_of_the_pages(tmp_path: Path) -> None:
    """Each line has five fields and a command; what precedes it are variables, as in a crontab."""
    pages = [ROOT / "docs" / name for name in ("cli.md", "tutorial/cron-job.md")]
    tabs = [block for page in pages for block in blocks_of(page, "0 3 * * *")]
    assert len(tabs) == 2
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\necho ran >> ran\n")
    script.chmod(0o755)
    for number, tab in enumerate(tabs):
        folder = tmp_path / str(number)
        folder.mkdir()
        *variables, line = tab.splitlines()
        assert all(re.fullmatch(r"[A-Z_]+=\S+", each) for each in variables)
        command = re.fullmatch(r"(?:\S+ +){5}solely (.+)", line)
        assert command
        words = shlex.split(re.sub(r"/opt/\w+\.sh", str(script), command[1]))
        for _ in range(2):  # as two hosts would
            done = run_command(folder, *words)
            assert done.returncode == 0, done.stderr
        assert (folder / "ran").read_text() == "ran\n"


def run_command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"SOLELY_URL": f"sqlite:///{folder}/store.db", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src")}
    command = [str(ROOT / ".venv/bin/python"), "-m", "solely.cli", *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)


if AMTOOL is not None:

    def test_amtool_with_the_file_of_the_page(tmp_path: Path) -> None:
        """alerts.md-console-1"""
        text = SHOWN["alerts.md-console-1"]
        scope = re.findall(r"<a token with the scope (\w+)>", text)[0]
        (tmp_path / "solely.yml").write_text(re.sub(r"<.+?>", TOKENS[scope], text))
        assert yaml.safe_load(text).keys() == {"authorization"}
        page = (ROOT / "docs/alerts.md").read_text()
        (shown,) = re.findall(r"^\$ amtool (--alertmanager\.url .+)$", page, re.MULTILINE)
        (silence,) = re.findall(r"^\$ amtool … (silence add .+)$", page, re.MULTILINE)
        with running(tokens=LINES) as service:
            words = shlex.split(shown.replace("http://127.0.0.1:8765", service.address))
            options = words[: words.index("alert")]
            for each in (words, [*options, *shlex.split(silence), "--author", "ann"]):
                done = subprocess.run([str(AMTOOL), *each], cwd=tmp_path, capture_output=True, text=True, timeout=120)
                assert (done.returncode, done.stderr) == (0, "")
            silences = service.get("/api/v2/silences", headers={"authorization": f"Bearer {TOKENS['read']}"}).json()
        assert [each["comment"] for each in silences] == ["moving the volumes"]
