"""`solely serve` as a process: begins, serves on one worker or several, and stops in order when it is told to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2
import pytest

from solely.service.serve import WORKER_PATIENCE
from tests.service.serving import (
    LINES,
    TOKENS,
    Process,
    bearer,
    environment,
    running,
    takes_connections,
    until,
    workers_of,
)
from tests.service.test_metrics import samples

ASKED = 0.5  # seconds between a parent's questions to each of its workers whether it is there


def ready(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def running_still(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_serves_on_the_embedded_store_and_stops_in_order(tmp_path: Path) -> None:
    with Process(tmp_path) as service:
        address = service.address()
        until(lambda: ready(address), 30)
        lease = httpx2.post(f"{address}/v1/locks/acquire", json={"key": "a", "ttl": 60}).json()
        answers: list[httpx2.Response] = []

        def wait() -> None:
            answers.append(httpx2.post(f"{address}/v1/locks/acquire", json={"key": "a", "wait": 50}, timeout=60))

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: _waits(address))
        began = time.monotonic()
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
        assert time.monotonic() - began < 8, "nobody's wait holds it up"
        waiting.join(10)
        assert answers[0].status_code == 503
        assert answers[0].headers["retry-after"] == "1"
    assert (tmp_path / "solely" / "solely.db").exists()
    with Process(tmp_path) as again:
        address = again.address()
        until(lambda: ready(address), 30)
        kept = httpx2.post(f"{address}/v1/locks/acquire", json={"key": "a"})
        assert kept.status_code == 409, "a lease outlives the service: its holder has the token"
        released = httpx2.post(f"{address}/v1/locks/release", json={"token": lease["token"]})
        assert released.json() == {"outcome": "released"}
        again.signal(signal.SIGINT)
        assert again.wait() == 0


def _waits(address: str) -> bool:
    """True once the waiter has asked the store: its first acquire was refused."""
    told = samples(httpx2.get(f"{address}/metrics").content)
    return told.get('solely_op_seconds_count{"op": "acquire"}', 0) >= 2


def test_several_workers_share_one_address_and_their_figures(tmp_path: Path) -> None:
    with Process(tmp_path, "--workers", "2", SOLELY_TOKENS=",".join(LINES)) as service:
        address = service.address()
        until(lambda: ready(address), 40)
        reader, writer = bearer(TOKENS["read"]), bearer(TOKENS["write"])

        def requests() -> float:
            told = samples(httpx2.get(f"{address}/metrics", headers=reader).content)
            return sum(value for name, value in told.items() if name.startswith("solely_acquired_total"))

        workers = until(lambda: _children(service.pid, 2), 30)
        for number in range(30):
            answer = httpx2.post(f"{address}/v1/locks/acquire", json={"key": f"k{number}"}, headers=writer)
            assert answer.status_code == 200
        for _ in range(4):  # whichever worker answers
            until(lambda: requests() == 30)
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: len(_children(service.pid, 2)) == 2 and workers[0] not in _children(service.pid, 2), 30)
        until(lambda: ready(address), 30)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with Process(tmp_path, "--workers", "2") as service:
        address = service.address()
        until(lambda: ready(address), 40)
        workers = until(lambda: _children(service.pid, 2), 30)
        until(lambda: all(takes_connections(worker, _port(address)) for worker in workers), 30)
        service.signal(signal.SIGKILL)
        service.wait()
        until(lambda: not any(map(running_still, workers)), 20)


def test_a_worker_that_ends_before_it_answers_its_parent_is_replaced_at_once(tmp_path: Path) -> None:
    with Process(tmp_path, "--workers", "2") as service:
        address = service.address()
        workers = until(lambda: _children(service.pid, 2), 30)
        until(lambda: all(takes_connections(worker, _port(address)) for worker in workers), 30)
        os.kill(workers[0], signal.SIGSTOP)
        time.sleep(3 * ASKED)  # nothing that can be seen tells that its parent has asked it, and waits for the answer
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: set(_children(service.pid, 2)) - set(workers), WORKER_PATIENCE / 2)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0


def test_a_socket_that_no_loop_watches_is_not_taken_for_one_that_takes_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, running() as it:
        assert takes_connections(os.getpid(), it.port)
        assert not takes_connections(os.getpid(), listening.getsockname()[1])
    assert not takes_connections(os.getpid(), it.port)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _children(pid: int, wanted: int) -> list[int]:
    """The workers of a service, once all of them are there."""
    found = workers_of(pid)
    return found if len(found) == wanted else []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--host", "0.0.0.0"], "there are no tokens"),
        (["--url", "memory://", "--workers", "2"], "cannot share memory"),
        (["--url", "gopher://x"], "gopher"),
        (["--set", "max_wiat=3"], "did you mean max_wait"),
    ],
)
def test_what_cannot_be_served_is_refused(flags: list[str], said: str, tmp_path: Path) -> None:
    refused = _ran(tmp_path, *flags)
    assert refused.returncode in (1, 2)
    assert said in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = _ran(tmp_path, "--port", str(taken.getsockname()[1]))
    assert refused.returncode in (1, 2)
    assert "choose another port" in refused.stderr


def _ran(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "solely.cli", "serve", *flags]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=40, cwd=folder, env=environment(folder), check=False
    )


def test_the_demo_shows_every_side_within_a_minute(tmp_path: Path) -> None:
    wanted = {
        "solely_acquired_total", "solely_contended_total", "solely_marked_total", "solely_claimed_total",
        "solely_published_total", "solely_reserved_total", "solely_recorded_total", "solely_suppressed_total",
        "solely_limited_total",
    }  # fmt: skip
    with Process(tmp_path, "--demo", "--url", "memory://") as service:
        address = service.address()
        until(lambda: ready(address), 30)

        def shown() -> set[str]:
            told = samples(httpx2.get(f"{address}/metrics").content)
            return {name.partition("{")[0] for name, value in told.items() if value > 0}

        until(lambda: wanted <= shown(), 40)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
