"""The generator wraps an existing one, in threads and in asyncio: one signal per credential and window, one process per
group, retries, dead letters, the flag, and the breaker."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from solely import Breaker, Cache, Circuit, Client, InvalidInput, LetterOutcome, StoreUnavailable
from solely.apps.signals import (
    AsyncIdempotentSignalGenerator,
    GroupResult,
    IdempotentSignalGenerator,
    SignalGroup,
    SignalOptions,
    steps,
)
from solely.apps.signals.model import fresh_id, signal_id
from solely.testing.clock import ManualClock
from tests.client_modes import refusing_client, result_of
from tests.mongo_server import Mongod, mongod_path
from tests.postgres_server import PYPI_POSTGRES, Postgres
from tests.servers import Valkey

GROUP = ("north", "slots")
Signal = dict[str, Any]


def made(*names: str) -> Callable[..., list[Signal]]:
    return lambda group, context: [{"username": name, "house": group.house} for name in names]


class Written:
    """Signals by id, as a place for them that refuses what it is told to."""

    def __init__(self) -> None:
        self.by_id: dict[str, Signal] = {}
        self.old: list[Signal] = []
        self.fails: dict[str, int] = {}  # username → how many of its writes fail
        self.tries = 0

    def __call__(self, signal: Signal, id: str) -> bool:
        self.tries += 1
        name = signal["username"]
        if self.fails.get(name, 0):
            self.fails[name] -= 1
            raise OSError(f"{name} cannot be written")
        return self.by_id.setdefault(id, signal) is signal

    @property
    def names(self) -> list[str]:
        return sorted(signal["username"] for signal in self.by_id.values())


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def build(mode: str, open_client: Callable[..., Any], clock: ManualClock) -> Callable[..., Any]:
    """Makes generators of the mode at hand, each with a client of its own, on one store and one clock."""
    kind = IdempotentSignalGenerator if mode == "blocking" else AsyncIdempotentSignalGenerator
    url = f"memory://{id(clock)}"

    def build_one(generate: Any, write: Any, store: Any = None, options: Any = None, **given: Any) -> Any:
        used = {"backoff": (0.0, 0.0, 0.0), **(options or {})}
        it = kind(generate, write, store or open_client(url, clock=clock), options=SignalOptions(**used), **given)
        it.cache = Cache(size=it.cache.size, ttl=it.cache.ttl, clock=clock)
        return it

    return build_one


async def run(generator: Any, group: tuple[str, str] = GROUP, context: Any = None) -> GroupResult:
    result: GroupResult = await result_of(generator.generate_group(group, context))
    return result


# -- one signal per credential and window


async def test_a_credential_gets_one_signal_per_window(build: Any, written: Written, clock: ManualClock) -> None:
    one, other = (build(made("ann", "bob"), written) for _ in range(2))
    assert (await run(one)).generated == 2
    for generator in (one, other):
        again = await run(generator)
        assert (again.generated, again.deduplicated) == (0, 2)
    clock.advance(299)
    assert (await run(other)).generated == 0
    clock.advance(2)
    assert (await run(other)).generated == 2
    assert written.names == ["ann", "ann", "bob", "bob"]


async def test_the_cache_forgets_a_credential_when_its_window_ends(
    build: Any, written: Written, clock: ManualClock
) -> None:
    one, late = (build(made("ann"), written) for _ in range(2))
    await run(one)
    clock.advance(200)
    assert (await run(late)).deduplicated == 1
    clock.advance(101)
    assert (await run(late)).generated == 1


async def test_the_old_path_writes_in_a_transaction_if_that_is_how_signals_are_written(mode: str) -> None:
    inside: list[Any] = []

    @contextmanager
    def transaction() -> Iterator[str]:
        yield "connection"

    @asynccontextmanager
    async def async_transaction() -> AsyncIterator[str]:
        yield "connection"

    def write(signal: Signal, id: str, connection: str) -> None:
        inside.append((signal["username"], connection))

    kind: Any = IdempotentSignalGenerator if mode == "blocking" else AsyncIdempotentSignalGenerator
    begin = transaction if mode == "blocking" else async_transaction
    generator = kind(made("ann"), write, refusing_client(mode), transaction=begin, use_idempotent_signals=False)
    assert (await run(generator)).generated == 1
    assert inside == [("ann", "connection")]


async def test_the_cache_is_asked_before_the_store(build: Any, written: Written) -> None:
    generator = build(made("ann"), written)
    await run(generator)
    tries = written.tries
    generator._once = _OnlyLocks(generator._once)
    assert (await run(generator)).deduplicated == 1
    assert written.tries == tries
    assert (generator.cache.size, generator.cache.ttl) == (10_000, 300.0)


class _OnlyLocks:
    """A client that refuses everything but locks."""

    def __init__(self, once: Any) -> None:
        self.try_lock = once.try_lock


async def test_the_cache_evicts_the_least_recently_used_credential(build: Any, written: Written) -> None:
    generator = build(made("ann", "bob", "eve"), written, options={"cache_size": 2})
    await run(generator)
    assert len(generator.cache) == 2
    assert (await run(generator)).deduplicated == 3  # those that the cache lost are known to the store


async def test_a_credential_that_is_generated_twice_at_once_is_written_once(build: Any, written: Written) -> None:
    result = await run(build(made("ann", "ann"), written))
    assert (result.generated, result.deduplicated) == (1, 1)


async def test_parts_of_keys_are_encoded_so_that_no_two_groups_meet(build: Any, written: Written) -> None:
    assert SignalGroup("a:b", "c").lock == "signal:a%3Ab:c"
    assert SignalGroup("a", "b:c").lock != SignalGroup("a:b", "c").lock
    generator = build(made("ann"), written)
    for group in (("a:b", "c"), ("a", "b:c")):
        assert (await run(generator, group)).generated == 1


# -- one process per group


async def test_a_group_that_another_has_is_skipped_and_counted(build: Any, written: Written, mode: str) -> None:
    inside: list[GroupResult] = []
    other = build(made("ann"), written)

    def generate(group: SignalGroup, context: Any) -> Any:
        if mode == "blocking":
            inside.append(other.generate_group(group))
            return made("ann")(group, context)
        return _meanwhile(group)

    async def _meanwhile(group: SignalGroup) -> list[Signal]:
        inside.append(await other.generate_group(group))
        return made("ann")(group, None)

    generator = build(generate, written)
    assert (await run(generator)).generated == 1
    assert (inside[0].outcome, inside[0].generated) == ("contended", 0)
    assert other.metrics.snapshot()["signals.lock_contention"] == 1
    assert generator.metrics.snapshot()["signals.lock_acquired"] == 1
    assert (await run(other)).outcome == "generated"  # the lock is released


async def test_the_lock_is_held_for_its_ttl_only_if_the_holder_dies(
    build: Any, written: Written, open_client: Any, clock: ManualClock
) -> None:
    generator = build(made("ann"), written)
    once = open_client(f"memory://{id(clock)}", clock=clock)
    await result_of(once.try_lock(SignalGroup(*GROUP).lock, ttl=30, renew=False))
    clock.advance(29)
    assert (await run(generator)).outcome == "contended"
    clock.advance(2)
    assert (await run(generator)).generated == 1


async def test_the_lock_is_released_if_the_generator_fails(build: Any, written: Written) -> None:
    def generate(group: SignalGroup, context: Any) -> list[Signal]:
        if context == "broken":
            raise ValueError("no data")
        return made("ann")(group, context)

    generator = build(generate, written)
    with pytest.raises(ValueError, match="no data"):
        await run(generator, context="broken")
    (result,) = await result_of(generator.generate_signals([GROUP], "broken"))
    assert isinstance(result.error, ValueError)
    assert (await run(generator)).generated == 1


async def test_an_asynchronous_generator_is_wrapped_too(written: Written) -> None:
    async def generate(group: SignalGroup, context: Any) -> AsyncIterator[Signal]:
        yield {"username": "ann"}
        await asyncio.sleep(0)
        yield {"username": "bob"}

    async def write(signal: Signal, id: str) -> bool:
        return written(signal, id)

    async with AsyncIdempotentSignalGenerator(generate, write, "memory://") as generator:
        assert (await run(generator)).generated == 2


async def test_a_generator_that_is_cancelled_releases_its_group(written: Written) -> None:
    began, for_ever = asyncio.Event(), asyncio.Event()

    async def generate(group: SignalGroup, context: Any) -> list[Signal]:
        if context == "slow":
            began.set()
            await for_ever.wait()
        return [{"username": "ann"}]

    async with AsyncIdempotentSignalGenerator(generate, written, "memory://") as generator:
        task = asyncio.create_task(generator.generate_group(GROUP, "slow"))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await run(generator)).generated == 1


# -- failures


async def test_a_write_that_fails_is_repeated(build: Any, written: Written) -> None:
    written.fails = {"ann": 3}
    result = await run(build(made("ann", "bob"), written))
    assert (result.generated, result.dead_lettered, written.tries) == (2, 0, 5)


def test_the_pauses_are_100_200_and_400_ms() -> None:
    assert getattr(SignalOptions().backoff, "steps", None) == (0.1, 0.2, 0.4)


async def test_a_signal_that_keeps_failing_becomes_a_dead_letter_and_is_replayed(build: Any, written: Written) -> None:
    written.fails = {"ann": 5}
    generator = build(made("ann", "bob"), written)
    result = await run(generator)
    assert (result.generated, result.dead_lettered) == (1, 1)
    (letter,) = await result_of(generator._letters.list())
    assert (letter.payload["username"], letter.payload["signal"]) == ("ann", {"username": "ann", "house": "north"})
    assert (letter.attempts, letter.last_error) == (4, "OSError: ann cannot be written")
    outcomes = await result_of(generator.replay_all())  # its first try fails once more
    assert outcomes == {LetterOutcome.REPLAYED: 1}
    assert written.names == ["ann", "bob"]
    assert await result_of(generator._letters.count()) == 0
    assert (await run(generator)).deduplicated == 2  # a replay counts for the window


async def test_a_signal_that_fails_again_updates_its_letter(build: Any, written: Written) -> None:
    written.fails = {"ann": 1_000}
    generator = build(made("ann"), written)
    for _ in range(2):
        assert (await run(generator)).dead_lettered == 1
    (letter,) = await result_of(generator._letters.list())
    assert letter.attempts == 8
    replayed = await result_of(generator.replay(letter.id))
    assert replayed.outcome is LetterOutcome.FAILED


async def test_a_letter_whose_credential_got_a_signal_since_is_not_written(build: Any, written: Written) -> None:
    written.fails = {"ann": 4}
    generator = build(made("ann"), written)
    assert (await run(generator)).dead_lettered == 1
    assert (await run(generator)).generated == 1
    replayed = await result_of(generator.replay(SignalGroup(*GROUP).key("ann")))
    assert (replayed.outcome, replayed.value) == (LetterOutcome.REPLAYED, "deduplicated")
    assert written.names == ["ann"]


async def test_a_write_of_unknown_outcome_is_repeated_under_its_id_however_long_it_failed_before(
    build: Any, written: Written, clock: ManualClock
) -> None:
    written.fails, lost = {"ann": 1}, [False]

    def write(signal: Signal, id: str) -> bool:
        answer = written(signal, id)
        if lost[0]:
            raise TimeoutError("no response")
        return answer

    generator = build(made("ann"), write, options={"backoff": ()})
    assert (await run(generator)).dead_lettered == 1
    clock.advance(290)
    lost[0] = True
    assert (await run(generator)).dead_lettered == 1  # it is written, and nobody knows
    clock.advance(20)
    lost[0] = False
    assert (await run(generator)).generated == 1
    assert written.names == ["ann"]
    clock.advance(301)
    assert (await run(generator)).generated == 1  # the next window has an id of its own
    assert written.names == ["ann", "ann"]


async def test_a_process_that_finishes_meanwhile_leaves_no_id_that_outlives_its_window(
    build: Any, written: Written, clock: ManualClock, mode: str
) -> None:
    """Its lock was lost: another one wrote and finished between the two looks at the window."""
    slow, other = (build(made("ann"), written) for _ in range(2))
    ensure = slow._once.ensure_marks

    def overtaken(keys: list[str], ttl: float) -> Any:
        settled = other._settle(GroupResult(SignalGroup(*GROUP)), made("ann")(SignalGroup(*GROUP), None), lambda: None)
        return steps.run(_then(settled, ensure, keys, ttl)) if mode == "blocking" else _awaited(settled, keys, ttl)

    def _then(settled: Any, ensure: Any, keys: list[str], ttl: float) -> Any:
        yield from settled
        clock.advance(10)
        return (yield lambda: ensure(keys, ttl=ttl))

    async def _awaited(settled: Any, keys: list[str], ttl: float) -> Any:
        return await steps.run_async(_then(settled, ensure, keys, ttl))

    slow._once.ensure_marks = overtaken
    assert (await run(slow)).deduplicated == 1
    clock.advance(295)  # the window of the other is over; an id that was extended with it would not be
    assert (await run(other)).generated == 1
    assert written.names == ["ann", "ann"]


async def test_a_letter_is_written_under_its_first_id_also_after_the_window(
    build: Any, written: Written, clock: ManualClock
) -> None:
    """The write succeeded, and only its responses were lost."""
    lost = [True]

    def write(signal: Signal, id: str) -> bool:
        answer = written(signal, id)
        if lost:
            raise TimeoutError("no response")
        return answer

    generator = build(made("ann"), write)
    assert (await run(generator)).dead_lettered == 1
    lost.clear()
    clock.advance(301)
    assert (await result_of(generator.replay_all())) == {LetterOutcome.REPLAYED: 1}
    assert written.names == ["ann"]


@pytest.mark.parametrize("bad", [{"user": "ann"}, {"username": ""}, {"username": 7}, "text", {"username": "x" * 500}])
async def test_a_signal_without_a_credential_becomes_a_dead_letter(build: Any, written: Written, bad: Any) -> None:
    generator = build(lambda group, context: [bad, {"username": "bob"}], written)
    result = await run(generator)
    assert (result.generated, result.dead_lettered) == (1, 1)
    (letter,) = await result_of(generator._letters.list())
    assert "names no valid credential" in letter.last_error
    assert letter.payload["signal"] == bad


async def test_a_signal_without_a_json_form_is_kept_as_text(build: Any, written: Written) -> None:
    odd = {"username": "ann", "what": object()}
    written.fails = {"ann": 4}
    generator = build(lambda group, context: [odd], written)
    assert (await run(generator)).dead_lettered == 1
    (letter,) = await result_of(generator._letters.list())
    assert "<object object" in letter.payload["repr"]
    assert (await result_of(generator.replay(letter.id))).outcome is LetterOutcome.FAILED  # and it stays


# -- the flag


async def test_with_the_flag_off_the_old_path_runs_untouched(build: Any, written: Written, mode: str) -> None:
    store, old = refusing_client(mode), written.old.append
    generator = build(made("ann"), written, store, unprotected=old, use_idempotent_signals=False)
    for _ in range(2):
        result = await run(generator)
        assert (result.outcome, result.generated) == ("off", 1)
    assert [each["username"] for each in written.old] == ["ann", "ann"]
    assert written.tries == 0


async def test_the_flag_may_change_while_the_generator_runs(build: Any, written: Written) -> None:
    generator = build(made("ann"), written)
    await run(generator)
    generator.use_idempotent_signals = False
    assert (await run(generator)).outcome == "off"
    assert written.names == ["ann", "ann"]
    generator.use_idempotent_signals = True
    assert (await run(generator)).deduplicated == 1


# -- outages


NOWHERE = "redis://127.0.0.1:1"  # nothing listens there


async def test_an_outage_fails_closed_and_the_breaker_opens(build: Any, written: Written, open_client: Any) -> None:
    clock = ManualClock()
    breaker = Breaker("store", threshold=3, per=600, cooldown=30, on=StoreUnavailable, clock=clock)
    generator = build(made("ann"), written, open_client(NOWHERE, timeout=0.05), breaker=breaker)
    for _ in range(3):
        assert breaker.state() is Circuit.CLOSED
        with pytest.raises(StoreUnavailable):
            await run(generator)
    with pytest.raises(StoreUnavailable, match="no request was sent"):
        await run(generator)
    assert (breaker.state(), written.tries) == (Circuit.OPEN, 0)
    assert generator.metrics.snapshot()["signals.refused"] == 4
    (result,) = await result_of(generator.generate_signals([GROUP]))
    assert (result.outcome, type(result.error)) == ("refused", StoreUnavailable)


async def test_the_unprotected_path_is_a_choice_by_name_and_counted(
    build: Any, written: Written, open_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    breaker = Breaker("store", threshold=2, on=StoreUnavailable)
    options = {"on_outage": "unprotected"}
    generator = build(made("ann"), written, open_client(NOWHERE, timeout=0.05), options, breaker=breaker)
    for _ in range(3):
        assert (await run(generator)).outcome == "unprotected"
    assert breaker.state() is Circuit.OPEN
    assert generator.metrics.snapshot()["signals.unprotected"] == 3
    assert len(written.by_id) == 3
    assert "signals_unprotected" in caplog.text
    with pytest.raises(InvalidInput, match="on_outage must be 'refuse' or 'unprotected', not 'ignore'"):
        SignalOptions(on_outage="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"window must be at least 1 s, not 0\.5"):
        SignalOptions(window=0.5)


SERVERS: dict[str, Callable[[], Any]] = {
    "valkey": Valkey,
    "mongod": lambda: Mongod(replica_set=True),
    "postgres": lambda: Postgres(folder=PYPI_POSTGRES, fsync="off"),
}
LACKS = {"mongod": mongod_path() is None, "postgres": PYPI_POSTGRES is None}


@pytest.fixture(
    params=[
        pytest.param(name, marks=() if name == "valkey" else pytest.mark.only_with_all)
        for name in SERVERS
        if not LACKS.get(name)
    ]
)
def server(request: pytest.FixtureRequest) -> Any:
    """A server of the test's own, which it kills."""
    with SERVERS[request.param]() as it:
        yield it


def test_a_store_that_is_killed_and_comes_back_gets_one_trial_from_each_process(server: Any) -> None:
    """Two generators stand for two processes: breakers are local. Nothing is lost, nothing is written twice."""
    written, clock = Written(), ManualClock()
    in_trial, go_on = threading.Event(), threading.Event()

    def generate(group: SignalGroup, context: Any) -> list[Signal]:
        if context == "trial":
            in_trial.set()
            assert go_on.wait(60)
        return made("ann", "bob")(group, context)

    with Client(server.url, timeout=2.0) as one, Client(server.url, timeout=2.0) as other:
        breakers = [
            Breaker("store", threshold=3, per=600, cooldown=30, successes=1, on=StoreUnavailable, clock=clock)
            for _ in range(2)
        ]
        first, second = (
            IdempotentSignalGenerator(generate, written, once, breaker=breaker)
            for once, breaker in zip((one, other), breakers, strict=True)
        )
        assert first.generate_group(("north", "keno")).generated == 2
        server.kill()
        for generator in (first, second):
            results = generator.generate_signals([GROUP] * 3)
            assert {result.outcome for result in results} == {"refused"}
        assert [breaker.state() for breaker in breakers] == [Circuit.OPEN, Circuit.OPEN]
        server.start()
        assert first.generate_signals([GROUP])[0].outcome == "refused"  # still cooling down
        clock.advance(30)
        trial = threading.Thread(target=first.generate_group, args=(GROUP, "trial"))
        trial.start()
        assert in_trial.wait(60)
        with pytest.raises(StoreUnavailable, match="trial is in progress"):
            first.generate_group(("south", "slots"))
        go_on.set()
        trial.join()
        assert breakers[0].state() is Circuit.CLOSED
        assert second.generate_group(("south", "slots")).generated == 2  # its own trial
        assert [breaker.state() for breaker in breakers] == [Circuit.CLOSED, Circuit.CLOSED]
        assert first.generate_group(("south", "slots")).generated == 0
    assert written.names == ["ann"] * 3 + ["bob"] * 3


# -- metrics and alerts


async def test_metrics_are_logged_every_60_seconds(
    build: Any, written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "solely.signals")
    clock = ManualClock()
    generator = build(made("ann"), written, clock=clock)
    await run(generator)
    assert "signal_metrics" not in caplog.text
    clock.advance(60)
    await run(generator)
    (line,) = [each.getMessage() for each in caplog.records if "signal_metrics" in each.getMessage()]
    for name in ("generated=1", "deduplicated=1", "lock_acquired=2", "lock_contention=0", "dead_lettered=0"):
        assert f"signals.{name}" in line
    assert "signals.latency_ms.p50=" in line
    assert "signals.latency_ms.p99=" in line
    text = generator.metrics.prometheus()
    assert "signals_generated_total 1\n" in text
    assert 'signals_latency_ms{quantile="0.99"}' in text


async def test_the_three_alert_rules(build: Any, written: Written) -> None:
    alerts: list[tuple[str, bool]] = []
    breaker = Breaker("store", threshold=1, on=StoreUnavailable)
    written.fails = {"ann": 4}
    generator = build(
        made("ann"), written, breaker=breaker, on_alert=lambda alert: alerts.append((alert.name, alert.firing))
    )
    await run(generator)
    generator.report()
    assert alerts == [("dead_lettered", True)]
    for _ in range(2):
        generator.report()
    assert alerts[1:] == [("dead_lettered", False)]
    for outcome in ("generated", *["contended"] * 10):
        generator.metrics.record(GroupResult(SignalGroup(*GROUP), outcome))  # type: ignore[arg-type]
    breaker.judge(breaker.admit(), False)
    generator.report()
    assert alerts[2:] == [("lock_contention", True), ("breaker", True)]
    for _ in range(10):
        generator.metrics.record(GroupResult(SignalGroup(*GROUP)))
    generator.report()
    assert alerts[4:] == [("lock_contention", False)]


def test_half_of_the_attempts_or_a_few_of_them_are_no_alert() -> None:
    with IdempotentSignalGenerator(made(), print, "memory://") as generator:
        for outcome in ["generated", "contended"] * 10:
            generator.metrics.record(GroupResult(SignalGroup(*GROUP), outcome))  # type: ignore[arg-type]
        assert generator.report() == []
        generator.metrics.record(GroupResult(SignalGroup(*GROUP), "contended"))
        assert generator.report() == []


def test_ids_are_object_ids_that_sort_by_time_and_differ_by_credential() -> None:
    first, second = signal_id("a", 1_800_000_000_000_001), signal_id("a", 1_800_000_000_900_000)
    assert len(first) == len(fresh_id()) == 24
    assert first < second
    assert signal_id("a", 7) == signal_id("a", 7) != signal_id("b", 7)
