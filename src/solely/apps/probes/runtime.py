"""The running prober: its parts, how they are assembled, started and stopped. Handlers are built on this."""

from __future__ import annotations

from ...kit import Application
from .checks import Checker
from .figures import LATE, TARGETS
from .history import ProbeHistory, TargetState, Turn
from .model import DOWN, PENDING
from .mutex import ProbeMutex
from .prober import Prober
from .runner import Runner
from .settings import ProbesSettings
from .targets import Targets


class ProbesRuntime(Application[ProbesSettings]):
    """The prober of one worker, without its routes."""

    checker: Checker
    mutex: ProbeMutex
    prober: Prober
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
        self.prober = Prober(self.mutex, self.checker)
        self.history = ProbeHistory(
            service.data, on_late=lambda: service.metrics.count(LATE), on_drop=self.count_dropped
        )
        self.targets = Targets(service.data, given.targets)
        self.runner = Runner(self.once, self.prober, self.history, service.metrics, given.lock_timeout)
        service.metrics.gauge(TARGETS, lambda: float(self.runner.running))
        await self.follow()

    async def stop(self) -> None:
        """Waits for the probes that are running, and writes their results."""
        await self.runner.stop()
        await self.checker.close()
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
        """Announces that the target is down, or that it is no longer."""
        target = self.targets.find(turn.target)
        if target is None:
            return
        down = turn.state == DOWN
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
        if known is not None and known.announced == DOWN:
            await self.notify(Turn(name, PENDING, known.state, DOWN, ""))
