"""The running prober: its parts, how they are assembled, started and stopped. Handlers are built on this."""

from __future__ import annotations

from ...kit import Application
from .checks import Checker
from .figures import LATE, TARGETS
from .history import ANNOUNCING, ProbeHistory, TargetState, Turn
from .model import DOWN, PENDING
from .mutex import ProbeMutex
from .prober import Prober
from .runner import Runner
from .settings import ProbesSettings
from .targets import Targets

_PATIENCE = 1.0  # seconds that a caller waits for a slot: Prometheus has ten, and other callers a retry


class ProbesRuntime(Application[ProbesSettings]):
    """The prober of one worker, without its routes."""

    checker: Checker
    asked: Checker
    mutex: ProbeMutex
    prober: Prober
    on_demand: Prober  # of what callers ask for: with connections, resolvers and slots of its own
    history: ProbeHistory
    targets: Targets
    runner: Runner

    async def start(self) -> None:
        """Assembles the parts, and starts to probe."""
        given, service = self.settings, self.service
        self.checker = Checker(guard_allow=given.guard_allow, ca_file=given.ca_file, at_once=given.at_once)
        self.mutex = ProbeMutex(
            self.once,
            lock_timeout=given.lock_timeout,
            backoff=given.backoff,
            jitter=given.jitter,
            retries=given.lock_retries,
        )
        self.prober = Prober(self.mutex, self.checker, at_once=given.at_once)
        most = given.on_demand_at_once
        self.asked = Checker(guard_allow=given.guard_allow, ca_file=given.ca_file, at_once=most)
        self.on_demand = Prober(self.mutex, self.asked, at_once=most, patience=_PATIENCE, scheduled=False)
        self.history = ProbeHistory(
            service.data, on_late=lambda: service.metrics.count(LATE), on_drop=self.count_dropped
        )
        self.targets = Targets(service.data, given.targets)
        self.runner = Runner(self.once, self.prober, self.on_demand, self.history, service.metrics, given.lock_timeout)
        service.metrics.gauge(TARGETS, lambda: float(self.runner.running))
        await self.follow()

    async def stop(self) -> None:
        """Waits for the probes that are running, and writes their results."""
        await self.runner.stop()
        await self.checker.close()
        await self.asked.close()
        await self.record()

    async def follow(self) -> None:
        """Probes what is due by the targets, pauses and windows that all workers share."""
        await self.targets.refresh()
        self.runner.follow(self.targets.due())

    async def record(self) -> None:
        """Writes the results, and announces what went down or came back."""
        for turn in await self.history.flush():
            await self.notify(turn)

    async def make_up(self) -> None:
        """Announces what another worker should have announced before it died."""
        for turn in await self.history.unannounced():
            await self.notify(turn)

    async def notify(self, turn: Turn) -> None:
        """Announces that the target is down, or that it is no longer. That it is down is not announced while it is not
        to be probed: a probe that had begun before may end then."""
        target, down = self.targets.find(turn.target), turn.state == DOWN
        if target is None or (down and not self.targets.is_due(turn.target)):
            return
        await self.history.announcing(turn)
        await self.announce(
            "Target down",
            fingerprint=target.name,
            severity=target.severity,
            summary=f"{target.shown} is down: {turn.error}" if down else f"{target.shown} is {turn.state.lower()}",
            labels={"target": target.name},
            status="firing" if down else "resolved",
        )
        await self.history.announced(turn)

    async def settle_down(self, name: str) -> None:
        """Resets the state of a target that is not probed any more, and resolves its announcement."""
        known: TargetState | None = (await self.history.states()).get(name)
        await self.history.restart(name)
        if known is not None and known.announced in (DOWN, ANNOUNCING):
            await self.notify(Turn(name, PENDING, known.state, known.announced, ""))
