"""What the commands that we run find in their environment: none of our secrets, unless the store is passed on."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from solely import Client
from solely.credential_sources import logins_of
from solely.programs import Program
from solely.programs import run as run_program
from tests.cli.conftest import Start
from tests.servers import until

SECRETS = {
    "SOLELY_TOKEN": "a-token-of-the-service",
    "SOLELY_SESSION_SECRET": "a-secret-for-cookies-of-the-service",
    "SOLELY_ALERTS_SIGNING_SECRET": "a-secret-of-an-application",
    "SOLELY_FENCE": "7",
    "PLAIN": "kept",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "environment.json"


@pytest.fixture
def writes(file: Path) -> list[str]:
    """A command that writes its environment down."""
    code = f"import json, os, pathlib; pathlib.Path({str(file)!r}).write_text(json.dumps(dict(os.environ)))"
    return [sys.executable, "-c", code]


def ours(file: Path) -> dict[str, str]:
    """Our variables in the environment of the command, which has all others."""
    found: dict[str, str] = json.loads(file.read_text())
    assert found["PLAIN"] == "kept"
    assert found["PATH"] == os.environ["PATH"]
    return {name: value for name, value in found.items() if name.startswith("SOLELY_")}


@pytest.mark.parametrize("words", [("run", "--lock", "key"), ("once", "key")], ids=["run", "once"])
def test_a_command_gets_its_fence_and_no_secret(
    words: tuple[str, ...], url: str, start: Start, writes: list[str], file: Path
) -> None:
    ended = start(url, *words, "--", *writes, **SECRETS).ended()
    assert ended.code == 0, ended.err
    found = ours(file)
    assert found.keys() == {"SOLELY_FENCE"}
    assert int(found["SOLELY_FENCE"]) > 7


@pytest.mark.parametrize("words", [("run", "--lock", "key"), ("once", "key")], ids=["run", "once"])
def test_a_command_can_use_the_store_that_is_passed_on(
    words: tuple[str, ...], url: str, start: Start, writes: list[str], file: Path
) -> None:
    """It is the store of the outer command, also if that was named by its option."""
    elsewhere = "redis://elsewhere.example.org"
    ended = start(elsewhere, *words, "--url", url, "--pass-store", "--", *writes, **SECRETS).ended()
    assert ended.code == 0, ended.err
    found = ours(file)
    assert found.keys() == {"SOLELY_FENCE", "SOLELY_URL", "SOLELY_TOKEN"}
    assert (found["SOLELY_URL"], found["SOLELY_TOKEN"]) == (url, SECRETS["SOLELY_TOKEN"])


def test_commands_within_commands_use_the_same_store(url: str, start: Start) -> None:
    inner = [
        sys.executable,
        "-m",
        "solely.cli",
        "run",
        "--lock",
        "inner",
        "--",
        sys.executable,
        "-c",
        "print('within')",
    ]
    ended = start(url, "run", "--lock", "outer", "--pass-store", "--", *inner).ended()
    assert (ended.code, ended.out) == (0, "within\n"), ended.err


@pytest.mark.parametrize("passed", [False, True])
def test_a_job_gets_its_tick_and_no_secret(
    url: str, start: Start, writes: list[str], file: Path, tmp_path: Path, passed: bool
) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        f"[jobs.report]\nschedule = 0.1\ncommand = {json.dumps(writes)}\nenvironment = {{ SOLELY_OF_THE_JOB = '1' }}\n"
    )
    running = start(url, "cron", str(jobs), *(["--pass-store"] if passed else []), **SECRETS)
    until(lambda: file.exists() and file.stat().st_size > 0, "the job")
    running.end()
    wanted = {"SOLELY_FENCE", "SOLELY_TICK", "SOLELY_OF_THE_JOB"}
    assert ours(file).keys() == wanted | ({"SOLELY_URL", "SOLELY_TOKEN"} if passed else set())


@pytest.mark.parametrize("passed", [False, True])
def test_the_handler_of_a_replay_gets_no_secret(
    url: str, start: Start, writes: list[str], file: Path, passed: bool
) -> None:
    with Client(url) as once:
        once.dead_letters("mails").push({"to": "alice"}, error="refused")
    handler = f"{writes[0]} -c {json.dumps(writes[2])}"
    words = ["--all", "--handler", handler, *(["--pass-store"] if passed else [])]
    ended = start(url, "dlq", "replay", "mails", *words, **SECRETS).ended()
    assert ended.code == 0, ended.err
    assert ours(file).keys() == ({"SOLELY_URL", "SOLELY_TOKEN"} if passed else set())


def test_a_program_that_provides_logins_gets_no_secret(
    writes: list[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    script = file.parent / "login.py"
    script.write_text(writes[2] + "; print('a-password')")
    assert logins_of(f"command: {sys.executable} {script}", "redis").get().password == "a-password"
    assert ours(file) == {}


async def test_a_program_that_applications_run_gets_no_secret(
    writes: list[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It inherits what programs commonly need, and nothing else."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    assert (await run_program(Program(tuple(writes)))).ok
    assert not SECRETS.keys() & json.loads(file.read_text()).keys()
