"""Real processes that are killed and stopped: the next holder comes in time, and the stopped one learns of it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from solely import Client
from tests.client.concurrently import concurrently
from tests.client.worker import Worker, WorkerError
from tests.lateness import measured_lateness

TTL = 3.0  # seconds: a renewal may be late by half of it, on a machine that stalls


@concurrently("blocking")
async def test_after_kill_9_of_the_holder_the_next_one_holds_within_ttl_plus_1_s(
    shared_url: str, start_worker: Callable[..., Worker]
) -> None:
    holder, waiter = start_worker(shared_url), start_worker(shared_url)
    fence = holder.run(f"lease = once.lock('a', ttl={TTL}); lease.fence")
    waiter.run("once.seen('x')")
    waiter.tell(f"next_lease = once.lock('a', ttl={TTL}, wait=20); [next_lease.fence, next_lease.waited]")
    time.sleep(1.5 * TTL)  # the holder renews meanwhile: the waiter must not have got it
    with measured_lateness() as lateness:
        killed = time.monotonic()
        holder.kill()
        next_fence, waited = waiter.answer()
        assert time.monotonic() - killed < TTL + 1.0 + lateness.seconds
    assert next_fence > fence
    assert waited > TTL


@concurrently("blocking")
async def test_after_kill_9_of_a_waiter_the_others_lose_no_turn(
    shared_url: str, start_worker: Callable[..., Worker]
) -> None:
    dying, waiter = start_worker(shared_url), start_worker(shared_url)
    with Client(shared_url) as once:
        lease = once.lock("a", ttl=30)
        dying.run("once.seen('x')")
        dying.tell("once.lock('a', ttl=30, wait=30)")
        waiter.run("once.seen('x')")
        time.sleep(0.3)
        waiter.tell("once.lock('a', ttl=30, wait=30).fence")
        time.sleep(0.3)
        dying.kill()
        released = time.monotonic()
        lease.release()
        assert waiter.answer() > lease.fence
        assert time.monotonic() - released < 15.0  # half of what a lost turn would cost


@pytest.mark.parametrize("call", ["lease.renew()", "lease.ensure()", "lease.ensure(0.1)"])
@concurrently("blocking")
async def test_a_holder_stopped_beyond_its_ttl_learns_of_the_loss_before_its_next_call_succeeds(
    shared_url: str, start_worker: Callable[..., Worker], call: str
) -> None:
    holder = start_worker(shared_url)
    fence = holder.run(f"lease = once.lock('a', ttl={TTL}); lease.fence")
    with Client(shared_url) as once:
        holder.stop()
        holder.tell(call)  # is the first thing that it does on waking
        holder.tell("[lease.lost, lease.remaining(), str(lease.release())]")
        stopped = time.monotonic()
        successor = once.lock("a", ttl=30, wait=20)
        assert successor.fence > fence
        time.sleep(max(0.0, 1.5 * TTL - (time.monotonic() - stopped)))
        holder.go_on()
        with pytest.raises(WorkerError, match="LeaseLost"):
            holder.answer()
        assert holder.answer() == [1, 0.0, "expired"]
        assert not successor.lost
        successor.ensure()


@concurrently("blocking")
async def test_a_stopped_holder_that_nobody_displaced_has_lost_its_lease_as_well(
    shared_url: str, start_worker: Callable[..., Worker]
) -> None:
    holder = start_worker(shared_url)
    holder.run("lease = once.lock('a', ttl=1.0)")
    holder.stop()
    holder.tell("lease.renew()")
    time.sleep(1.5)
    holder.go_on()
    with pytest.raises(WorkerError, match="LeaseLost"):
        holder.answer()


def test_four_processes_count_without_losing_one(
    shared_url: str, start_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    """Read, add, write under the lock, in a file that knows nothing of locks."""
    counter = f"{tmp_path}/counter"
    with open(counter, "w") as file:
        file.write("0")
    body = (
        "for _ in range(20):\n"
        "    with once.lock('counter', ttl=30, wait=40):\n"
        f"        count = int(open({counter!r}).read())\n"
        f"        print(count + 1, file=open({counter!r}, 'w'), end='')\n"
    )
    workers = [start_worker(shared_url) for _ in range(4)]
    for worker in workers:
        worker.run("once.seen('x')")
    for worker in workers:
        worker.tell(body)
    for worker in workers:
        assert worker.answer() is None
    with open(counter) as file:
        assert file.read() == "80"
