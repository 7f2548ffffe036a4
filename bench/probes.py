"""Probes: how many targets one worker probes, how late, and what a probe costs the store.

This process runs everything that a worker of the service has, with its history and jobs, on a loop of the same kind;
the store is a real one, and the targets are a server on loopback. Each target is probed every second, each probe on a
connection of its own and under its mutex.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any, NamedTuple
from unittest.mock import patch

from solely.apps.probes.app import ProbesApp
from solely.apps.probes.history import Beat
from solely.apps.probes.model import ProbeResult, ProbeTarget
from solely.apps.probes.settings import ProbesSettings
from solely.ops import Op
from solely.service.mount import mount
from solely.service.service import Service
from solely.service.settings import Settings

from .alerts import WorkerLoop, logged
from .harness import Case, Effort, Figures, Goal, Place, pin, valkey

CROWD = 800  # targets that are due every second: more than the goal
CALM = 200  # targets at which lateness is measured
WARM_UP = 2  # results of every target before the first measurement: a new schedule costs more than a known one
LONGEST = 60.0  # seconds for that
SPAN = 4.0  # seconds of one measurement: as many rounds of all targets


class Probed(NamedTuple):
    """What one measurement counted."""

    per_s: float
    lateness: list[float]
    ops_per_probe: float


@contextmanager
def _site(place: Place) -> Iterator[int]:
    """The port of the server that is probed."""
    with subprocess.Popen([sys.executable, "-m", "bench.bare_site"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pin(process.pid, 1 if place is Place.APART else 0)
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@asynccontextmanager
async def _app(settings: Settings) -> AsyncIterator[ProbesApp]:
    service = Service(settings)
    mount(service)
    await service.open()
    app = service.apps["probes"]
    assert isinstance(app, ProbesApp)
    yield app
    await service.close()


async def _measure(app: ProbesApp) -> Probed:
    """Counts the results of probes, all of which must have passed, and the ops that the store performed."""
    results, ops = list[ProbeResult](), 0
    metrics = app.service.metrics
    record, report = app.history.add, metrics.performed

    def recorded(target: ProbeTarget, result: ProbeResult) -> None:
        results.append(result)
        record(target, result)

    def performed(given: Sequence[Op], *rest: Any) -> None:
        nonlocal ops
        ops += len(given)
        report(given, *rest)

    began = perf_counter()
    with patch.object(app.history, "add", recorded), patch.object(metrics, "performed", performed):
        await asyncio.sleep(SPAN)
    took = perf_counter() - began
    assert results, "nothing was probed"
    assert all(each.passed for each in results), next(each.error for each in results if not each.passed)
    lateness = [each.at - each.due for each in results if each.due is not None]
    return Probed(len(results) / took, lateness, ops / len(results))


async def _warm_up(app: ProbesApp) -> None:
    """Returns when every target was probed a few times."""
    async with asyncio.timeout(LONGEST):
        found: dict[str, list[Beat]] = {}
        while min((len(each) for each in found.values()), default=0) < WARM_UP:
            found = await app.history.bars(WARM_UP, [*app.targets.all])
            await asyncio.sleep(0.2)


def _run(place: Place, effort: Effort, targets: int) -> list[Probed]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server, port = stack.enter_context(valkey(place)), stack.enter_context(_site(place))
        wanted = [ProbeTarget(name=f"t{n}", url=f"http://127.0.0.1:{port}/{n}", interval=1.0) for n in range(targets)]
        section = ProbesSettings(targets=tuple(wanted), guard_allow=("127.0.0.0/8",), at_once=1000)
        settings = Settings(
            url=server.url, data_url=f"sqlite:///{folder}/data.db", apps=("probes",), sections={"probes": section}
        )
        stack.enter_context(logged(settings, folder / "log"))
        loop = stack.enter_context(WorkerLoop())
        app = loop.enter(_app(settings))
        loop.run(_warm_up(app))
        return [loop.run(_measure(app)) for _ in range(effort.repetitions)]


def _due(place: Place, effort: Effort) -> Figures:
    return {"probes.due_per_s": [each.per_s for each in _run(place, effort, CROWD)]}


def _calm(place: Place, effort: Effort) -> Figures:
    measured = _run(place, effort, CALM)
    return {
        "probes.lateness_p99_ms": [quantiles(each.lateness, n=100)[-1] * 1000 for each in measured],
        "probes.store_ops_per_probe": [each.ops_per_probe for each in measured],
    }


CASES = [
    Case([Goal("probes.due_per_s", 500, f"{CROWD} targets, due every second")], Place.APART, _due),
    Case(
        [
            Goal("probes.lateness_p99_ms", 250, f"{CALM} targets, due every second", at_most=True),
            Goal("probes.store_ops_per_probe", 4, "schedule and mutex", at_most=True),
        ],
        Place.APART,
        _calm,
    ),
]
