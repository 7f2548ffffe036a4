"""A probe runs under the mutex of its URL, is always released, and its result is refused if the mutex was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from solely import AsyncClient
from solely.apps.probes.checks import Outcome
from solely.apps.probes.model import ProbeTarget
from solely.apps.probes.mutex import PREFIX, ProbeMutex
from solely.apps.probes.prober import Prober
from tests.apps.probes.test_mutex import Pauses

URL = "https://shop.example/login"
TARGET = ProbeTarget(name="shop", url=URL, timeout=5.0)


class Scripted:
    """Checks that end as the test says, and count how many there are at once."""

    def __init__(self, check: Callable[[], Awaitable[Outcome]] | None = None) -> None:
        self.check_once, self.checks, self.at_once, self.most = check, 0, 0, 0

    async def check(self, target: ProbeTarget) -> Outcome:
        self.checks += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            return await self.check_once() if self.check_once else Outcome(status=200, phases={"connect": 0.01})
        finally:
            self.at_once -= 1


@pytest.fixture
async def once() -> AsyncIterator[AsyncClient]:
    async with AsyncClient("memory://") as it:
        yield it


async def held_keys(once: AsyncClient) -> list[str]:
    return (await ProbeMutex(once).status()).active_probe_keys


async def test_a_probe_holds_the_mutex_while_it_runs_and_releases_it(once: AsyncClient) -> None:
    async def check() -> Outcome:
        assert await held_keys(once) == [ProbeMutex.target_key(URL)]
        return Outcome(status=204)

    result, _ = await Prober(ProbeMutex(once), Scripted(check)).probe(TARGET)
    assert (result.passed, result.status, result.attempts, result.skipped) == (True, 204, 1, "")
    assert result.fence > 0
    assert await held_keys(once) == []


async def test_a_probe_that_fails_or_is_cancelled_releases_the_mutex(once: AsyncClient) -> None:
    async def broken() -> Outcome:
        raise RuntimeError("a defect of the check")

    began = asyncio.Event()

    async def hanging() -> Outcome:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(RuntimeError):
        await Prober(ProbeMutex(once), Scripted(broken)).probe(TARGET)
    assert await held_keys(once) == []
    probing = asyncio.create_task(Prober(ProbeMutex(once), Scripted(hanging)).probe(TARGET))
    await began.wait()
    probing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probing
    assert await held_keys(once) == []


async def test_a_probe_of_a_held_target_is_skipped_and_checks_nothing(once: AsyncClient) -> None:
    pauses, scripted = Pauses(), Scripted()
    await ProbeMutex(once).acquire(URL, max_hold=60)
    result, _ = await Prober(ProbeMutex(once, sleep=pauses), scripted).probe(TARGET)
    assert (result.passed, result.skipped, result.attempts, result.fence) == (False, "locked", 2, 0)
    assert (scripted.checks, len(pauses.all)) == (0, 1)


async def test_a_holder_that_was_overtaken_has_its_result_refused(once: AsyncClient) -> None:
    async def overtaken() -> Outcome:
        await once.expire_reservation(PREFIX + ProbeMutex.target_key(URL), reason="as if it had been frozen")
        await ProbeMutex(once).acquire(URL, max_hold=60)
        return Outcome(status=200)

    result, _ = await Prober(ProbeMutex(once), Scripted(overtaken)).probe(TARGET)
    assert (result.passed, result.skipped, result.fence) == (False, "lost", 0)
    assert await held_keys(once) == [ProbeMutex.target_key(URL)]  # the other's, which is left alone


async def test_a_check_is_stopped_when_its_mutex_is_lost(once: AsyncClient) -> None:
    stopped = asyncio.Event()

    async def hanging() -> Outcome:
        await once.expire_reservation(PREFIX + ProbeMutex.target_key(URL), reason="the store has lost it")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    mutex = ProbeMutex(once, lock_timeout=1.0)  # its holder looks at it every half second
    result, _ = await Prober(mutex, Scripted(hanging)).probe(TARGET)
    assert result.skipped == "lost"
    await asyncio.wait_for(stopped.wait(), 30)


async def test_the_mutex_is_renewed_while_a_probe_lives(once: AsyncClient) -> None:
    tried = 0

    async def long() -> Outcome:
        nonlocal tried
        for _ in range(6):  # three times the lock's own time
            await asyncio.sleep(0.5)
            tried += bool((await ProbeMutex(once, retries=0).acquire(URL, max_hold=5))[0])
        return Outcome(status=200)

    result, _ = await Prober(ProbeMutex(once, lock_timeout=1.0), Scripted(long)).probe(TARGET)
    assert (result.passed, tried) == (True, 0)


async def test_a_login_test_runs_its_iterations_0_1_s_apart_with_20_percent_of_jitter(once: AsyncClient) -> None:
    pauses, scripted = Pauses(), Scripted()
    prober = Prober(ProbeMutex(once), scripted, sleep=pauses)
    result = await prober.run_synthetic_login_test(URL, iterations=50)
    assert (result.passed, result.iterations, result.failures, result.attempts, result.error) == (True, 50, 0, 1, "")
    assert result.timings == {"connect": pytest.approx(0.01), "slowest": pytest.approx(0.01)}
    assert (scripted.checks, len(pauses.all)) == (50, 49)
    assert 0.08 <= min(pauses.all) < max(pauses.all) <= 0.12
    assert len(set(pauses.all)) > 40
    assert await held_keys(once) == []


async def test_a_login_test_fails_with_its_first_error_and_runs_all_iterations(once: AsyncClient) -> None:
    outcomes = iter([Outcome(), Outcome("status 503 is not 2xx"), Outcome("no answer within 5 s")])

    async def check() -> Outcome:
        return next(outcomes)

    prober = Prober(ProbeMutex(once), Scripted(check), sleep=Pauses())
    result = await prober.run_synthetic_login_test(URL, iterations=3)
    assert (result.passed, result.iterations, result.failures) == (False, 3, 2)
    assert result.error == "status 503 is not 2xx"


async def test_login_tests_of_one_url_do_not_overlap_and_the_second_is_skipped(once: AsyncClient) -> None:
    scripted, pauses = Scripted(), Pauses()
    entered, leave = asyncio.Event(), asyncio.Event()

    async def check() -> Outcome:
        entered.set()
        await leave.wait()
        return Outcome()

    scripted.check_once = check
    first = asyncio.create_task(Prober(ProbeMutex(once), scripted).run_synthetic_login_test(URL, iterations=1))
    await entered.wait()
    other = Prober(ProbeMutex(once, sleep=pauses), scripted)
    skipped = await other.run_synthetic_login_test(URL, iterations=1)
    assert (skipped.passed, skipped.skipped, skipped.iterations, skipped.attempts) == (False, "locked", 0, 2)
    leave.set()
    assert (await first).passed
    assert (scripted.checks, scripted.most) == (1, 1)
