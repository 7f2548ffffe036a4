"""What a user of the library imports needs no package of the service, and prints nothing on stdout."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import solely

HTTP = ["httpx2", "msgspec"]  # what `solely[http]` installs
# What `solely[cli]` and `solely[service]` install beside that, and what those do not bring along.
SERVICE = [
    "starlette", "structlog", "jinja2", "markupsafe", "uvicorn", "uvloop", "httptools", "sse_starlette",
    "prometheus_client", "re2", "click",
]  # fmt: skip

REFUSE = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {lacking!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refusing())
"""

REPOS = """
import asyncio
from solely.apps.repos.concurrency import (
    DeduplicationStore, DistributedLock, MemoryDedup, MemoryLock, ProcessedIssueTracker, ReviewedMRTracker
)
from solely.apps.repos.redis_state import RedisDedup, RedisLock, create_dedup, create_lock, log_failed_renewal
from solely.events import Lost, Retried

async def main():
    locks, dedup = create_lock("memory"), create_dedup("memory")
    assert isinstance(locks, DistributedLock) and isinstance(dedup, DeduplicationStore)
    async with locks.acquire("a", ttl_seconds=300):
        assert await dedup.first("b", 60) and await dedup.is_seen("b")
    few, fewer = MemoryLock(max_size=1), MemoryDedup(max_size=1)
    for key in ("a", "b"):
        async with few.acquire(key):
            await fewer.mark_seen(key)
    reviewed, processed = ReviewedMRTracker(1), ProcessedIssueTracker(1)
    for number in range(2):
        reviewed.mark(1, number, "c")
        processed.mark(str(number))
    log_failed_renewal(Retried("lock/lock:a", "Renew", 1, "no answer"))
    for each in (RedisLock("redis://127.0.0.1:1"), RedisDedup("redis://127.0.0.1:1"), few, fewer, locks, dedup):
        await each.aclose()

asyncio.run(main())
"""

SIGNALS = """
from solely.apps.signals import (
    AsyncIdempotentSignalGenerator, IdempotentSignalGenerator, SignalMetrics, SignalOptions, roll_back
)
import asyncio

written = {}
data = {("north", "slots"): ["ann", "bob"]}

def generate(group, context):
    return [{"username": name, "priority": 2} for name in context[group]]

def write(signal, id):
    return written.setdefault(id, signal) is signal

with IdempotentSignalGenerator(generate, write, "memory://") as generator:
    (result,) = generator.generate_signals(data, context=data)
    assert (result.outcome, result.generated) == ("generated", 2)
    (failed,) = IdempotentSignalGenerator(lambda group, context: 1 / 0, write, "memory://x").generate_signals(data)
    assert failed.outcome == "refused", failed

async def main():
    async def awrite(signal, id):
        return write(signal, id + "a")

    async with AsyncIdempotentSignalGenerator(generate, awrite, "memory://b") as generator:
        (result,) = await generator.generate_signals(data, context=data)
        assert result.generated == 2

asyncio.run(main())
"""

PROBES = """
import asyncio
from solely import AsyncClient
from solely.apps.probes.mutex import ProbeMutex

async def main():
    async with AsyncClient("memory://") as once:
        mutex, other = ProbeMutex(once), ProbeMutex(once, retries=0)
        held, _ = await mutex.acquire("http://target", max_hold=60)
        refused, _ = await other.acquire("http://target", max_hold=60)
        assert held and not refused
        await mutex.release("http://target", held)

asyncio.run(main())
"""

TRIGGERS = """
import threading
from solely import PermanentFailure
from solely.apps.triggers.work import ChildFailed, RunAttempt, TaskWorker, task
from solely.http import Client

@task("greet")
def greet(payload: dict[str, str], run: RunAttempt) -> str:
    return "hello " + payload["name"]

assert greet({"name": "ann"}, None) == "hello ann"
with Client("http://127.0.0.1:1", token="t" * 20, timeout=0.2) as client:
    worker = TaskWorker(client, task)
    threading.Timer(0.2, worker.end).start()
    worker.run()
    assert worker.stop()
"""

CLIENTS = """
import solely
import solely.http

with solely.http.Client("http://127.0.0.1:1", timeout=0.2) as service:
    try:
        service.locks.acquire("a")
    except solely.StoreUnavailable:
        pass
with solely.Client("http://127.0.0.1:1", timeout=0.2) as once:
    try:
        once.try_lock("a")
    except solely.StoreUnavailable:
        pass
"""


def run(lacking: list[str], code: str) -> subprocess.CompletedProcess[str]:
    """The program in a process that lacks these packages; its log goes to stderr, as Python has it by default."""
    environment = {**os.environ, "PYTHONPATH": str(Path(solely.__file__).parent.parent), "PYTHONWARNINGS": "error"}
    program = REFUSE.format(lacking=lacking) + dedent(code)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


ALL = [*SERVICE, *HTTP, "httpcore2", "anyio", "rich"]
USES = {
    "repos": (REPOS, ALL, ["repo_lock_eviction", "dedup_store_eviction", "lock_renewal_failed: 'lock:a': no answer"]),
    "signals": (SIGNALS, ALL, ["signal_group_failed"]),
    "probes": (PROBES, [*SERVICE, "httpx2"], []),
    "triggers": (TRIGGERS, SERVICE, []),
    "clients": (CLIENTS, SERVICE, []),
}


@pytest.mark.parametrize("use", USES)
def test_what_a_user_of_the_library_imports_needs_no_package_of_the_service(use: str) -> None:
    code, lacking, logged = USES[use]
    done = run(lacking, code)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [name for name in logged if name not in done.stderr] == []


def test_the_check_finds_a_package_of_the_service() -> None:
    """Else the test above could not fail."""
    for package in SERVICE:
        assert f"No module named '{package}'" in run(SERVICE, f"import {package}").stderr
