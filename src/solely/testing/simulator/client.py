"""A simulated process: its driver, its holds with their keepers, and its tasks, which perform scripts."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ...cache import Cache
from ...drivers.simulated import SimulatedDriver, SimulatedRun
from ...events import Event, Renewed
from ...flow import Flow
from ...holder import Signature
from ...leases.context import Context
from ...leases.hold import Hold
from ...leases.keeper import keep_renewing, keep_watching
from ...model import Released
from ...ops import Op
from ...rules import COMPENSATE, REMEMBER

if TYPE_CHECKING:
    from .world import World


class Cancelled(BaseException):
    """What a simulated caller is interrupted with."""


class Doing(NamedTuple):
    """A flow that a script wants performed; the script is sent the SimulatedRun once it is over."""

    flow: Flow[Any]
    wait: float = 0.0
    key: str = ""  # that it waits for


Script = Generator[Doing | float, Any, None]  # a float is a sleep


class Task:
    """A thread or task of a client: performs a script, one thing after the other."""

    __slots__ = ("_began", "_doing", "_script", "_slept", "client", "over", "run")

    def __init__(self, client: SimulatedClient, script: Script) -> None:
        self.client = client
        self.over = False
        self.run: SimulatedRun | None = None
        self._script = script
        self._doing: Doing | None = None
        self._began = self._slept = 0.0

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
        self._doing, self._began, self._slept = wish, driver.timeline.now, driver.slept()
        self.run = run = driver.run(wish.flow, self._done)
        if not run.over and self._waits():
            self.client.world.waiting.begins(wish.key, run)
        if self.client.chance() < self.client.world.manners.cancel:
            driver.after(self.client.chance() * (wish.wait or 0.02), run.cancel, Cancelled())

    def _waits(self) -> bool:
        """True for a flow whose wait is measured. Where a client also takes several keys at once, such a flow may stand
        behind one that has this key already and waits for another."""
        doing = self._doing
        return doing is not None and bool(doing.key) and doing.wait > 0 and not self.client.takes_several

    def _done(self, run: SimulatedRun) -> None:
        world, driver, doing = self.client.world, self.client.driver, self._doing
        assert doing is not None
        world.history.note(driver.name, run.owner, "was told", repr(run.error) if run.error else run.result)
        if self._waits():
            world.waiting.ends(doing.key, run)
        took = driver.timeline.now - self._began - (driver.slept() - self._slept)
        if took > doing.wait * 1.02 + 4 * driver.timeout + 2 * COMPENSATE:
            world.history.violated("no hang", f"a flow that may wait {doing.wait} s took {took:.3f} s: {doing.flow}")
        self.go_on(run)


class Unsigned(Signature):
    """Says nothing of this process or its clock: the same seed gives the same history anywhere."""

    def info(self, purpose: str = "") -> str:
        return purpose


class SimulatedClient:
    """One process. What its tasks do again and again is in `actions`: each with its share of all that is done."""

    actions: ClassVar[tuple[tuple[float, Callable[[Any], Script]], ...]]

    def __init__(self, world: World, driver: SimulatedDriver, tasks: int, cache: Cache | None = None) -> None:
        self.world = world
        self.driver = driver
        self.chance = world.chance.random
        self.context = Context(
            self,  # type: ignore[arg-type]  # asked only for what goes into terms, which the scripts make themselves
            wake=driver.waiters.wake,
            hook=self._told,
            cache=cache,
            start_keeping=self._start_keeping,
            signature=Unsigned,
        )
        self.takes_several = self.chance() < world.manners.several
        self.keepers: list[SimulatedRun] = []
        self._relied_on: dict[int, Hold] = {}
        self.tasks = [Task(self, self._script()) for _ in range(tasks)]
        for task in self.tasks:
            driver.after(self.chance() * 0.05, task.go_on)

    def _start_keeping(self) -> None:
        for loop in (keep_renewing, keep_watching):
            self.keepers.append(self.driver.run(loop(self.context.keeper), self._keeper_ended))

    def _keeper_ended(self, run: SimulatedRun) -> None:
        if run.error is not None or not self.context.keeper.closed:
            self.world.history.violated("renewal never dies", f"a keeper of {self.driver.name} ended: {run.error!r}")

    def _told(self, event: Event) -> None:
        if type(event) is Renewed and event.fence in self._relied_on:
            self.world.beliefs.extended(self._relied_on[event.fence])

    def relies_on(self, hold: Hold) -> None:
        """A script goes on in the belief that it holds the key."""
        self._relied_on[hold.fence] = hold
        self.world.beliefs.begins(self.driver, hold)

    def one(self, op: Op) -> Flow[Any]:
        """Just this op."""
        return (yield op)

    def pick(self, values: Any) -> Any:
        """One of them, by chance."""
        return values[int(self.chance() * len(values))]

    def _script(self) -> Script:
        while self.world.goes_on():
            chance = self.chance()
            for share, action in self.actions:
                if chance < share:
                    yield from action(self)
                    break
                chance -= share
            yield self.chance() * 0.4
            self.world.trouble(self)

    def nothing_left(self, run: SimulatedRun, keys: list[str]) -> None:
        """An attempt that failed leaves neither a hold nor a place in a queue, unless its undoing failed."""
        if run.undone:
            for key in keys:
                self.world.nothing_left(key, run)

    def check_released(self, hold: Hold, outcome: Released, repeated: bool = False) -> None:
        """Who lets go is told what became of the hold; or, if the store has lost its data since, that this is lost.
        Who asks too late, or again after no answer, may be told that it is not known, and never something else."""
        held = self.world.truth.grants[hold.key, hold.fence]
        late = self.driver.clock() > hold.deadline + REMEMBER
        right = outcome == held.ended or (held.forgotten and outcome is Released.LOST)
        if not right and not ((late or repeated) and outcome is Released.UNKNOWN):
            self.world.history.violated(
                "right release answers", f"{hold.owner} was told {outcome!r}, but its hold was {held.ended}"
            )
