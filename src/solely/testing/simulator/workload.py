"""What the simulated clients do: scripts that lock, work, renew, let go, mark, clear, and are cancelled meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core import Core
from ...drivers.simulated import Run, SimulatedDriver
from ...events import Event, Renewed
from ...flows.hold import Hold
from ...flows.lock import Terms
from ...flows.renewal import keep_renewing, keep_watching
from ...flows.requests import Flow
from ...holder import Signature
from ...lease import LeaseFace
from ...model import Entry, Released, State
from ...ops import Clear, Read
from ...rules import COMPENSATE, REMEMBER

if TYPE_CHECKING:
    from .world import World

_TTLS = (1.0, 1.0, 2.0, 5.0, 10.0)
_WAITS = (0.0, 0.3, 3.0, 3.0, 12.0)  # the longest is longer than any honest hand-over takes
_DELAYS = (0.0, 0.0, 0.0, 0.5)
_MARK_TTLS = (1.0, 10.0, 3600.0)


class Cancelled(BaseException):
    """What a simulated caller is interrupted with."""


class Doing(NamedTuple):
    """A flow that a script wants performed; the script is sent the Run once it is over."""

    flow: Flow[Any]
    wait: float = 0.0
    key: str = ""  # that it waits for


Script = Generator[Doing | float, Any, None]  # a float is a sleep


class SimulatedLease(LeaseFace):
    """A lease in the hands of a script."""

    def __init__(self, hold: Hold) -> None:
        self._hold, self._since = hold, hold.sent

    def __repr__(self) -> str:
        return f"lease of {self._hold.key} under {self._hold.fence}"


class Task:
    """A thread or task of a client: performs a script, one thing after the other."""

    __slots__ = ("_began", "_doing", "_paused", "_script", "client", "over", "run")

    def __init__(self, client: SimulatedClient, script: Script) -> None:
        self.client = client
        self.over = False
        self.run: Run | None = None
        self._script = script
        self._doing: Doing | None = None
        self._began = self._paused = 0.0

    def go_on(self, value: Any = None) -> None:
        """The script's next step."""
        try:
            wish = self._script.send(value)
        except StopIteration:
            self.over = True
            self.client.world.perhaps_close()
            return
        driver = self.client.driver
        if type(wish) is float:
            driver.after(wish, self.go_on)
            return
        assert isinstance(wish, Doing)
        self._doing, self._began, self._paused = wish, driver.timeline.now, driver.paused
        self.run = run = driver.run(wish.flow, self._done)
        if self._waits():
            self.client.world.waiting.begins(wish.key, run)
        if self.client.chance() < self.client.world.manners.cancel:
            driver.after(self.client.chance() * (wish.wait or 0.02), run.cancel, Cancelled())

    def _waits(self) -> bool:
        """True for a flow whose wait is measured. Where a client also takes several keys at once, such a flow may stand
        behind one that has this key already and waits for another."""
        doing = self._doing
        return doing is not None and bool(doing.key) and doing.wait > 0 and not self.client.takes_several

    def _done(self, run: Run) -> None:
        world, driver, doing = self.client.world, self.client.driver, self._doing
        assert doing is not None
        world.history.note(driver.name, run.owner, "was told", repr(run.error) if run.error else run.result)
        if self._waits():
            world.waiting.ends(doing.key, run)
        took = driver.timeline.now - self._began - (driver.paused - self._paused)
        if took > doing.wait * 1.02 + 4 * driver.timeout + 2 * COMPENSATE:
            world.history.violated("no hang", f"a flow that may wait {doing.wait} s took {took:.3f} s: {doing.flow}")
        self.go_on(run)


class Unsigned(Signature):
    """Says nothing of this process or its clock: the same seed gives the same history anywhere."""

    def info(self, purpose: str = "") -> str:
        return purpose


class SimulatedClient:
    """One process: its driver, its leases with their keepers, and its tasks."""

    def __init__(self, world: World, driver: SimulatedDriver, tasks: int) -> None:
        self.world = world
        self.driver = driver
        self.chance = world.chance.random
        self.core = Core(
            self,  # type: ignore[arg-type]  # asked only for what goes into terms, which the scripts make themselves
            ring=driver.lines.tell,
            hook=self._told,
            cache=None,
            start_keeping=self._start_keeping,
            signature=Unsigned,
        )
        self.takes_several = self.chance() < world.manners.several
        self.keepers: list[Run] = []
        self._relied_on: dict[int, Hold] = {}
        self.tasks = [Task(self, self._script()) for _ in range(tasks)]
        for task in self.tasks:
            driver.after(self.chance() * 0.05, task.go_on)

    def _start_keeping(self) -> None:
        for loop in (keep_renewing, keep_watching):
            self.keepers.append(self.driver.run(loop(self.core.book), self._keeper_ended))

    def _keeper_ended(self, run: Run) -> None:
        if run.error is not None or not self.core.book.closed:
            self.world.history.violated("renewal never dies", f"a keeper of {self.driver.name} ended: {run.error!r}")

    def _told(self, event: Event) -> None:
        if type(event) is Renewed and event.fence in self._relied_on:
            self.world.beliefs.extended(self._relied_on[event.fence])

    def pick(self, values: Any) -> Any:
        """One of them, by chance."""
        return values[int(self.chance() * len(values))]

    def _script(self) -> Script:
        while self.world.goes_on():
            chance = self.chance()
            for share, action in _ACTIONS:
                if chance < share:
                    yield from action(self)
                    break
                chance -= share
            yield self.chance() * 0.4
            self.world.trouble(self)

    # -- locks

    def _terms(self, wait: float) -> Terms:
        return Terms(self.pick(_TTLS), wait, self.pick(_DELAYS), self.driver.name)

    def _lease(self, hold: Hold) -> SimulatedLease:
        hold.keep(renew=self.chance() < 0.5, max_hold=3.0 if self.chance() < 0.2 else math.inf)
        return self.core.kept(SimulatedLease(hold))

    def lock(self) -> Script:
        """Takes one key, with or without waiting."""
        key, wait = self.pick(self.world.keys), self.pick(_WAITS)
        run: Run = yield Doing(self.core.taking(key, self._terms(wait), self._lease), wait, key)
        if run.error is None:
            yield from self._use([run.result])
        else:
            self._nothing_left(run, [key])

    def lock_all(self) -> Script:
        """Takes several keys, all or nothing."""
        if not self.takes_several:
            yield from self.lock()
            return
        keys = list(self.world.keys)
        self.world.chance.shuffle(keys)
        keys, wait = keys[:2], self.pick(_WAITS[1:])
        run: Run = yield Doing(self.core.taking_all(keys, self._terms(wait), self._lease), wait)
        if run.error is None:
            yield from self._use(run.result)
        else:
            self._nothing_left(run, keys)

    def _nothing_left(self, run: Run, keys: list[str]) -> None:
        """An attempt that failed leaves neither a hold nor a place in a queue, unless its undoing failed."""
        if run.undone:
            for key in keys:
                self.world.nothing_left(key, run)

    def _use(self, leases: list[SimulatedLease]) -> Script:
        for lease in leases:
            self._relied_on[lease.fence] = lease._hold
            self.world.beliefs.begins(self.driver, lease._hold)
        for _ in range(int(self.chance() * 4)):
            yield self.chance() * self.pick(self.world.manners.work)
            for lease in leases:
                self._write(lease._hold)
            self.world.trouble(self)
            if self.chance() < 0.5:
                yield Doing(self.core.renewing(leases[0], self.pick(_TTLS)))
        if self.chance() < 0.1 and len(leases) == 1:
            self._hand_over(leases[0])
        elif self.chance() < 0.9:
            yield from self._let_go(leases)
        else:
            for lease in leases:  # forgotten: it ends with its time
                self.core.drop(lease, "forgotten")
                self.world.beliefs.ends(lease._hold)

    def _write(self, hold: Hold) -> None:
        """Writes to the fenced resource, if it believes in its lease; the write arrives in its own time."""
        timeline = self.driver.timeline
        if not hold.how(self.driver.clock()):
            arrives = timeline.now + self.chance() ** 4
            timeline.at(arrives, self.world.beliefs.write, hold.key, hold.owner, hold.fence)

    def _let_go(self, leases: list[SimulatedLease]) -> Script:
        for lease in leases:
            self.world.beliefs.ends(lease._hold)
        for _ in range(2 if self.chance() < 0.1 else 1):
            if len(leases) == 1:
                run: Run = yield Doing(self.core.releasing(leases[0]))
            else:
                run = yield Doing(self.core.releasing_all(leases))
            if run.error is None:
                outcomes = run.result if len(leases) > 1 else [run.result]
                for lease, outcome in zip(leases, outcomes, strict=True):
                    self._check_outcome(lease._hold, outcome)

    def _check_outcome(self, hold: Hold, outcome: Released) -> None:
        held = self.world.truth.holds[hold.key, hold.owner]
        late = self.driver.clock() > hold.deadline + REMEMBER
        if not held.forgotten and outcome != held.ended and not (late and outcome is Released.UNKNOWN):
            self.world.history.violated(
                "right release answers", f"{hold.owner} was told {outcome!r}, but its hold was {held.ended}"
            )

    def _hand_over(self, lease: SimulatedLease) -> None:
        """Another client goes on with the lease, from its token."""
        token = lease.token
        self.core.drop(lease, "handed over")
        self.world.beliefs.ends(lease._hold)
        heir = self.pick(self.world.clients)
        if not heir.driver.dead:
            heir.tasks.append(Task(heir, heir._inherit(token)))
            heir.driver.after(self.chance() * 0.5, heir.tasks[-1].go_on)

    def _inherit(self, token: str) -> Script:
        run: Run = yield Doing(self.core.resuming(token, self._lease))
        if run.error is None:
            yield from self._use([run.result])

    # -- marks

    def first(self) -> Script:
        """Marks one key, or several at once."""
        keys = self.world.marks if self.chance() < 0.5 else [self.pick(self.world.marks)]
        ttl = self.pick(_MARK_TTLS)
        flow: Flow[Any] = self.core.first(keys[0], ttl) if len(keys) == 1 else self.core.first_many(keys, ttl)
        run: Run = yield Doing(flow)
        truth = self.world.truth
        answers = run.result if isinstance(run.result, list) else [run.result] * len(keys)
        for key, first in zip(keys, answers, strict=True):
            if run.error is None:
                truth.marks.told(key, run, first, truth.forgotten)
            else:
                truth.marks.failed(key, run, truth.now())

    def forget(self) -> Script:
        """Takes away the mark that is there."""
        yield Doing(self.core.forget(self.pick(self.world.marks)))

    # -- admin

    def clear(self) -> Script:
        """Removes what holds a key now; sometimes repeats that later, as an impatient admin does."""
        if not self.world.manners.clears:
            yield from self.lock()
            return
        key = self.pick(self.world.keys)
        run: Run = yield Doing(_one(Read(key)))
        entry: Entry = run.result
        if run.error is not None or entry.state is not State.HELD:
            return
        for _ in range(2 if self.chance() < 0.4 else 1):
            yield Doing(_one(Clear(key, entry.fence, "stuck")))
            yield self.chance()


def _one(op: Read | Clear) -> Flow[Any]:
    return (yield op)


_ACTIONS: tuple[tuple[float, Callable[[SimulatedClient], Script]], ...] = (
    (0.30, SimulatedClient.lock),
    (0.42, SimulatedClient.lock_all),
    (0.18, SimulatedClient.first),
    (0.04, SimulatedClient.forget),
    (1.00, SimulatedClient.clear),
)
