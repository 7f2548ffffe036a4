"""Programs: real processes, bounded in time and output, ended with all that they started."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from solely import AsyncClient, InvalidInput
from solely.programs import Ended, NotStarted, Program, run
from solely.stores.sqlite.shared_file import SharedFile

# A program that starts another, which ignores SIGTERM and keeps standard error open; writes both pids to a file whose
# name ends with its own; and waits, or exits as requested.
FAMILY = """
(trap "" TERM; exec sleep 60) &
echo "$$ $!" > "$1.new"
mv "$1.new" "$1.$$"
test -n "$2" && exit "$2"
wait
"""


def python(code: str, *arguments: object, **given: Any) -> Program:
    return Program((sys.executable, "-c", code, *map(str, arguments)), **given)


def family(place: Path, *arguments: object, **given: Any) -> Program:
    return Program(("sh", "-c", FAMILY, "sh", str(place), *map(str, arguments)), **given)


def told_pids(place: Path) -> list[list[int]]:
    """The pids of all programs that ran, each with that of its child."""
    return [[int(pid) for pid in file.read_text().split()] for file in place.parent.glob(f"{place.name}.[0-9]*")]


def alive(pid: int) -> bool:
    """True if it runs: one that ended, and that nobody has waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def with_argument(text: object) -> list[int]:
    """The processes that run and have this text in their arguments: the guards of programs, and these themselves."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(text).encode() in (each / "cmdline").read_bytes() and alive(int(each.name)):
                found.append(int(each.name))
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not condition():
            await asyncio.sleep(0.01)


# -- what it gets


async def test_it_gets_arguments_and_input_and_no_shell() -> None:
    code = "import sys; sys.stdout.write(sys.argv[1] + sys.stdin.read())"
    ended = await run(python(code, "$HOME; `x` ", stdin="ü\0".encode()))
    assert ended == Ended(0, stdout="$HOME; `x` ü\0".encode())
    assert ended.ok


async def test_without_input_it_reads_nothing() -> None:
    assert (await run(python("import sys; sys.exit(len(sys.stdin.read()))"))).code == 0


async def test_a_program_that_reads_nothing_succeeds_as_well() -> None:
    assert (await run(Program(("true",), stdin=b"x" * 1_000_000))).ok


async def test_it_inherits_only_what_is_safe_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLELY_SESSION_SECRET", "not for others")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for others")
    monkeypatch.setenv("OF_THE_TEST", "inherited")
    monkeypatch.setenv("LANG", "C.UTF-8")
    env = Program(("env",), environment={"GIVEN": "a=b", "LC_CTYPE": "C"})
    found = dict(line.split("=", 1) for line in (await run(env)).stdout.decode().splitlines())
    assert (found["GIVEN"], found["LC_CTYPE"], found["LANG"]) == ("a=b", "C", "C.UTF-8")
    assert found["PATH"] == os.environ["PATH"]
    assert not {"SOLELY_SESSION_SECRET", "AWS_SECRET_ACCESS_KEY", "OF_THE_TEST"} & set(found)
    named = Program(("/usr/bin/env",), environment={"A": "b"}, inherit=("OF_THE_TEST", "NOT_SET"))
    assert sorted((await run(named)).stdout.split()) == [b"A=b", b"OF_THE_TEST=inherited"]


async def test_its_folder(tmp_path: Path) -> None:
    assert (await run(Program(("pwd",), cwd=str(tmp_path)))).stdout == f"{tmp_path}\n".encode()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"argv": ()}, "argv is empty"),
        ({"argv": ("",)}, "argv is empty"),
        ({"argv": ("a\0",)}, "must not contain NUL"),
        ({"argv": ("a",), "environment": {"A": "\0"}}, "must not contain NUL"),
        ({"argv": ("a",), "environment": {"A=B": "c"}}, "empty or contains ="),
        ({"argv": ("a",), "max_output": 0}, "max_output=0"),
    ],
)
def test_what_cannot_be_run_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Program(**given)


# -- what comes back


async def test_outputs_are_kept_apart_and_cut() -> None:
    code = "import sys; sys.stdout.write('o' * 500_000 + 'end'); sys.stderr.write('e' * 500_000 + 'end')"
    ended = await run(python(code, max_output=1000))
    assert ended.ok
    assert (ended.stdout, ended.stderr_tail) == (b"o" * 1000, b"e" * 997 + b"end")
    assert not ended.complete


async def test_of_output_that_just_fits_nothing_is_lost() -> None:
    ended = await run(python("import sys; sys.stdout.write('o' * 1000)", max_output=1000))
    assert (ended.stdout, ended.complete) == (b"o" * 1000, True)


async def test_output_can_go_elsewhere(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        ended = await run(python("print('out')", stdout=file.fileno(), guarded=True))
    assert (ended.stdout, (tmp_path / "out").read_bytes()) == (b"", b"out\n")


async def test_output_can_be_discarded() -> None:
    ended = await run(python("print('out', flush=True); import sys; sys.stderr.write('err')", discard_stdout=True))
    assert (ended.stdout, ended.stderr_tail) == (b"", b"err")


@pytest.mark.parametrize(
    ("code", "ended", "text"),
    [
        ("raise SystemExit(7)", Ended(7), "exited with 7"),
        ("import os; os.kill(os.getpid(), 9)", Ended(None, "SIGKILL"), "was ended by SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", Ended(None, "signal 40"), "was ended by signal 40"),
    ],
)
async def test_how_it_ended(code: str, ended: Ended, text: str) -> None:
    found = await run(python(code))
    assert (found, str(found), found.ok) == (ended, text, False)


@pytest.mark.parametrize("program", ["no-such-program-anywhere", "/etc/hostname", "/etc/hostname/x"])
async def test_one_that_cannot_be_started_never_can(program: str) -> None:
    with pytest.raises(NotStarted, match=f"^{program} cannot be run: ") as raised:
        await run(Program((program,)))
    assert raised.value.permanent


async def test_one_that_is_being_replaced_can_be_started_later(tmp_path: Path) -> None:
    place = tmp_path / "program"
    place.write_bytes(Path("/bin/true").read_bytes())
    place.chmod(0o755)
    with place.open("ab"), pytest.raises(NotStarted, match="Text file busy") as raised:
        await run(Program((str(place),)))
    assert not raised.value.permanent
    assert (await run(Program((str(place),)))).ok


# -- its end


async def _ended_in_time(place: Path) -> None:
    began = time.monotonic()
    ended = await run(family(place, timeout=3.0))
    assert time.monotonic() - began < 20  # else it would take a minute
    assert (ended.timed_out, ended.ok, str(ended)) == (True, False, "took too long and was ended")
    (pids,) = told_pids(place)
    await until(lambda: not any(alive(pid) for pid in pids))


async def test_when_time_is_up_it_ends_with_all_that_it_started(tmp_path: Path) -> None:
    await _ended_in_time(tmp_path / "pids")


async def test_what_it_wrote_before_its_time_was_up_is_kept() -> None:
    ended = await run(Program(("sh", "-c", "echo out; echo err >&2; exec sleep 60"), timeout=3.0))
    assert (ended.signal, ended.stdout, ended.stderr_tail, ended.timed_out) == ("SIGTERM", b"out\n", b"err\n", True)


async def test_cancelling_ends_it_too(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    task = asyncio.ensure_future(run(family(place)))
    await until(lambda: bool(told_pids(place)))
    for _ in range(5):  # who is in a hurry does not leave it running
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    (pids,) = told_pids(place)
    assert not alive(pids[0])
    await until(lambda: not any(alive(pid) for pid in pids))


async def _left_behind(place: Path) -> None:
    """What it leaves behind keeps its outputs open, and nobody waits for that."""
    began = time.monotonic()
    ended = await run(family(place, 1))
    assert time.monotonic() - began < 20  # else it would take a minute
    assert (ended.code, ended.timed_out) == (1, False)
    ((_, child),) = told_pids(place)
    assert alive(child)
    os.kill(child, 9)


async def test_it_may_leave_something_behind(tmp_path: Path) -> None:
    await _left_behind(tmp_path / "pids")


def test_all_the_same_on_the_loop_of_the_service(tmp_path: Path) -> None:
    async def all_of_them() -> None:
        await _ended_in_time(tmp_path / "first")
        await _left_behind(tmp_path / "second")
        await test_outputs_are_kept_apart_and_cut()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(all_of_them())


async def test_no_file_stays_open() -> None:
    program = Program(("true",), stdin=b"x")
    await run(program)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await run(program)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_no_pipe_is_closed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time its descriptor may be that of a file which another thread, such as SQLite's, has just opened."""
    states: list[bool] = []

    class Pipe(io.FileIO):
        def close(self) -> None:
            if not self.closed:
                states.append(os.path.exists(f"/proc/self/fd/{self.fileno()}"))
            super().close()

    monkeypatch.setattr(os, "fdopen", lambda number, mode, buffering: Pipe(number, mode))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(Program(("true",))))
    assert states == [True] * 4  # each end of both pipes was open when it was closed


@pytest.mark.parametrize("guarded", [False, True])
async def test_what_left_its_group_ends_with_it(tmp_path: Path, guarded: bool) -> None:
    shell = f"timeout 600 sh -c 'sleep 600; echo {tmp_path}' & setsid sh -c 'sleep 600; echo {tmp_path}' & wait"
    task = asyncio.create_task(run(Program(("sh", "-c", shell), guarded=guarded)))
    await until(lambda: len(with_argument(tmp_path)) >= 4)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await until(lambda: with_argument(tmp_path) == [])


def test_a_program_is_started_while_calls_of_sqlite_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork closes the connections of SQLite, for which it waits on this thread until no call is in progress."""
    forks: list[SharedFile] = []
    monkeypatch.setattr(SharedFile, "before_fork", forks.append)

    async def use() -> Ended:
        async with AsyncClient(f"sqlite:///{tmp_path}/store.db") as once:
            await once.first("x")
            return await run(python("", guarded=True))

    for factory in (uvloop.new_event_loop, asyncio.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(use()).ok
    assert forks == []


@pytest.mark.parametrize("guarded", [False, True])
async def test_it_ends_alike_with_and_without_a_guard(tmp_path: Path, guarded: bool) -> None:
    given: dict[str, Any] = {"guarded": guarded, "environment": {"A": "x=y\nz", "B": ""}, "cwd": str(tmp_path)}
    code = "import os, sys; print(sorted(os.environb), os.getcwd(), os.getsid(0) == os.getpid(), sys.stdin.read())"
    ended = await run(python(code, stdin=b"given", inherit=("PATH",), **given))
    assert ended.ok
    assert ended.stdout.decode().startswith("[b'A', b'B', b'LC_CTYPE', b'PATH'")
    assert ended.stdout.decode().endswith(f"{tmp_path} True given\n")
    assert (await run(python("import sys; sys.exit(7)", **given))).code == 7
    for name in ("SIGTERM", "SIGSEGV", "SIGKILL", "SIGPIPE"):
        ended = await run(python(f"import os, signal; os.kill(os.getpid(), signal.{name})", **given))
        assert (ended.code, ended.signal) == ((None, name) if name != "SIGPIPE" else (0, ""))  # Python ignores that
    with pytest.raises(NotStarted, match="nonexistent cannot be run: No such file") as refused:
        await run(Program(("nonexistent",), guarded=guarded))
    assert refused.value.permanent


@pytest.mark.parametrize("guarded", [False, True])
async def test_signals_have_their_usual_effect_on_it(guarded: bool) -> None:
    ended = await run(Program(("sh", "-c", "kill -PIPE $$; kill -TERM $$"), guarded=guarded))
    assert ended.signal == "SIGPIPE"


@pytest.mark.parametrize("guarded", [False, True])
async def test_one_that_is_stopped_has_not_ended(tmp_path: Path, guarded: bool) -> None:
    task = asyncio.create_task(run(family(tmp_path / "pids", guarded=guarded)))
    await until(lambda: bool(told_pids(tmp_path / "pids")))
    ((pid, child),) = told_pids(tmp_path / "pids")
    for number in (signal.SIGSTOP, signal.SIGCONT):
        os.kill(pid, number)
        await asyncio.sleep(0.2)  # what the guard would do, it would do at once
    assert alive(pid)
    os.kill(child, signal.SIGKILL)
    assert (await task).ok


# Starts a daemon, which has left its parent, its group and its session; and waits, or exits as requested.
DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]) or sys.argv[2] == "waits":
    time.sleep(0.01)
"""


async def test_a_daemon_that_it_made_ends_with_one_that_is_guarded(tmp_path: Path) -> None:
    place = tmp_path / "daemon"
    task = asyncio.create_task(run(python(DAEMON, place, "waits", guarded=True)))
    await until(place.exists)
    daemon = int(place.read_text())
    assert alive(daemon)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await until(lambda: not alive(daemon))


@pytest.mark.parametrize("guarded", [False, True])
async def test_a_daemon_outlives_one_that_exits_by_itself(tmp_path: Path, guarded: bool) -> None:
    place = tmp_path / "daemon"
    assert (await run(python(DAEMON, place, "exits", guarded=guarded))).ok
    daemon = int(place.read_text())
    assert alive(daemon)
    os.kill(daemon, signal.SIGKILL)


async def test_it_does_not_outlive_a_guard_that_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    task = asyncio.create_task(run(family(place, guarded=True)))
    await until(lambda: bool(told_pids(place)))
    ((pid, child),) = told_pids(place)
    os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    assert (await task).signal == "SIGKILL"
    await until(lambda: not alive(pid))
    os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("late", range(10))
def test_no_moment_of_a_kill_leaves_it_behind(tmp_path: Path, late: int) -> None:
    """Its process is killed as soon as it has begun to start the program, and a little later each time."""
    code = f"""if True:
        import asyncio
        from solely.programs import Program, run
        shell = "trap '' TERM; sleep 60; echo {tmp_path}"
        print(flush=True)
        asyncio.run(run(Program(("sh", "-c", shell), guarded=True)))"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(late * 0.01)
        process.kill()
    ends = time.monotonic() + 30
    while (left := with_argument(tmp_path)) and time.monotonic() < ends:
        time.sleep(0.05)
    assert left == []
