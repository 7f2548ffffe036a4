"""A program as a publisher: what it gets, and what its end means. How programs end is in tests/test_programs.py."""

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import solely
from solely.apps.alerts.model import Alert, Notification
from solely.apps.alerts.publishers import CommandSettings, Publisher, PublishFailed, build
from tests.service.serving import Process, until
from tests.test_programs import alive

ALERT = Alert(name='a "quoted" $(name)\0', severity="critical", source="s" * 5000, fingerprint="f", labels={"k": "ü"})
NOTIFICATION = Notification(id="msg_1", alert=ALERT, at=0.0)
WRITES = """
import json, os, sys
given = {name: value for name, value in os.environ.items() if name.startswith(("SOLELY_", "OF_THE_TEST"))}
json.dump({"in": json.load(sys.stdin), "env": given, "argv": sys.argv[2:]}, open(sys.argv[1], "w"))
"""


@asynccontextmanager
async def publishing(*argv: str, **given: Any) -> AsyncIterator[Publisher]:
    async with solely.AsyncClient(f"memory://{secrets.token_hex(8)}") as once:
        (publisher,) = build([CommandSettings(argv=argv, **given)], once=once)
        yield publisher
        await publisher.close()


def python(code: str, *arguments: object) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *map(str, arguments))


async def test_what_the_program_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLELY_SESSION_SECRET", "not for others")
    given = {"OF_THE_TEST": "yes"}
    async with publishing(*python(WRITES, tmp_path / "written", "$HOME; x"), environment=given) as publisher:
        await publisher.publish(NOTIFICATION)
    result = json.loads((tmp_path / "written").read_text())
    assert result["argv"] == ["$HOME; x"]
    assert result["in"]["type"] == "alert.firing"
    assert result["in"]["data"]["name"] == ALERT.name
    assert result["in"]["data"]["labels"] == {"k": "ü"}
    assert result["env"] == {
        "OF_THE_TEST": "yes",
        "SOLELY_ALERT_ID": "msg_1",
        "SOLELY_ALERT_STATUS": "firing",
        "SOLELY_ALERT_NAME": 'a "quoted" $(name) ',
        "SOLELY_ALERT_SEVERITY": "critical",
        "SOLELY_ALERT_SOURCE": "s" * 4096,
        "SOLELY_ALERT_FINGERPRINT": "f",
    }


async def test_a_program_that_reads_nothing_succeeds_as_well() -> None:
    large = Alert(name="n", severity="s", source="s", fingerprint="f", annotations={"long": "x" * 1_000_000})
    async with publishing("true") as publisher:
        await publisher.publish(Notification(id="msg_1", alert=large, at=0.0))


async def test_a_failure_is_retried_and_shows_the_end_of_its_standard_error(tmp_path: Path) -> None:
    code = (
        "import os, sys; open(sys.argv[1], 'a').write('x');"
        " sys.stderr.write('y' * 100_000 + '\\nlast words of ' + os.environ['KEY']); sys.exit(7)"
    )
    async with publishing(*python(code, tmp_path / "runs"), environment={"KEY": "hidden-key"}) as publisher:
        with pytest.raises(PublishFailed, match="exited with 7: ") as raised:
            await publisher.publish(NOTIFICATION)
    assert len((tmp_path / "runs").read_text()) == 4
    assert not raised.value.permanent
    assert "last words of …" in str(raised.value)
    assert "hidden-key" not in str(raised.value)
    assert len(str(raised.value)) < 600


async def test_one_that_recovers(tmp_path: Path) -> None:
    code = "import os, sys; sys.exit(0 if os.path.exists(sys.argv[1]) else bool(open(sys.argv[1], 'w')))"
    async with publishing(*python(code, tmp_path / "seen")) as publisher:
        await publisher.publish(NOTIFICATION)


async def test_one_that_was_killed_says_by_what() -> None:
    async with publishing(*python("import os; os.kill(os.getpid(), 9)")) as publisher:
        with pytest.raises(PublishFailed, match="was ended by SIGKILL"):
            await publisher.publish(NOTIFICATION)


@pytest.mark.parametrize("program", ["no-such-program-anywhere", "/etc/hostname", "/etc/hostname/x"])
async def test_one_that_cannot_be_run_fails_for_good(program: str) -> None:
    async with publishing(program) as publisher:
        with pytest.raises(PublishFailed, match=f"{program} cannot be run: ") as raised:
            await publisher.publish(NOTIFICATION)
        assert raised.value.permanent


async def test_when_time_is_up_it_ends_and_the_publish_says_so(tmp_path: Path) -> None:
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    async with publishing(*python(code, tmp_path / "pid"), timeout=3.0) as publisher:
        with pytest.raises(PublishFailed, match="no answer within 3 s") as raised:
            await publisher.publish(NOTIFICATION)
    assert not raised.value.permanent
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_it_ends_with_a_service_that_is_killed(tmp_path: Path) -> None:
    """Another worker publishes the notification once its reservation has expired."""
    pids = tmp_path / "pids"
    argv = ("sh", "-c", f"sleep 600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait")
    publishers = json.dumps([{"type": "command", "argv": argv}])
    with Process(tmp_path, "--set", f"alerts.publishers={publishers}", SOLELY_URL="memory://") as service:
        address = service.address()
        alert = {"name": "n", "severity": "critical", "source": "s"}
        with ThreadPoolExecutor() as caller:  # answered when it is published, or not
            asked = caller.submit(httpx2.post, f"{address}/api/alerts", json=alert, timeout=60)
            until(pids.exists)
            service.signal(signal.SIGKILL)
            asked.exception()
        until(lambda: not any(map(alive, map(int, pids.read_text().split()))))


async def test_without_a_free_slot_the_publish_fails_and_says_so() -> None:
    deaf = python("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")
    async with publishing(*deaf, timeout=0.5, at_once=1) as publisher:
        both = [publisher.publish(NOTIFICATION) for _ in range(2)]
        first, second = map(str, await asyncio.gather(*both, return_exceptions=True))
    assert "no answer within 0.5 s" in first
    assert "all at_once=1 slots were in use" in second
