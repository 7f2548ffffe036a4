"""Fork: the child's leases are born lost, the child can use the client, and the parent notices nothing."""

import asyncio
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import solely
from solely import AsyncClient, Client, Released

# Forking while other threads run is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(work: Callable[[], Any]) -> None:
    """Runs the work in a forked child; fails with its traceback."""
    report = finish_child(*start_child(work))
    assert not report, report


def start_child(work: Callable[[], Any]) -> tuple[int, int]:
    """The pid of a forked child that runs the work, and where it reports."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        report = ""
        try:
            work()
        except BaseException:
            report = traceback.format_exc()
        os.write(writer, report.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    return child, reader


def finish_child(child: int, reader: int) -> str:
    """The child's traceback when it has ended; "" if it succeeded."""
    with os.fdopen(reader) as said:
        report = said.read()
    os.waitpid(child, 0)
    return report


def test_the_childs_lease_is_lost_and_the_parents_is_not(store_url: str) -> None:
    with Client(store_url) as once:
        lease = once.lock("a", ttl=10)

        def child() -> None:
            assert lease.lost
            assert lease.lost_how == "forked"
            assert lease.remaining() == 0.0
            for call in (lease.renew, lease.ensure):
                with pytest.raises(solely.LeaseLost, match="forked"):
                    call()

        in_child(child)
        assert not lease.lost
        lease.renew()
        assert once.first("b")
        assert lease.release() is Released.RELEASED


def test_leaving_the_block_in_the_child_does_not_release_the_parents_lease(shared_url: str) -> None:
    with Client(shared_url) as once, Client(shared_url) as other:
        with once.lock("a", ttl=30) as lease:

            def child() -> None:
                with pytest.raises(solely.LeaseLost):
                    lease.__exit__(None, None, None)

            in_child(child)
            assert other.try_lock("a") is None
            lease.ensure(1)
        assert other.try_lock("a") is not None


def test_the_child_uses_the_client_and_the_parents_connection_still_works(shared_url: str) -> None:
    with Client(shared_url) as once:
        assert once.first("a")
        lease = once.lock("held", ttl=30)

        def child() -> None:
            assert once.seen("a")
            assert once.first("b")
            assert once.try_lock("held") is None
            with once.lock("c", ttl=2.0) as own:
                own.ensure(0.2)
                threads_renew_it_here_too(own)

        in_child(child)
        for n in range(20):
            assert once.first(f"parent-{n}")
        assert not once.first("b")
        assert lease.release() is Released.RELEASED
        assert once.try_lock("c") is not None


def threads_renew_it_here_too(lease: Any) -> None:
    """Waits until the lease would have ended without its keeper, which the child must have started anew."""
    import time

    time.sleep(2.2)
    assert not lease.lost


def test_forks_in_quick_succession_do_not_disturb_the_threads_of_the_parent(shared_url: str) -> None:
    """As multiprocessing.Pool(4) makes them: every child can use the client and open another, no thread loses a
    lease."""
    with Client(shared_url) as once:
        lease, stop, failures = once.lock("held", ttl=30), threading.Event(), list[BaseException]()

        def use(name: str) -> None:
            try:
                while not stop.is_set():
                    with once.lock(name, ttl=30, wait=30):
                        pass
            except BaseException as error:
                failures.append(error)

        def child(name: str) -> None:
            assert once.first(name)
            with Client(shared_url) as own:
                assert not own.first(name)

        threads = [threading.Thread(target=use, args=(f"thread-{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        try:
            for burst in range(3):
                children = [start_child(partial(child, f"child-{burst}-{n}")) for n in range(4)]
                assert [finish_child(*started) for started in children] == [""] * 4
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert failures == []
        assert lease.release() is Released.RELEASED


TOGETHER = """
import os, sys
from solely import Client

def work():
    for _ in range(20):
        with once.lock("a", ttl=120, wait=120):
            with open(sys.argv[2], "x"):  # an error if the other is inside
                pass
            os.unlink(sys.argv[2])

with Client(sys.argv[1]) as once:
    once.seen("warm")
    pid = os.fork()
    work()
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_parent_and_child_together_exclude_each_other(shared_url: str, tmp_path: Path) -> None:
    """In a process of their own: at the fork it has the threads of this client, and none of other tests."""
    command = [sys.executable, "-c", TOGETHER, shared_url, str(tmp_path / "inside")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr


def test_an_async_client_is_usable_in_the_childs_own_loop(shared_url: str) -> None:
    async def parent() -> None:
        async with AsyncClient(shared_url) as once:
            lease = await once.lock("a", ttl=5.0)  # nobody renews it until the child is done

            async def in_childs_loop() -> None:
                assert lease.lost_how == "forked"
                assert await once.first("b")
                async with once.lock("c", ttl=30):
                    assert await once.try_lock("a") is None
                await once.close()

            def child() -> None:
                asyncio._set_running_loop(None)
                asyncio.set_event_loop_policy(None)
                asyncio.run(in_childs_loop())

            in_child(child)
            left = lease.remaining()
            async with asyncio.timeout(100):
                while lease.remaining() <= left:  # until it is renewed
                    await asyncio.sleep(0.02)
            assert not await once.first("b")
            assert await lease.release() is Released.RELEASED

    asyncio.run(parent())
