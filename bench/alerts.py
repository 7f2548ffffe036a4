"""Alerts: how long the alert receiver takes for an alert under load, and how much memory it keeps.

This process runs everything that a worker of the service has, with its outbox, history and jobs, on a loop of the same
kind and a real store; its publisher is the log, which goes to a file. The alerts of a burst arrive at once, each from
its own task, and each outcome is checked: one alert per fingerprint is published, all others are suppressed.

A latency is that of the decision: from the reservation to its reply and, if it is granted, to its record. `told_100` is
the complete path of a published alert: it also reads acknowledgements, and goes through the outbox to the log.
"""

import asyncio
import gc
import logging
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, redirect_stderr
from functools import partial
from itertools import count
from pathlib import Path
from statistics import mean, quantiles
from time import perf_counter
from typing import Any, NamedTuple, Self

import uvloop

from solely.apps.alerts.app import AlertsApp
from solely.apps.alerts.model import Alert
from solely.apps.alerts.receiver import AlertReceiver
from solely.service import logs
from solely.service.mount import mount
from solely.service.service import Service
from solely.service.settings import Settings
from tests.postgres_server import Postgres
from tests.servers import Valkey

from .harness import Case, Effort, Figures, Goal, Place, Skipped, interleave, valkey
from .postgres import postgres
from .workers import Loop

SERVERS: dict[str, Callable[[Place], AbstractContextManager[Valkey | Postgres]]] = {
    "postgres": postgres,
    "redis": valkey,
}
BURST = 100  # alerts at once
TOLD = "told_100"
MIXED, FINGERPRINTS = 1_000, 20  # alerts at once, of so many fingerprints
RESERVERS, RESERVES = 20, 100  # tasks, and reservations of each, per repetition
KEPT = 1_000  # reservations after which memory is measured
ALERT = {"name": "CPU high", "severity": "critical", "source": "bench", "labels": {"host": "web-1", "job": "node"}}


def _alert(fingerprint: str) -> Alert:
    return Alert(**ALERT, fingerprint=fingerprint)  # type: ignore[arg-type]


# -- in this process


class WorkerLoop(Loop):
    """An event loop of the kind on which the service's workers run."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        return self


@contextmanager
def _worker(store: str, place: Place) -> Iterator[tuple[WorkerLoop, AlertsApp]]:
    """The alert receiver of one worker, on a loop of this process."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(SERVERS[store](place))
        settings = Settings(url=server.url, data_url=data_url(server, folder), apps=("alerts",))
        stack.enter_context(logged(settings, folder / "log"))
        loop = stack.enter_context(WorkerLoop())
        yield loop, loop.enter(_app(settings))


def data_url(server: Valkey | Postgres, folder: Path) -> str:
    """Returns where the history is stored: in the same PostgreSQL, or for Redis in a SQLite file."""
    return server.url if isinstance(server, Postgres) else f"sqlite:///{folder}/data.db"


@contextmanager
def logged(settings: Settings, file: Path) -> Iterator[None]:
    """Writes the log to the file, in the service's format."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    with file.open("w") as log:
        with redirect_stderr(log):
            logs.configure(settings)
        try:
            yield
        finally:
            root.handlers[:] = before[0]
            root.setLevel(before[1])


@asynccontextmanager
async def _app(settings: Settings) -> AsyncIterator[AlertsApp]:
    service = Service(settings)
    mount(service)
    await service.open()
    app = service.apps["alerts"]
    assert isinstance(app, AlertsApp)
    yield app
    await service.close()


Done = Callable[[AlertReceiver, Alert], Coroutine[Any, Any, str]]


class Burst(NamedTuple):
    """How long each alert took, and all of them together, in seconds."""

    each: list[float]
    total: float


async def _decided(receiver: AlertReceiver, alert: Alert) -> str:
    """Reserves the notification and, if granted, records it as sent."""
    hold = await receiver._reserve(receiver._notification(alert))
    if hold:
        await hold.record()
    return "published" if hold else "suppressed"


async def _received(receiver: AlertReceiver, alert: Alert) -> str:
    """The complete path of an alert."""
    return (await receiver.receive(alert)).outcome


async def _at_once(receiver: AlertReceiver, fingerprints: Sequence[str], done: Done = _received) -> Burst:
    """Sends all alerts at the same time; exactly one of each fingerprint must be published."""

    async def one(fingerprint: str) -> tuple[float, str]:
        begun = perf_counter()
        outcome = await done(receiver, _alert(fingerprint))
        return perf_counter() - begun, outcome

    begun = perf_counter()
    results = await asyncio.gather(*map(one, fingerprints))
    total = perf_counter() - begun
    different = len(set(fingerprints))
    outcomes = Counter(outcome for _, outcome in results)
    assert outcomes == +Counter(published=different, suppressed=len(results) - different), outcomes
    return Burst([took for took, _ in results], total)


def _bursts(store: str, place: Place, effort: Effort) -> Figures:
    sizes = {"single_fp_100": (BURST, 1), "lowcontention_100": (BURST, BURST), "mixed_1000_20": (MIXED, FINGERPRINTS)}
    numbers = count()
    with _worker(store, place) as (loop, app):

        def burst(done: Done, alerts: int, different: int) -> Burst:
            turn = next(numbers)
            return loop.run(_at_once(app.receiver, [f"{turn}-{number % different}" for number in range(alerts)], done))

        sides = {name: partial(burst, _decided, *size) for name, size in sizes.items()}
        measured = interleave(sides | {TOLD: partial(burst, _received, BURST, BURST)}, effort.repetitions)
    figures: Figures = {f"alerts.{store}.{TOLD}.per_s": [BURST / each.total for each in measured.pop(TOLD)]}
    for name, bursts in measured.items():
        key = f"alerts.{store}.{name}"
        figures[f"{key}.avg_ms"] = [mean(each.each) * 1000 for each in bursts]
        figures[f"{key}.p95_ms"] = [quantiles(each.each, n=20)[-1] * 1000 for each in bursts]
        figures[f"{key}.total_s"] = [each.total for each in bursts]
    return figures


async def _reserve(receiver: AlertReceiver, numbers: "count[int]") -> list[float]:
    """Returns how long each reservation took; all fingerprints are new, so every one is granted."""
    took: list[float] = []

    async def reserver() -> None:
        for _ in range(RESERVES):
            alert = _alert(f"reserve-{next(numbers)}")
            notification = receiver._notification(alert)
            begun = perf_counter()
            hold = await receiver._reserve(notification)
            took.append(perf_counter() - begun)
            assert hold
            await hold.record()

    await asyncio.gather(*(reserver() for _ in range(RESERVERS)))
    return took


def _reserves(store: str, place: Place, effort: Effort) -> Figures:
    numbers = count()
    with _worker(store, place) as (loop, app):

        def hundredths() -> list[float]:
            return quantiles(loop.run(_reserve(app.receiver, numbers)), n=100)

        measured = interleave({"reserve": hundredths}, effort.repetitions)["reserve"]
    return {
        f"alerts.{store}.reserve_p95_ms": [each[94] * 1000 for each in measured],
        f"alerts.{store}.reserve_p99_ms": [each[98] * 1000 for each in measured],
    }


def _growth(store: str, place: Place, effort: Effort) -> Figures:
    numbers = count()

    async def thousand(app: AlertsApp) -> None:
        for _ in range(KEPT // BURST):
            await _at_once(app.receiver, [f"growth-{next(numbers)}" for _ in range(BURST)])
        await app.history.flush()

    with _worker(store, place) as (loop, app):

        def megabytes() -> float:
            before = _resident()
            loop.run(thousand(app))
            gc.collect()
            return (_resident() - before) / 1e6

        return {f"alerts.{store}.growth_1000_mb": interleave({"growth": megabytes}, effort.repetitions)["growth"]}


def _resident() -> int:
    """Returns the resident memory of this process in bytes."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        raise Skipped("this system does not report the memory of a process")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cases(store: str) -> list[Case]:
    key = f"alerts.{store}"
    alike = "100 alerts at once, one fingerprint: ms each, or s in all"
    unlike = "100 alerts at once, a fingerprint each: ms each, or s in all"
    mixed = "1,000 alerts at once, 20 fingerprints: ms each, or s in all"
    reserve = "ms of a granted reservation, 20 tasks"
    bursts = [
        Goal(f"{key}.single_fp_100.avg_ms", 100.0, alike, at_most=True),
        Goal(f"{key}.single_fp_100.p95_ms", 100.0, alike, at_most=True),
        Goal(f"{key}.single_fp_100.total_s", 10.0, alike, at_most=True),
        Goal(f"{key}.lowcontention_100.avg_ms", 50.0, unlike, at_most=True),
        Goal(f"{key}.lowcontention_100.total_s", 5.0, unlike, at_most=True),
        Goal(f"{key}.mixed_1000_20.avg_ms", 100.0, mixed, at_most=True),
        Goal(f"{key}.mixed_1000_20.total_s", 30.0, mixed, at_most=True),
        Goal(
            f"{key}.{TOLD}.per_s",
            0.0,
            "100 alerts at once, a fingerprint each: published per second, the complete path",
        ),
    ]
    reserves = [
        Goal(f"{key}.reserve_p95_ms", 20.0, reserve, at_most=True),
        Goal(f"{key}.reserve_p99_ms", 50.0, reserve, at_most=True),
    ]
    growth = Goal(f"{key}.growth_1000_mb", 10.0, "MB by which 1,000 published alerts grow the process", at_most=True)
    return [
        Case(bursts, Place.APART, partial(_bursts, store)),
        Case(reserves, Place.APART, partial(_reserves, store)),
        Case([growth], Place.APART, partial(_growth, store)),
    ]


CASES = [case for store in SERVERS for case in _cases(store)]
