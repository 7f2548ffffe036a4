"""The running service half: the generator of this worker, its table, its flag, and the alert rules."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, NamedTuple

import msgspec
import structlog

from ... import Breaker, Circuit, SolelyError, StoreUnavailable
from ...kit import Application, Journal, Notes, reserved
from . import figures
from .generator import AsyncIdempotentSignalGenerator
from .metrics import ABOUT, FEWEST, MOST_CONTENTION
from .model import LETTERS, GroupResult, SignalGroup, SignalOptions
from .settings import SignalsSettings
from .table import SignalTable

log = structlog.get_logger("solely.signals")

MINUTE = 60
LATELY = 5 * MINUTE  # over which contention is judged
FLAG = "off"  # the name of the note
_FAR = 10 * 365 * 86_400.0  # seconds that the flag and firing alerts are remembered: until somebody changes them


class SwitchedOff(msgspec.Struct):
    """Who switched idempotent signals off, and why."""

    by: str
    reason: str


class FiringRule(msgspec.Struct):
    """A rule whose alert is announced."""

    since: float


class PostedSignal(NamedTuple):
    """A signal of a batch, with what it belongs to."""

    group: SignalGroup
    username: str
    signal: dict[str, Any]
    place: int = 0  # in its batch, which consumers read in this order


class SignalsRuntime(Application[SignalsSettings]):
    """The service half of one worker, without its routes and jobs."""

    table: SignalTable
    minutes: Journal
    generator: AsyncIdempotentSignalGenerator
    flag: Notes[SwitchedOff]
    firing: Notes[FiringRule]
    _breaker_fires = False

    async def start(self) -> None:
        """Assembles the parts, and reads the flag."""
        settings = self.settings
        self.table = SignalTable(self.queries)
        self.minutes = self.journal(
            "count", order=("minute", "house", "game"), forget="forget_minutes", keep=settings.retention
        )
        self.flag = Notes(self.once, reserved(self.name, "flag"), SwitchedOff)
        self.firing = Notes(self.once, reserved(self.name, "firing"), FiringRule)
        self.generator = AsyncIdempotentSignalGenerator(
            _posted, self._write, self.once, breaker=self._breaker(), options=self._options()
        )
        self.service.dashboard.replays[self.own(LETTERS)] = self.generator.write_letter
        self.service.metrics.gauge(figures.BREAKER, lambda: float(self._breaker_is_open()))
        try:
            await self.read_flag()
        except SolelyError as error:  # the job reads it as soon as the store answers; until then duplicates are refused
            log.warning("signal_flag_not_read", error=str(error))

    def _breaker(self) -> Breaker:
        settings = self.settings
        return Breaker(
            "signals",
            threshold=settings.breaker_failures,
            cooldown=settings.breaker_cooldown,
            on=StoreUnavailable,
        )

    def _options(self) -> SignalOptions:
        settings = self.settings
        return SignalOptions(
            username=lambda posted: posted.username,
            ttl=settings.ttl,
            window=settings.window,
            cache_size=settings.cache_size,
            on_outage=settings.on_outage,
            report_every=0.0,  # a job reports
            dump=lambda posted: posted.signal,
            load=_posted_before,
            own=self.own,
        )

    async def _write(self, posted: PostedSignal, id: str) -> bool:
        return await self.table.write(*posted, id)

    # -- batches

    async def receive(self, batch: list[PostedSignal], group: SignalGroup) -> GroupResult:
        """What became of the batch, which is counted; raises StoreUnavailable if the store is unreachable."""
        try:
            result = await self.generator.generate_group(group, batch)
        except StoreUnavailable:
            self.service.metrics.count(figures.REFUSED)
            raise
        self._count(result)
        return result

    def _count(self, result: GroupResult) -> None:
        metrics, outcome = self.service.metrics, result.outcome
        counted = ((figures.GENERATED, result.generated), (figures.DEDUPLICATED, result.deduplicated))
        for figure, times in (*counted, (figures.DEAD_LETTERED, result.dead_lettered)):
            for _ in range(times):
                metrics.count(figure)
        if outcome == "generated":
            metrics.count(figures.LOCK_ACQUIRED)
            metrics.observe(figures.SECONDS, result.seconds)
        elif outcome == "contended":
            metrics.count(figures.LOCK_CONTENTION)
        else:
            metrics.count(figures.UNPROTECTED, outcome)
        self._count_minute(result)

    def _count_minute(self, result: GroupResult) -> None:
        minute, group = int(time.time()) // MINUTE * MINUTE, result.group
        sums = {name: getattr(result, name) for name in ("generated", "deduplicated", "dead_lettered", "seconds")}
        sums |= {"acquired": result.outcome == "generated", "contended": result.outcome == "contended"}
        self.minutes.count(
            (minute, *group), lambda: {"minute": minute, "house": group.house, "game": group.game}, **sums
        )

    # -- the flag

    async def read_flag(self) -> None:
        """Applies the flag that all workers share; the setting can only switch off."""
        switched_off = await self.flag.read(FLAG)
        self.generator.use_idempotent_signals = self.settings.use_idempotent_signals and switched_off is None

    async def switch(self, off: SwitchedOff | None) -> bool:
        """Switches idempotent signals off, or on again (None); False if they were so already."""
        before = await self.flag.change(FLAG, lambda now: (now or off) if off else None, time.time() + _FAR)
        await self.read_flag()
        return (before is None) == (off is not None)

    # -- reports

    async def report(self) -> None:
        """Writes the metrics to the log, and announces the rules that began or ceased to apply."""
        log.info("signal_metrics", metrics=self.generator.metrics.line())
        await self._announce_breaker()
        try:
            await self._judge("dead_lettered", bool(await self.once.dead_letters(self.own(LETTERS)).list(limit=1)))
            await self._judge("lock_contention", await self._is_contended())
        except SolelyError as error:  # the breaker's alert says it, once requests fail as well
            log.warning("signal_rules_not_applied", error=str(error))

    async def _is_contended(self) -> bool:
        row = await self.queries.row("contention", since=int(time.time()) - LATELY) or {}
        attempts = row["acquired"] + row["contended"]
        return bool(attempts >= FEWEST and row["contended"] / attempts > MOST_CONTENTION)

    async def _judge(self, rule: str, applies: bool) -> None:
        """Announces a change of a rule that all workers judge alike; one of them announces it."""
        now = FiringRule(time.time())
        before = await self.firing.change(rule, lambda known: (known or now) if applies else None, now.since + _FAR)
        if (before is not None) != applies:
            await self._announce(rule, rule, applies)

    async def _announce_breaker(self) -> None:
        """Announces a change of this worker's breaker: it needs no store to do so."""
        if self._breaker_is_open() != self._breaker_fires:
            self._breaker_fires = not self._breaker_fires
            await self._announce("breaker", f"breaker/{socket.gethostname()}/{os.getpid()}", self._breaker_fires)

    def _breaker_is_open(self) -> bool:
        return self.generator.breaker.state() is not Circuit.CLOSED

    async def _announce(self, rule: str, fingerprint: str, applies: bool) -> None:
        await self.announce(
            f"signals.{rule}",
            fingerprint=fingerprint,
            severity="critical" if rule == "breaker" else "warning",
            summary=ABOUT[rule],
            status="firing" if applies else "resolved",
        )


def _posted_before(payload: dict[str, Any]) -> PostedSignal:
    """The signal of a dead letter."""
    return PostedSignal(SignalGroup(payload["house"], payload["game"]), payload["username"], payload["signal"])


def _posted(group: SignalGroup, batch: list[PostedSignal]) -> list[PostedSignal]:
    """The wrapped generator: a producer has made the signals already."""
    return batch
