"""Checks on queues: a model of the items, independent of the store, with which each reply is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...drivers.simulated import SimulatedDriver
from ...model import Entry, LeasedItem, NoItem, item_key, line_key
from ...ops import Ack, Amend, Count, Op, Push, Renew, Reply, Resume, Return, Take
from ...queues.flow import TakenItem
from ...rules import LOOK_AGAIN, REMEMBER
from ...stores.transitions import US, us
from .history import History
from .network import START
from .observer import Observer
from .store_checks import WaitChecks

_STORE_TICK = 2e-6  # seconds: the store counts whole µs


class PromptItems(WaitChecks):
    """An available item is taken promptly: without faults, a client that waits looks again within LOOK_AGAIN."""

    def __init__(self, history: History, *, timeout: float, latency: float, reliable: bool) -> None:
        super().__init__(history, timeout=timeout, latency=latency, reliable=reliable)
        if reliable:
            self._at_most = LOOK_AGAIN + self._prompt


class ModelItem:
    """One item as it should be now. `until` is 0 if nobody has it."""

    __slots__ = ("attempts", "fence", "opens", "owner", "until", "value")

    def __init__(self, op: Push, now: int) -> None:
        self.value = op.payload
        self.opens = now + us(op.delay)
        self.owner, self.until, self.attempts, self.fence = "", 0, 0, 0

    @property
    def available(self) -> int:
        """Since when, or from when on, it can be taken."""
        return self.until or self.opens


class QueueObserver(Observer):
    """Compares every reply to an op on a queue with the model. `settled`: owners whose caller acks its item;
    `parked`: the queue that takes what was taken too often."""

    def __init__(self, history: History, waiting: WaitChecks, runs: dict[str, Any], settled: set[str]) -> None:
        super().__init__(history, waiting, runs)
        self.items: dict[str, dict[str, ModelItem]] = {}  # by queue and id
        self.amended: set[bytes] = set()  # values that an Amend wrote
        self.removed: set[bytes] = set()  # values of items that an Amend removed
        self.resumed: dict[tuple[str, str], int] = {}  # item and former taker → until when the store remembers that
        self._settled = settled
        self._given: set[str] = set()  # owners under which a caller got an item
        self._check |= {
            Push: self._pushed,
            Take: self._took,
            Ack: self._acked,
            Return: self._returned,
            Amend: self._amended,
            Count: self._counted,
        }
        self._kinds |= {"item": self._of_item, "line": lambda op, reply, now: None}

    def lost_all_data(self) -> None:
        super().lost_all_data()
        self.items.clear()
        self.resumed.clear()
        self.waiting._openings.clear()

    def _entry(self, op: Op, reply: Reply, now: int) -> None:
        super()._entry(op, reply, now)
        queue = getattr(op, "queue", "")
        if queue:
            self._opens(queue)

    def _opens(self, queue: str) -> None:
        """Tells the checks of waiting when the next item of this queue can be taken."""
        soonest = min((item.available for item in self.items.get(queue, {}).values()), default=None)
        at = float("inf") if soonest is None else soonest / US - START
        self.waiting.opened(line_key(queue), at, hinted=False)

    def _violated(self, promise: str, op: Op, reply: Reply) -> None:
        self.history.violated(promise, f"{op} was answered {reply}")

    def _of(self, op: Any) -> ModelItem | None:
        return self.items.get(op.queue, {}).get(op.id)

    def _pushed(self, op: Push, reply: Reply, now: int) -> None:
        if reply is not (self._of(op) is None):
            self._violated("one item per id", op, reply)
        if reply is True:
            self.items.setdefault(op.queue, {})[op.id] = ModelItem(op, now)

    def _took(self, op: Take, reply: Reply, now: int) -> None:
        self.waiting.granted(line_key(op.queue))
        items = self.items.get(op.queue, {})
        mine = [id for id, item in items.items() if item.owner == op.owner and now < item.until]
        ready = [id for id, item in items.items() if item.available <= now and op.id in ("", id)]
        if isinstance(reply, LeasedItem):
            self._leased(op, reply, items.get(reply.id), now, repeat=reply.id in mine, ready=reply.id in ready)
        elif mine or ready:
            self._violated("no overlooked item", op, reply)
        elif isinstance(reply, NoItem):
            soonest = min((item.available for item in items.values()), default=None)
            left = float("inf") if soonest is None else (soonest - now) / US
            if abs(left - reply.left) > _STORE_TICK and left != reply.left:
                self._violated("when the next item comes", op, reply)

    def _leased(
        self, op: Take, reply: LeasedItem, item: ModelItem | None, now: int, *, repeat: bool, ready: bool
    ) -> None:
        if item is None or not (repeat or ready):
            self._violated("one taker per item", op, reply)
            return
        if not repeat:
            item.owner, item.until, item.attempts, item.fence = (
                op.owner,
                now + us(op.ttl),
                item.attempts + 1,
                reply.fence,
            )
        if (reply.payload, reply.attempts) != (item.value, item.attempts):
            self._violated("the item as it is", op, reply)

    def _acked(self, op: Ack, reply: Reply, now: int) -> None:
        item, resumed = self._of(op), self.resumed.get((item_key(op.queue, op.id), op.owner))
        if item is None:
            correct = {resumed is None} if resumed is None or now < resumed else {True, False}
        else:
            correct = {item.owner == op.owner and op.fence in (0, item.fence)}
        if reply not in correct and (item is not None or op.owner not in self.forgotten):
            self._violated("correct ack replies", op, reply)
        if item is not None and reply is True:
            if op.owner not in self._settled and str(item.fence) not in self.items.get("parked", {}):
                self._violated("no lost item", op, reply)
            del self.items[op.queue][op.id]

    def _returned(self, op: Return, reply: Reply, now: int) -> None:
        item = self._of(op)
        if reply is not (item is not None and item.owner == op.owner):
            self._violated("correct return replies", op, reply)
        elif item is not None and reply:
            item.owner, item.until, item.opens = "", 0, now + us(op.delay)
            item.attempts -= op.uncounted

    def _amended(self, op: Amend, reply: Reply, now: int) -> None:
        item = self._of(op)
        repeat = item is not None and op.value is not None and item.value == op.value
        fits = item is not None and item.value == op.expected and (op.value is not None or item.until <= now)
        if reply is not (repeat or fits):
            self._violated("compare and set", op, reply)
        elif item is not None and reply and op.value is None:
            self.removed.add(item.value)
            del self.items[op.queue][op.id]
        elif item is not None and reply and op.value is not None:
            item.value = op.value
            self.amended.add(op.value)

    def _counted(self, op: Count, reply: Reply, now: int) -> None:
        if reply != len(self.items.get(op.queue, {})):
            self._violated("exact counts", op, reply)

    def _of_item(self, op: Any, reply: Any, now: int) -> None:
        if type(op) is Renew:
            self._item_renewed(op, reply, now)
        elif type(op) is Resume:
            self._item_resumed(op, reply, now)

    def _item_resumed(self, op: Resume, reply: Entry, now: int) -> None:
        """An item passes once from one taker to the next; the former one can no longer settle it."""
        items = {item_key(queue, id): item for queue, items in self.items.items() for id, item in items.items()}
        item = items.get(op.key)
        taken = item is not None and now < item.until
        if item is None or not taken or item.owner not in (op.owner, op.successor):
            if reply.owner:
                self._violated("resumed once", op, reply)
            return
        if reply.owner != op.successor or (reply.value, reply.fence) != (item.value, item.fence):
            self._violated("resumed once", op, reply)
        if item.owner == op.owner:
            self.resumed[op.key, op.owner] = item.until + us(REMEMBER)
            item.owner, item.until = op.successor, now + us(op.ttl)
            for queue in self.items:
                self._opens(queue)

    def _item_renewed(self, op: Renew, reply: Entry, now: int) -> None:
        for queue, items in self.items.items():
            for id, item in items.items():
                if item_key(queue, id) == op.key and item.owner == op.owner and now < item.until:
                    item.until = max(item.until, now + us(op.ttl))
                    self._opens(queue)
                    if reply.owner != op.owner:
                        self._violated("a renewed item stays", op, reply)
                    return
        if reply.owner:
            self._violated("no revived lease", op, reply)

    # -- what callers rely on

    def given(self, taken: TakenItem) -> None:
        """No two callers may have an item under one owner: nobody could tell them apart."""
        if taken.owner in self._given:
            self.history.violated("one taker per item", f"two callers have {taken.id} as {taken.owner}")
        self._given.add(taken.owner)

    def relied_on(self, driver: SimulatedDriver, queue: str, taken: TakenItem) -> None:
        """A caller must not rely on an item for longer than the store leases it to this caller."""
        item = self.items.get(queue, {}).get(taken.id)
        if item is None or item.owner != taken.owner or driver.moment(taken.deadline) <= driver.timeline.now:
            return  # taken by another, or lost, since the reply was sent: then its time is over
        if driver.moment(taken.deadline) > item.until / US - START + _STORE_TICK:
            self.history.violated("one taker per item", f"{taken.owner} relies on {taken.id} for too long")

    def nothing_left(self, queue: str, owners: Callable[[str], bool], waiters: list[str]) -> None:
        """A take that returned no item must have none, and must not be in line."""
        now = self.now()
        for id, item in self.items.get(queue, {}).items():
            if item.owner and now < item.until and owners(item.owner):
                self.history.violated("no leaked item", f"{id} of {queue} is leased to {item.owner}, which has left")
        for owner in waiters:
            if owners(owner):
                self.history.violated("no leaked waiter", f"{owner} is in the line of {queue}; its caller has left")
