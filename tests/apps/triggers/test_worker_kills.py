"""Workers as processes, killed and stopped in the middle of a run: another takes it over, and a late one is fenced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.service.serving import Process, environment, until

SOON = 60.0  # seconds in which a process begins, or a run is taken over, on a busy machine
TASKS = '''
import os, pathlib, time
from solely.apps.triggers.work import RunAttempt, task

@task("slow")
def slow(folder: str, run: RunAttempt) -> dict[str, int]:
    """Says that it has begun, and returns when it may."""
    place = pathlib.Path(folder)
    (place / f"begun-{run.attempt}").write_text(str(os.getpid()))
    while not (place / f"go-{run.attempt}").exists():
        time.sleep(0.02)
    return {"attempt": run.attempt, "pid": os.getpid()}
'''


class Site:
    """A service with its database in a file, and workers as processes."""

    def __init__(self, folder: Path, address: str, task: str = "slow") -> None:
        self.folder, self.address, self.task = folder, address, task
        (folder / "slow_tasks.py").write_text(TASKS.replace('"slow"', repr(task)))

    def trigger(self, **options: Any) -> str:
        body = {"payload": str(self.folder), "options": options}
        return str(
            httpx2.post(f"{self.address}/api/v1/tasks/{self.task}/trigger", json=body, timeout=SOON).json()["id"]
        )

    def run(self, id: str) -> Any:
        return httpx2.get(f"{self.address}/api/triggers/runs/{id}", timeout=SOON).json()

    def state(self, id: str) -> str:
        return str(self.run(id)["run"]["state"])

    @contextmanager
    def worker(self, name: str, lease: str = "2s") -> Iterator[subprocess.Popen[bytes]]:
        """`solely triggers work`, until the test is over; its log is in a file of its name."""
        words = ["triggers", "work", "slow_tasks", "--at", self.address, "--lease", lease, "--name", name]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "solely.cli", *words, "--at-once", "1"],
                stdout=log, stderr=log, cwd=self.folder, env=environment(self.folder),
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(SOON)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def begun(self, attempt: int) -> int:
        """The process that performs this attempt, once it has begun."""
        file = self.folder / f"begun-{attempt}"
        return int(until(lambda: file.exists() and file.read_text(), SOON))

    def let(self, attempt: int) -> None:
        """Has this attempt return."""
        (self.folder / f"go-{attempt}").touch()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a service is that all tests share."""
    with Process(tmp_path_factory.mktemp("service"), "--set", "apps=triggers") as service:
        yield service.address()


@pytest.fixture
def site(tmp_path: Path, address: str, request: pytest.FixtureRequest) -> Site:
    """Workers of the service, with a task of the test's own."""
    return Site(tmp_path, address, request.node.name[-40:])


def test_a_worker_killed_in_a_run_loses_it_to_another_after_the_lease(site: Site) -> None:
    id = site.trigger(maxAttempts=2)
    with site.worker("first") as first:
        assert site.begun(1) == first.pid
        with site.worker("second") as second:
            os.kill(first.pid, signal.SIGKILL)
            assert site.begun(2) == second.pid
            site.let(2)
            until(lambda: site.state(id) == "COMPLETED", SOON)
    found = site.run(id)
    assert found["output"] == {"attempt": 2, "pid": second.pid}
    assert [(each["worker"], each["outcome"]) for each in found["attempts"]] == [
        ("first", "lost"), ("second", "completed"),
    ]  # fmt: skip


@pytest.mark.only_with_all
def test_a_run_whose_workers_are_all_killed_is_failed_for_good(site: Site) -> None:
    id = site.trigger(maxAttempts=1)
    with site.worker("first") as first:
        site.begun(1)
        os.kill(first.pid, signal.SIGKILL)
        with site.worker("second"):
            until(lambda: site.state(id) == "FAILED", SOON)
    found = site.run(id)
    assert "the lease expired" in found["run"]["error"]
    assert [each["outcome"] for each in found["attempts"]] == ["lost"]
    assert not (site.folder / "begun-2").exists()


def test_the_late_completion_of_a_worker_that_was_stopped_meanwhile_is_refused(site: Site) -> None:
    id = site.trigger()
    with site.worker("zombie") as zombie, site.worker("heir") as heir:
        # Either may take it first: whichever did is stopped, as by a hypervisor, and wakes up when the other is done.
        late = {zombie.pid: zombie, heir.pid: heir}[site.begun(1)]
        name, other = ("zombie", "heir") if late is zombie else ("heir", "zombie")
        os.kill(late.pid, signal.SIGSTOP)
        until(lambda: site.begun(2) != late.pid, SOON)
        site.let(2)
        until(lambda: site.state(id) == "COMPLETED", SOON)
        site.let(1)
        os.kill(late.pid, signal.SIGCONT)
        until(lambda: f"{id}, attempt 1, was not recorded" in site.log(name), SOON)
    found = site.run(id)
    assert (found["output"]["attempt"], found["run"]["worker"]) == (2, other)
    assert [each["outcome"] for each in found["attempts"]] == ["lost", "completed"]


@pytest.mark.only_with_all
def test_a_worker_outlives_a_restart_of_the_service_and_its_run_is_completed_once(tmp_path: Path) -> None:
    flags = ("--set", "apps=triggers")
    with Process(tmp_path, *flags) as service:
        site = Site(tmp_path, service.address())
        id = site.trigger()
        with site.worker("steady", lease="10m") as worker:
            assert site.begun(1) == worker.pid
            os.kill(service.pid, signal.SIGKILL)
            service.wait()
            site.let(1)
            until(lambda: "the service failed, and is asked again" in site.log("steady"), SOON)
            with Process(tmp_path, *flags, "--port", site.address.rpartition(":")[2]) as again:
                again.address()
                until(lambda: site.state(id) == "COMPLETED", SOON)
                assert [each["outcome"] for each in site.run(id)["attempts"]] == ["completed"]
                os.kill(worker.pid, signal.SIGTERM)
                assert worker.wait(SOON) == 0
