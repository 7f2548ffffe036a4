"""Parents that wait for a child: without a lease meanwhile, and resumed in the transaction that ends the child."""

from __future__ import annotations

import asyncio
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

from solely import LeaseLost
from solely.apps.triggers.model import RunChange
from solely.apps.triggers.table import RunTable
from solely.apps.triggers.work import ChildFailed, RunAttempt, leases
from solely.apps.triggers.work.tasks import Tasks
from solely.service.problems import Problem
from tests.apps.operator import operating
from tests.apps.triggers.test_work_http import Desk
from tests.apps.triggers.test_work_leases import DATABASES, HERE, Work
from tests.apps.triggers.test_work_leases import work as work  # a fixture, on each database
from tests.apps.triggers.test_worker import ended, working
from tests.conftest import in_schema
from tests.service.serving import TOKENS, Process, bearer, environment, until

SOON = 60.0  # seconds in which a process begins, or a run is taken over, on a busy machine


async def waiting(work: Work) -> tuple[str, str, Any]:
    """The ids of a parent that waits and of its child, and the child's lease."""
    parent, child = await work.add(task="parent"), await work.add(task="child")
    taken = await work.take(tasks=["parent"], worker="w1")
    leased = await work.take(tasks=["child"])
    row = await work.leases.wait(HERE, parent, taken["lease_owner"], child)
    assert (row["state"], row["waits_for"], row["lease_until"], row["attempts"]) == ("WAITING", child, None, 0)
    return parent, child, leased


async def test_a_parent_that_waits_has_no_lease_and_cannot_be_taken(work: Work) -> None:
    parent, _, _ = await waiting(work)
    work.now += 1_000_000
    assert await work.take(tasks=["parent"]) is None
    assert (await work.read(parent))["state"] == "WAITING"


@pytest.mark.parametrize("how", ["completed", "failed", "canceled", "lost"])
async def test_the_end_of_the_child_makes_its_parent_takeable(work: Work, how: str) -> None:
    parent, child, leased = await waiting(work)
    token, woken = leased["lease_owner"], []
    work.leases._on_due = lambda: woken.append(True)
    if how == "completed":
        await work.leases.complete(HERE, child, token, {"n": 1})
    elif how == "failed":
        await work.leases.fail(HERE, child, token, error="no", retry=False)
    elif how == "canceled":
        await RunTable(work.data, lambda: woken.append(True)).change(HERE, child, [RunChange(kind="cancel", at=1.0)])
        work.now = 1e11  # that is on the database's clock
    else:
        await work.data.run("UPDATE triggers_runs SET attempts = max_attempts WHERE id = :id", id=child)
        work.now += 60
        assert (await work.take(tasks=["child"]))["state"] == "FAILED"
    assert woken == [True]
    row = await work.take(tasks=["parent"], worker="w2")
    assert (row["id"], row["state"], row["attempts"], row["waits_for"]) == (parent, "EXECUTING", 1, None)
    events = await work.queries.rows("events_of", run_id=parent, limit=10)
    assert sorted(each["kind"] for each in events) == ["resumed", "taken", "taken", "waiting"]


async def test_a_retry_of_the_child_resumes_nobody(work: Work) -> None:
    parent, child, leased = await waiting(work)
    await work.leases.fail(HERE, child, leased["lease_owner"], error="busy")
    assert (await work.read(parent))["state"] == "WAITING"


async def test_a_child_that_has_ended_already_is_not_waited_for(work: Work) -> None:
    parent, child = await work.add(task="parent"), await work.add(task="child", state="COMPLETED")
    token = (await work.take(tasks=["parent"]))["lease_owner"]
    assert (await work.leases.wait(HERE, parent, token, child))["state"] == "QUEUED"
    assert (await work.leases.wait(HERE, parent, token, child))["state"] == "QUEUED", "a repeat answers like the first"
    assert (await work.take(tasks=["parent"]))["id"] == parent
    with pytest.raises(LeaseLost):
        await work.leases.wait(HERE, parent, token, child)
    with pytest.raises(Problem, match="no run run_none to wait for"):
        await work.leases.wait(HERE, parent, token, "run_none")


async def test_the_child_ends_and_its_parent_is_resumed_in_one_transaction(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, child, leased = await waiting(work)

    async def dies(*given: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(leases, "resume_parents", dies)
        with pytest.raises(KeyboardInterrupt):
            await work.leases.complete(HERE, child, leased["lease_owner"], None)
    assert ((await work.read(child))["state"], (await work.read(parent))["state"]) == ("EXECUTING", "WAITING")
    await work.leases.complete(HERE, child, leased["lease_owner"], None)
    assert (await work.read(parent))["state"] == "QUEUED"


async def test_no_parent_waits_for_a_child_that_ends_at_the_same_moment(work: Work) -> None:
    for _ in range(10):
        parent, child = await work.add(task="parent"), await work.add(task="child")
        first, second = await work.take(tasks=["parent"]), await work.take(tasks=["child"])
        await asyncio.gather(
            work.leases.wait(HERE, parent, first["lease_owner"], child),
            work.leases.complete(HERE, child, second["lease_owner"], None),
        )
        taken = await work.take(tasks=["parent"])
        assert taken is not None, await work.read(parent)
        await work.leases.complete(HERE, parent, taken["lease_owner"], None)


# -- the Python worker


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    with operating("triggers", {"retry_first": 0.01, "max_attempts": 2}) as it:
        yield Desk(it.service)


def test_a_task_gets_the_output_of_its_children_and_occupies_no_slot_meanwhile(desk: Desk) -> None:
    task, begun = Tasks(), []

    @task("double")
    def double(n: int) -> int:
        return 2 * n

    @task("sum")
    def add(payload: list[int], run: RunAttempt) -> Any:
        begun.append(run.id)
        doubled = [run.trigger_and_wait("double", n) for n in payload]
        again = run.trigger_and_wait("double", payload[0], key="named")
        return [*doubled, again]

    @task("later")
    async def later(n: int, run: RunAttempt) -> Any:
        return await run.trigger_and_wait_async("double", n, tags=["child"])

    with working(desk, task, at_once=1):
        id, other = desk.trigger("sum", [1, 2]), desk.trigger("later", 5)
        found = ended(desk, id)
        assert (found["run"]["state"], found["output"]) == ("COMPLETED", [2, 4, 2])
        assert ended(desk, other)["output"] == 10
    assert begun == [id] * 4, "it begins anew after each child"
    assert [each["outcome"] for each in found["attempts"]] == ["waiting"] * 3 + ["completed"]
    assert found["run"]["attempts"] == 1, "waiting counts as no attempt"
    children = desk.ask("/api/triggers/runs", task="double")["runs"]
    assert len(children) == 4, "none was triggered twice"
    assert desk.ask("/triggers/run", format="json", id=children[0]["id"])["parent_id"] in (id, other)


def test_a_child_that_failed_fails_its_parent_unless_that_catches_it(desk: Desk) -> None:
    task = Tasks()

    @task("fails")
    def fails(payload: None) -> None:
        raise ValueError("nothing works")

    @task("strict")
    def strict(payload: None, run: RunAttempt) -> None:
        run.trigger_and_wait("fails", max_attempts=1)

    @task("lenient")
    def lenient(payload: None, run: RunAttempt) -> str:
        try:
            run.trigger_and_wait("fails", max_attempts=1)
        except ChildFailed as error:
            return error.state
        return "never"

    with working(desk, task):
        strict_id, lenient_id = desk.trigger("strict"), desk.trigger("lenient")
        failed = ended(desk, strict_id)
        assert failed["run"]["state"] == "FAILED"
        assert "nothing works" in failed["run"]["error"]
        assert failed["run"]["attempts"] == 1, "a retry would get the same child"
        assert ended(desk, lenient_id)["output"] == "FAILED"


def test_a_run_cannot_wait_for_itself_or_for_nothing(desk: Desk) -> None:
    id = desk.trigger("alone")
    token = desk.take("alone")["token"]
    for child, status in ((id, 400), ("run_none", 404)):
        answer = desk.service.post(
            f"/api/v1/runs/{id}/wait", {"token": token, "child": child}, headers=bearer(TOKENS["write"])
        )
        assert answer.status_code == status, answer.text
    assert desk.run(id)["run"]["state"] == "EXECUTING"


# -- workers that are killed

PARENTS = """
import os, signal
from solely.apps.triggers.work import RunAttempt, task

@task("parent")
def parent(dies: bool, run: RunAttempt) -> dict[str, object]:
    try:
        return {"child": run.trigger_and_wait("child", 21), "attempt": run.attempt}
    except BaseException:  # the child is triggered, and this run does not wait yet
        if dies and run.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        raise
"""
CHILDREN = """
from solely.apps.triggers.work import task

@task("child")
def child(n: int) -> int:
    return 2 * n
"""


@pytest.fixture(params=DATABASES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A service on each database, beside the modules of its workers."""
    (tmp_path / "parents.py").write_text(PARENTS)
    (tmp_path / "both.py").write_text(CHILDREN + PARENTS)
    url = () if request.param == "sqlite" else ("--data-url", in_schema(request.getfixturevalue("postgres").url))
    with Process(tmp_path, "--set", "apps=triggers", *url) as service:
        yield service.address()


@contextmanager
def worker(folder: Path, address: str, module: str) -> Iterator[subprocess.Popen[bytes]]:
    words = ["triggers", "work", module, "--at", address, "--lease", "2s", "--at-once", "1"]
    process = subprocess.Popen([sys.executable, "-m", "solely.cli", *words], cwd=folder, env=environment(folder))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(SOON)


def triggered(address: str, dies: bool) -> str:
    return str(httpx2.post(f"{address}/api/v1/tasks/parent/trigger", json={"payload": dies}, timeout=SOON).json()["id"])


def read(address: str, id: str) -> Any:
    return httpx2.get(f"{address}/api/triggers/runs/{id}", timeout=SOON).json()


def children(address: str) -> Any:
    return httpx2.get(f"{address}/api/triggers/runs", params={"task": "child"}, timeout=SOON).json()["runs"]


def test_a_parent_whose_worker_is_killed_while_it_waits_is_resumed_by_another(address: str, tmp_path: Path) -> None:
    id = triggered(address, dies=False)
    with worker(tmp_path, address, "parents") as first:
        until(lambda: read(address, id)["run"]["state"] == "WAITING", SOON)
        os.kill(first.pid, signal.SIGKILL)
    with worker(tmp_path, address, "both"):
        found = until(lambda: (seen := read(address, id))["ended"] and seen, SOON)
    assert found["output"] == {"child": 42, "attempt": 1}
    assert [each["outcome"] for each in found["attempts"]] == ["waiting", "completed"]
    assert len(children(address)) == 1


@pytest.mark.only_with_all
def test_a_parent_whose_worker_is_killed_before_it_waits_gets_the_same_child(address: str, tmp_path: Path) -> None:
    id = triggered(address, dies=True)
    with worker(tmp_path, address, "parents") as first:
        assert first.wait(SOON) == -signal.SIGKILL
    with worker(tmp_path, address, "both"):
        found = until(lambda: (seen := read(address, id))["ended"] and seen, SOON)
    assert found["output"] == {"child": 42, "attempt": 2}
    assert len(children(address)) == 1, "the same key, the same child"
