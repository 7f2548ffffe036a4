"""A program as a publisher: real processes, with standard input and environment, terminated on timeout."""

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

import solely
from solely.apps.alerts.model import Alert, Notification
from solely.apps.alerts.publishers import CommandSettings, Publisher, PublishFailed, build

ALERT = Alert(name='a "quoted" $(name)\0', severity="critical", source="s" * 5000, fingerprint="f", labels={"k": "ü"})
NOTIFICATION = Notification(id="msg_1", alert=ALERT, at=0.0)
WRITES = """
import json, os, sys
given = {name: value for name, value in os.environ.items() if name.startswith(("SOLELY_", "OF_THE_TEST"))}
json.dump({"in": json.load(sys.stdin), "env": given, "argv": sys.argv[2:]}, open(sys.argv[1], "w"))
"""

# A program that starts another, which ignores SIGTERM and keeps standard error open; writes both pids to a file whose
# name ends with its own; and waits, or exits as requested.
FAMILY = """
(trap "" TERM; exec sleep 60) &
echo "$$ $!" > "$1.new"
mv "$1.new" "$1.$$"
test -n "$2" && exit "$2"
wait
"""


@asynccontextmanager
async def publishing(*argv: str, **given: Any) -> AsyncIterator[Publisher]:
    async with solely.AsyncClient(f"memory://{secrets.token_hex(8)}") as once:
        (publisher,) = build([CommandSettings(argv=argv, **given)], once=once)
        yield publisher
        await publisher.close()


def python(code: str, *arguments: object) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *map(str, arguments))


def family(place: Path, *arguments: object) -> tuple[str, ...]:
    return ("sh", "-c", FAMILY, "sh", str(place), *map(str, arguments))


def told_pids(place: Path) -> list[list[int]]:
    """The pids of all programs that ran, each with that of its child."""
    return [[int(pid) for pid in file.read_text().split()] for file in place.parent.glob(f"{place.name}.[0-9]*")]


def alive(pid: int) -> bool:
    """True if it runs: one that ended, and that nobody has waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


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


async def _ended_in_time(place: Path) -> None:
    async with publishing(*family(place), timeout=1.0) as publisher:
        began = time.monotonic()
        with pytest.raises(PublishFailed, match="no answer within 1 s"):
            await publisher.publish(NOTIFICATION)
        assert time.monotonic() - began < 5
    (pids,) = told_pids(place)
    await until(lambda: not any(alive(pid) for pid in pids))


async def test_when_time_is_up_it_ends_with_all_that_it_started(tmp_path: Path) -> None:
    await _ended_in_time(tmp_path / "pids")


async def test_a_cancelled_publish_ends_it_too(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    async with publishing(*family(place)) as publisher:
        task = asyncio.ensure_future(publisher.publish(NOTIFICATION))
        await until(lambda: bool(told_pids(place)))
        for _ in range(5):  # who is in a hurry does not leave it running
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        (pids,) = told_pids(place)
        assert not alive(pids[0])
    await until(lambda: not any(alive(pid) for pid in pids))


async def test_without_a_free_slot_the_publish_fails_and_says_so() -> None:
    deaf = python("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")
    async with publishing(*deaf, timeout=0.5, at_once=1) as publisher:
        both = [publisher.publish(NOTIFICATION) for _ in range(2)]
        first, second = map(str, await asyncio.gather(*both, return_exceptions=True))
    assert "no answer within 0.5 s" in first
    assert "all at_once=1 slots were in use" in second


async def _left_behind(place: Path) -> None:
    """What it leaves behind keeps standard error open, and nobody waits for that."""
    for code, left in ((0, place / "good"), (1, place / "bad")):
        async with publishing(*family(left, code)) as publisher:
            began = time.monotonic()
            result = await asyncio.gather(publisher.publish(NOTIFICATION), return_exceptions=True)
            assert time.monotonic() - began < 8
        assert "exited with 1" in str(result[0]) if code else result[0] is None
        children = [child for _, child in told_pids(left)]
        assert [alive(child) for child in children] == [True] * (4 if code else 1)
        for child in children:
            os.kill(child, 9)


async def test_it_may_leave_something_behind(tmp_path: Path) -> None:
    await _left_behind(tmp_path)


def test_all_the_same_on_the_loop_of_the_service(tmp_path: Path) -> None:
    async def both() -> None:
        await _ended_in_time(tmp_path / "pids")
        await _left_behind(tmp_path)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(both())


async def test_no_file_stays_open(tmp_path: Path) -> None:
    async with publishing("true") as publisher:
        await publisher.publish(NOTIFICATION)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            await publisher.publish(NOTIFICATION)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
