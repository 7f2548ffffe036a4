"""W9, leased queue: no item is lost, none is with two takers at once, and none is delivered after its ack.

A call that is repeated because its reply was lost may have happened before, as docs/queues.md says: a push whose item
was taken and acked meanwhile pushes it again, and a give_back whose item was taken meanwhile returns False.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import solely
from solely.testing.linearizability import UNANSWERED, Operation, QueueModel

from ..evidence import Evidence, Finding, linearizable
from ..observations import Observations
from ..worker import Worker, answer

QUEUES = 2
PAGE = 500  # items listed at once after the run


async def work(me: Worker) -> None:
    """Pushes items, takes items, acks most of them and gives some back: until told to stop."""
    while not me.stopped:
        name = f"queue-{me.chance.randrange(QUEUES)}"
        queue = me.once.queue(name)
        for _ in range(me.chance.randrange(3)):
            await _push(me, queue, name)
        for _ in range(me.chance.randrange(4)):
            await _take(me, queue, name)


async def _push(me: Worker, queue: Any, name: str) -> None:
    id = me.fresh_owner()
    with me.log.call(f"{name}/{id}", "push", "", id) as call:
        call.output = await answer(queue.push(id, {"by": me.number}))


async def _take(me: Worker, queue: Any, name: str) -> None:
    owner, ttl, item = me.fresh_owner(), me.job.settings["ttl"], None
    with me.log.call(name, "take", owner, ttl) as call:
        item = await answer(queue.take(ttl=ttl, wait=me.chance.choice((0.0, 0.1))))
        call.output = "" if item is None else item.id
    if item is None:
        await me.rest(me.chance.uniform(0.0, 0.02))
        return
    me.point("taken")
    fate = me.chance.random()
    if fate < 0.03:
        return  # forgotten: its lease expires, and another worker takes it
    await me.rest(1.2 * ttl if fate < 0.05 else me.chance.uniform(0.0, 0.01))
    me.point("before ack")
    back = fate > 0.9
    with me.log.call(f"{name}/{item.id}", "give_back" if back else "ack", owner, item.id) as call:
        call.output = await answer(item.give_back() if back else item.ack())


def check(evidence: Evidence) -> Iterator[Finding]:
    """Items that are gone without an ack, deliveries after an ack, histories of items without an order."""
    seen = evidence.observations
    repeats, history = repeated_calls(seen), items(seen)
    repeated = {each.key for each in repeats if each.name == "push"}
    pushed = {each.key for each in history if each.name == "push" and each.output is True}
    settled = {each.key for each in history if each.name == "ack" and each.output is not False}
    if lost := pushed - settled - _kept(evidence.url):
        yield Finding("item lost", len(lost), f"lost: {sorted(lost)[:10]}")
    if again := after_ack([each for each in history if each.key not in repeated]):
        yield Finding("delivered after its ack", again)
    yield from linearizable("queue", [*history, *repeats], QueueModel(), evidence.folder)


def items(seen: Observations) -> list[Operation]:
    """The history of each item alone. A take that found nothing, or that was not answered, is of no item."""
    found = [each for each in seen.operations if each.name != "take"]
    takes = (each for each in seen.operations if each.name == "take" and each.answered and each.output)
    return found + [each._replace(key=f"{each.key}/{each.output}") for each in takes]


def repeated_calls(seen: Observations) -> list[Operation]:
    """A second call, which may have happened, for each try of a push or a give_back that was not answered."""
    names = {"Push": "push", "Return": "give_back"}
    tries = [(note, names[note.detail]) for note in seen.of("retry") if note.detail in names]
    found = list[Operation]()
    for call in (each for each in seen.operations if each.name in names.values()):
        worker = (call.owner or str(call.input[0])).partition(".")[0]  # the id of an item names who pushed it
        found += [
            call._replace(output=UNANSWERED)
            for note, name in tries
            if name == call.name and str(note.worker) == worker and call.begin <= note.at <= call.end
        ]
    return found


def after_ack(history: list[Operation]) -> int:
    """Counts takes that began after an ack of the same item had been answered."""
    acked: dict[str, float] = defaultdict(lambda: float("inf"))
    for each in history:
        if each.name == "ack" and each.output is True:
            acked[each.key] = min(acked[each.key], each.end)
    return sum(each.name == "take" and each.begin > acked[each.key] for each in history)


def _kept(url: str) -> set[str]:
    """The items that the queues still have, taken or not."""
    found = set[str]()
    with solely.Client(url, timeout=30.0) as once:
        for name in (f"queue-{number}" for number in range(QUEUES)):
            after = ""
            while page := once.queue(name).list(after=after, limit=PAGE):
                found |= {f"{name}/{item.id}" for item in page}
                after = page[-1].id
    return found
