"""A lease is kept while it is wanted; its loss is told by a local timer, and never masks the body's own error."""

import asyncio
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import solely
from solely import AsyncClient, Client, Released, State, events
from solely.ops import Clear
from solely.rules import local_clock
from solely.testing.proxy import FaultProxy
from tests.client.concurrently import concurrently
from tests.client.modes import Observer
from tests.client.worker import Worker, WorkerError
from tests.lateness import measured_lateness

TTL = 3.0  # seconds: a renewal may be late by half of it, on a machine that stalls
BEYOND = 4.0  # seconds: a lease that lives so long was renewed
MANY_TTL = 12.0  # seconds: fifty leases per store, in all stores at once, are renewed within half of it
ENDS = 1.0  # seconds of ttl of a lease that is to end: a grant is answered within this, on a busy machine too
SOON = 30.0  # seconds: an upper bound for what takes milliseconds


@concurrently()
async def test_a_lease_is_renewed_beyond_its_ttl(once: Any, observer: Observer) -> None:
    async with once.lock("a", ttl=TTL) as lease:
        await asyncio.sleep(BEYOND)
        assert not lease.lost
        assert lease.remaining() > 0
        assert observer.lock("a").fence == lease.fence


@concurrently()
async def test_many_leases_are_kept_together(once: Any, observer: Observer) -> None:
    keys = [f"k{n}" for n in range(50)]
    async with once.lock_all(keys, ttl=MANY_TTL) as leases:
        end = local_clock() + MANY_TTL  # of each lease that is not renewed
        await _until(lambda: all(local_clock() + lease.remaining() > end for lease in leases))
        assert not leases.lost
        assert {observer.lock(key).state for key in keys} == {State.HELD}


@concurrently()
async def test_without_renewal_it_ends_with_its_ttl(once: Any, other: Any) -> None:
    lease = await once.lock("a", ttl=ENDS, renew=False)
    await other.lock("a", ttl=30, wait=SOON)
    assert lease.lost
    assert lease.lost_how == "expired"
    assert await lease.release() is Released.EXPIRED
    assert await lease.release() is Released.EXPIRED


async def test_the_holder_gives_up_before_the_store_does(once: Any, observer: Observer) -> None:
    lease = await once.lock("a", ttl=30, renew=False)
    local_end = local_clock() + lease.remaining()
    store_end = max(local_clock() + observer.lock("a").left for _ in range(10))  # each is at most the true end
    assert local_end < store_end


@concurrently()
async def test_max_hold_bounds_a_lease_that_is_renewed(once: Any, other: Any) -> None:
    start = time.monotonic()
    lease = await once.lock("a", ttl=TTL, max_hold=TTL + 1)
    await other.lock("a", ttl=30, wait=SOON)
    assert time.monotonic() - start > TTL + 0.8
    assert lease.lost_how == "max_hold"
    with pytest.raises(solely.LeaseLost, match="max_hold"):
        await lease.renew()


@concurrently()
async def test_max_hold_bounds_a_claim_that_is_renewed(once: Any, other: Any) -> None:
    start = time.monotonic()
    claim = await once.claim("a", ttl=TTL, max_hold=TTL + 1)
    later = await other.claim("a", ttl=30, wait=SOON)
    assert time.monotonic() - start > TTL + 0.8
    assert (later.won, later.attempt) == (True, 2)
    assert claim.lost_how == "max_hold"
    assert (await claim.publish("too late", wait=0)).pending
    assert (await later.publish("in time")).published


@concurrently()
async def test_a_lease_that_an_admin_cleared_is_lost_at_the_next_renewal(once: Any, observer: Observer) -> None:
    lease = await once.lock("a", ttl=TTL, on_lost="flag")
    assert observer.perform(Clear("lock/a", lease.fence, "test")) == [True]
    await _until(lambda: lease.lost)
    assert lease.lost_how == "cleared"
    assert await lease.release() is Released.CLEARED


async def test_renew_extends_and_ensure_renews_only_if_need_be(once: Any) -> None:
    lease = await once.lock("a", ttl=10.0, renew=False)
    await lease.renew(ttl=20)
    assert 15 < lease.remaining() <= 20
    await lease.ensure(10)
    assert lease.remaining() > 10
    await lease.renew(ttl=2.0)  # never shortens: what was promised before still holds
    assert lease.remaining() > 10
    lease = await once.lock("b", ttl=30.0, renew=False)
    lease._hold.deadline -= 20  # as if so many seconds had passed
    assert lease.remaining() < 10
    await lease.ensure(20)
    assert lease.remaining() > 20
    with pytest.raises(solely.InvalidInput, match="more than the lease's ttl"):
        await lease.ensure(31)


async def test_renew_and_ensure_of_a_lost_lease_raise(once: Any, observer: Observer) -> None:
    lease = await once.lock("a", ttl=30, on_lost="flag")
    observer.perform(Clear("lock/a", lease.fence, "test"))
    with pytest.raises(solely.LeaseLost, match="cleared") as loss:
        await lease.renew()
    assert loss.value.key == "a"
    with pytest.raises(solely.LeaseLost):
        await lease.ensure()


async def test_renew_and_ensure_of_a_released_lease_raise(once: Any, observer: Observer) -> None:
    lease = await once.lock("a", ttl=30)
    await lease.release()
    for call in (lease.renew, lease.ensure):
        with pytest.raises(solely.LeaseLost, match="released"):
            await call()
    assert observer.lock("a").state is State.FREE


@concurrently()
async def test_a_body_that_outlives_its_lease_learns_it_at_the_end(once: Any, other: Any) -> None:
    with pytest.raises(solely.LeaseLost, match="expired"):
        async with once.lock("a", ttl=ENDS, renew=False, on_lost="flag") as lease:
            await other.lock("a", ttl=30, wait=SOON)
            assert lease.lost


@concurrently()
async def test_the_bodys_own_error_is_never_masked(once: Any, other: Any) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with once.lock("a", ttl=ENDS, renew=False, on_lost="flag"):
            await other.lock("a", ttl=30, wait=SOON)
            raise KeyError("mine")


async def test_a_body_may_release_early(once: Any, other: Any) -> None:
    async with once.lock("a", ttl=30) as lease:
        assert await lease.release() is Released.RELEASED
        async with other.lock("a", ttl=30, wait=0):
            pass


@concurrently()
async def test_a_function_is_told_of_the_loss_once(once: Any, observer: Observer) -> None:
    told: list[float] = []
    lease = await once.lock("a", ttl=ENDS, renew=False, on_lost=lambda: told.append(time.monotonic()))
    await _until(lambda: bool(told))
    assert lease.lost
    await lease.release()
    await asyncio.sleep(ENDS)
    assert len(told) == 1


@concurrently()
async def test_a_function_that_raises_stops_no_other_lease_from_being_kept(once: Any, observer: Observer) -> None:
    def fails() -> None:
        raise RuntimeError("told and angry")

    kept = await once.lock("kept", ttl=TTL)
    lease = await once.lock("a", ttl=ENDS, renew=False, on_lost=fails)
    await _until(lambda: lease.lost)
    await asyncio.sleep(BEYOND)
    assert not kept.lost
    assert observer.lock("kept").fence == kept.fence
    later = await once.lock("b", ttl=ENDS, renew=False, on_lost="flag")
    await _until(lambda: later.lost)


# -- while the network hangs


@concurrently()
async def test_the_loss_is_told_while_the_network_hangs(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any]
) -> None:
    told: list[float] = []
    client = open_client(proxied_url, timeout=20.0)  # long, so that nothing but the timer can be the cause
    lease = await client.lock("a", ttl=ENDS, on_lost=lambda: told.append(time.monotonic()))
    with measured_lateness() as lateness:
        start = time.monotonic()
        proxy.half_open()
        await _until(lambda: bool(told))
    assert told[0] - start < ENDS + 0.5 + lateness.seconds
    assert lease.lost_how == "expired"
    with pytest.raises(solely.LeaseLost):
        await lease.ensure()
    proxy.heal()
    proxy.reset()


async def test_asyncio_cancels_the_body_while_the_network_hangs(proxied_url: str, proxy: FaultProxy) -> None:
    async with AsyncClient(proxied_url, timeout=2.0) as once:
        ended = 0.0
        with measured_lateness() as lateness, pytest.raises(solely.LeaseLost):
            async with once.lock("a", ttl=ENDS):
                proxy.half_open()
                start = time.monotonic()
                try:
                    await asyncio.sleep(30)
                finally:
                    ended = time.monotonic() - start
        assert ended < ENDS + 0.5 + lateness.seconds
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        proxy.heal()
        async with asyncio.timeout(SOON):
            while not await _can_lock(once, "a"):
                pass


@concurrently()
async def test_a_lease_outlives_an_outage_that_is_shorter_than_its_ttl(
    proxied_url: str, proxy: FaultProxy, open_client: Callable[..., Any], beside: Observer
) -> None:
    """The outage is longer than the client's timeout, so that the keeper has given up on one renewal at least."""
    client = open_client(proxied_url, timeout=2.0)
    lease = await client.lock("a", ttl=12.0)
    proxy.reset()
    proxy.refuse()
    await asyncio.sleep(9.0)  # its first try to renew, after six seconds, has been given up; three are left
    proxy.heal()
    await asyncio.sleep(3.5)  # by now it would have ended
    assert not lease.lost
    assert beside.lock("a").fence == lease.fence
    assert lease.remaining() > 1.0


# -- asyncio: whose cancellation is it


async def test_a_foreign_cancellation_is_not_swallowed() -> None:
    async with AsyncClient("memory://") as once:

        async def body() -> None:
            async with once.lock("a", ttl=30):
                await asyncio.sleep(30)

        task = asyncio.ensure_future(body())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await once.try_lock("a") is not None


async def test_a_foreign_cancellation_together_with_a_loss_is_not_swallowed() -> None:
    async with AsyncClient("memory://") as once:
        task: asyncio.Task[None]

        async def body() -> None:
            async with once.lock("a", ttl=0.05, renew=False):
                try:
                    await asyncio.sleep(30)
                finally:
                    task.cancel()
                    await asyncio.sleep(0)

        task = asyncio.ensure_future(body())
        with pytest.raises(asyncio.CancelledError):
            await task


TAKING: dict[str, Callable[[AsyncClient, str], Any]] = {
    "lock": lambda once, key: once.lock(key, ttl=0.1, renew=False),
    "try_lock": lambda once, key: once.try_lock(key, ttl=0.1, renew=False),
    "lock_all": lambda once, key: once.lock_all([key], ttl=0.1, renew=False),
}


@pytest.mark.parametrize("how", TAKING)
async def test_a_lease_that_was_only_awaited_cancels_nobody_until_it_is_entered(how: str) -> None:
    """As the docstring of `lock` says: nobody knows which task relies on it."""
    lost = asyncio.Event()

    def hear(event: events.Event) -> None:
        if isinstance(event, events.Lost):
            lost.set()

    async with AsyncClient("memory://", hooks=[hear]) as once:
        lease = await TAKING[how](once, "a")
        async with asyncio.timeout(100):
            await lost.wait()
        await asyncio.sleep(0)  # a cancellation would come here
        assert lease.lost
        with pytest.raises(solely.LeaseLost):
            async with lease:
                raise AssertionError("the body was entered")
        again = await TAKING[how](once, "b")
        with pytest.raises(solely.LeaseLost):
            async with again:
                await asyncio.sleep(30)


async def test_a_cancelled_body_that_raises_its_own_error_keeps_it() -> None:
    async with AsyncClient("memory://") as once:
        with pytest.raises(KeyError):
            async with once.lock("a", ttl=0.05, renew=False):
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    raise KeyError("mine") from None
        await asyncio.sleep(0)  # nothing of the cancellation is left


async def test_a_loss_that_the_body_learns_by_its_own_renewal_is_told_as_lease_lost() -> None:
    async with AsyncClient("memory://lost-by-renewal") as once:
        observer = Observer("memory://lost-by-renewal")
        with pytest.raises(solely.LeaseLost, match="cleared"):
            async with once.lock("a", ttl=30) as lease:
                observer.perform(Clear("lock/a", lease.fence, "test"))
                await lease.renew()
        await asyncio.sleep(0)


async def test_all_leases_of_a_set_lost_at_once_are_told_as_one_loss() -> None:
    async with AsyncClient("memory://") as once:
        with pytest.raises(solely.LeaseLost):
            async with once.lock_all(["a", "b", "c"], ttl=0.05, renew=False):
                await asyncio.sleep(30)
        with pytest.raises(solely.LeaseLost):
            async with once.lock("a", ttl=0.05, renew=False), once.lock("b", ttl=0.05, renew=False):
                await asyncio.sleep(30)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_a_timeout_around_a_lease_still_works() -> None:
    async with AsyncClient("memory://") as once:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                async with once.lock("a", ttl=30):
                    await asyncio.sleep(30)
        assert await once.try_lock("a") is not None


async def test_on_lost_flag_leaves_the_body_alone() -> None:
    async with AsyncClient("memory://") as once:
        with pytest.raises(solely.LeaseLost):
            async with once.lock("a", ttl=0.05, renew=False, on_lost="flag") as lease:
                await _until(lambda: lease.lost)
                await asyncio.sleep(0.01)


# -- a lease that is over


def test_a_lease_that_is_over_guards_no_second_body() -> None:
    with Client("memory://") as once:
        lease, several = once.lock("a", ttl=30), once.lock_all(["b", "c"], ttl=30)
        for over in (lease, several):
            with over:
                pass
            with pytest.raises(solely.LeaseLost, match="released"), over:
                pytest.fail("nothing is held")


async def test_a_lease_that_was_lost_meanwhile_guards_no_body() -> None:
    async with AsyncClient("memory://") as once:
        lease, several = (
            await once.lock("a", ttl=0.05, renew=False),
            await once.lock_all(["b", "c"], ttl=0.05, renew=False),
        )
        await _until(lambda: lease.lost and several.lost)
        await asyncio.sleep(0.05)
        for over in (lease, several):
            with pytest.raises(solely.LeaseLost, match="expired"):
                async with over:
                    pytest.fail("nothing is held")


async def test_ensure_says_that_max_hold_ends_it() -> None:
    async with AsyncClient("memory://") as once:
        lease = await once.lock("a", ttl=1_000, max_hold=100)
        for _ in range(2):
            with pytest.raises(solely.LeaseLost, match="s left, not 5m: max_hold ends it then"):
                await lease.ensure(300)
        assert not lease.lost
        await lease.ensure(0.5)


# -- who keeps them


async def test_leases_are_kept_after_all_tasks_were_cancelled() -> None:
    async with AsyncClient("memory://") as once:
        async with once.lock("warm-up"):
            pass
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        async with once.lock("a", ttl=TTL) as lease:
            await asyncio.sleep(BEYOND)
            assert not lease.lost
        with pytest.raises(solely.LeaseLost):
            async with once.lock("b", ttl=ENDS, renew=False):
                await asyncio.sleep(30)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("place", ["hook", "on_lost"])
def test_an_exit_stops_no_other_lease_from_being_kept(place: str) -> None:
    exits: list[str] = []

    def exit_there(where: str) -> None:
        if where == place:
            exits.append(where)
            sys.exit("told")

    def hear(event: events.Event) -> None:
        if isinstance(event, events.Lost):
            exit_there("hook")

    with Client("memory://", hooks=[hear]) as once, once.lock("kept", ttl=TTL) as kept:
        for turn in (1, 2):
            once.lock(f"a{turn}", ttl=ENDS, renew=False, on_lost=lambda: exit_there("on_lost"))
            _wait_until(partial(lambda turn: len(exits) == turn, turn))
        time.sleep(BEYOND)
        assert not kept.lost


# -- hand-over


@concurrently()
async def test_a_lease_handed_over_goes_on_elsewhere(once: Any, other: Any, observer: Observer) -> None:
    lease = await once.lock("a", ttl=TTL)
    token = lease.hand_over()
    assert lease.lost_how == "handed over"
    heir = await other.resume(token)
    assert heir.key == "a"
    assert heir.fence > lease.fence
    await asyncio.sleep(BEYOND)
    assert not heir.lost
    assert await heir.release() is Released.RELEASED
    assert observer.lock("a").state is State.FREE
    with pytest.raises(solely.Busy):
        await once.resume(token)


@concurrently()
async def test_a_holder_that_did_not_let_go_is_told_at_its_next_renewal(once: Any, other: Any) -> None:
    told: list[str] = []
    lease = await once.lock("a", ttl=2 * TTL, on_lost=lambda: told.append("a"))
    await other.resume(lease.token)
    await _until(lambda: told == ["a"])
    assert lease.lost_how == "resumed"
    assert await lease.release() is Released.RESUMED


async def test_a_body_that_handed_over_does_not_release(once: Any, other: Any, observer: Observer) -> None:
    async with once.lock("a", ttl=30) as lease:
        token = lease.hand_over()
    assert observer.lock("a").fence == lease.fence
    await (await other.resume(token)).release()


async def test_who_handed_over_lets_go_of_nothing(once: Any, other: Any, observer: Observer) -> None:
    lease = await once.lock("a", ttl=30)
    several = await once.lock_all(["b", "c"], ttl=30)
    heirs = [await other.resume(one.hand_over()) for one in (lease, several[0])]
    assert await lease.release() is Released.UNKNOWN
    assert await several.release() == [Released.UNKNOWN, Released.RELEASED]
    assert [observer.lock(key).state for key in "abc"] == [State.HELD, State.HELD, State.FREE]
    assert [await heir.release() for heir in heirs] == [Released.RELEASED] * 2


def test_a_lease_is_resumed_in_another_process(shared_url: str, start_worker: Callable[..., Worker]) -> None:
    worker = start_worker(shared_url)
    with Client(shared_url) as once:
        lease = once.lock("a", ttl=5)
        worker.run(f"lease = once.resume({lease.hand_over()!r})")
        assert worker.run("lease.fence") > lease.fence
        assert once.try_lock("a") is None
        with pytest.raises(solely.Busy, match=f"pid {worker.pid}"):
            once.resume(lease.token)
        assert worker.run("str(lease.release())") == "released"
        assert once.try_lock("a") is not None
        with pytest.raises(WorkerError, match="Busy"):
            worker.run(f"once.resume({lease.token!r})")


def test_of_two_processes_that_resume_one_token_at_once_one_has_the_lease(
    shared_url: str, start_worker: Callable[..., Worker]
) -> None:
    workers = [start_worker(shared_url), start_worker(shared_url)]
    with Client(shared_url) as once:
        for turn in range(5):
            lease = once.lock(f"a{turn}", ttl=300)
            token = lease.hand_over()
            for worker in workers:
                worker.tell(f"lease = once.resume({token!r}); [lease.fence, str(lease.release())]")
            answers = [_answer(worker) for worker in workers]
            (resumed,) = [answer for answer in answers if not isinstance(answer, WorkerError)]
            (refused,) = [answer for answer in answers if isinstance(answer, WorkerError)]
            assert resumed[0] > lease.fence
            assert resumed[1] == "released"
            assert refused.kind == "Busy"


def _answer(worker: Worker) -> Any:
    try:
        return worker.answer()
    except WorkerError as error:
        return error


async def _can_lock(client: AsyncClient, key: str) -> bool:
    """False while the store is still out of reach."""
    try:
        return await (await client.lock(key, wait=SOON)).release() is Released.RELEASED
    except solely.StoreUnavailable:
        return False


def _wait_until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.005)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.005)
