"""A replica of a schedule whose flows a test performs step by step: on the clock of the store, which the test moves,
and on a local clock of its own, which is set wrongly and runs at its own rate."""

from __future__ import annotations

from typing import Any, TypeVar

from solely.errors import StoreError
from solely.flow import Ask, Flow
from solely.leases.hold import Hold
from solely.ops import Op, Renew
from solely.owner import fresh_owner
from solely.schedules import flow
from solely.schedules.calls import plan_of
from solely.schedules.state import DueTick, ReplicaState, RunReport
from solely.stores import Store
from solely.testing.clock import ManualClock

T = TypeVar("T")


class Replica:
    """One process. `ops` counts what it sent."""

    def __init__(
        self,
        store: Store,
        clock: ManualClock,
        *,
        when: str | float = 60.0,
        name: str = "s",
        misfire: str = "skip",
        ttl: float = 30.0,
        tz: str = "UTC",
        jitter: float = 0.0,
        skew: float = 0.0,
        rate: float = 1.0,
    ) -> None:
        self.plan = plan_of(name, when, tz, jitter, misfire, ttl)
        self.known = ReplicaState()
        self.ops = 0
        self.sent = self.arrived = 0.0
        self.doubtful = False
        self._store, self._clock, self._skew, self._rate = store, clock, skew, rate

    def now(self) -> float:
        """Its own clock: of a machine that booted at another time, or is set wrongly."""
        return 1_000.0 + self._skew + (self._clock() - 1_800_000_000.0) * self._rate

    def fresh_owner(self) -> str:
        return fresh_owner()

    def perform(self, work: Flow[T]) -> T:
        """The result of the flow, performed on this replica's store."""
        step: Any = work.send
        argument: Any = None
        try:
            while True:
                request = step(argument)
                step, argument = work.send, self._reply(request)
                if isinstance(argument, StoreError):
                    step = work.throw
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return] # of the flow

    def _reply(self, request: Any) -> Any:
        if request is Ask.RUN:
            return self
        if request is Ask.NOW:
            return self.now()
        ops: list[Op] = request if isinstance(request, list) else [request]
        self.ops += len(ops)
        self.sent = self.now()
        replies = self._store.perform(ops)
        return replies if isinstance(request, list) else replies[0]

    def attempt(self) -> DueTick | float:
        """The due tick, or the seconds after which to ask again."""
        return self.perform(flow.attempt(self.plan, self.known, ""))

    def finish(self, due: DueTick, outcome: str = "") -> RunReport | None:
        """Ends the tick."""
        return self.perform(flow.finish(self.plan, self.known, due, outcome, "here"))

    def give_back(self, due: DueTick) -> None:
        """Ends the tick without its work."""
        self.perform(flow.give_back(self.plan, due.hold))

    def renew(self, hold: Hold) -> None:
        """Extends the hold, as a client does at half its ttl."""
        self.perform(_renewed(hold))

    def run(self) -> int:
        """The tick that it ran to its end; 0 if none was due for it."""
        due = self.attempt()
        if not isinstance(due, DueTick):
            return 0
        assert self.finish(due) is not None
        return due.tick


def _renewed(hold: Hold) -> Flow[None]:
    entry = yield Renew(hold.key, hold.owner, hold.ttl)
    assert entry.owner == hold.owner
