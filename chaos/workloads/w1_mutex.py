"""W1, mutex history: at any moment at most one process relies on a lock, and the history of all calls has an order.

Workers contend for two keys at a time, with and without a wait. Every two seconds the keys change, so that each has a
short history. Half of the keys are held without automatic renewal: every renewal is then a call of the history. The
others are renewed by the keeper, and judged by what their holders relied on. Some leases are handed over, and their
tokens resumed twice.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from solely import Busy, LeaseLost, Released
from solely.rules import local_clock
from solely.testing.linearizability import LockModel

from ..evidence import Evidence, Finding, linearizable, wiped, with_unknown
from ..observations import Observations
from ..worker import UNANSWERED, Worker, answer

SPAN = 2.0  # seconds for which a key is used: a few holds of each worker, and a few faults at most
KEYS = 2  # at a time
KEPT = "kept"  # keys whose leases are renewed by the keeper
KEPT_SHARE = 0.3  # of the turns
BETWEEN_WRITES = 0.005  # seconds
WAIT = 1.5  # seconds for a lock: longer than the ttl, so that some waiters outlast a dead holder
OUTLIVE = 0.05  # of the holds without automatic renewal end after their ttl
HANDED_OVER = 0.1  # of the holds without automatic renewal
MANUAL = 0.1  # of the ttl: with less left, a renewal may be refused locally, without a request


async def work(me: Worker) -> None:
    """Acquires, relies on the lease, renews it, and releases it: until told to stop."""
    ttl = me.job.settings["ttl"]
    while not me.stopped:
        kept = me.chance.random() < me.job.settings.get("kept", KEPT_SHARE)
        number = me.chance.randrange(me.job.settings.get("keys", KEYS))
        key = f"{KEPT if kept else 'mutex'}-{int(local_clock() // SPAN)}-{number}"
        owner = me.fresh_owner()
        lease, answered = await _acquire(me, key, owner, ttl, kept)
        if lease is None:
            await me.after(answered)
            continue
        me.point("acquired")
        if not kept and me.chance.random() < me.job.settings.get("handed_over", HANDED_OVER):
            lease, owner = await _hand_over(me, lease, key, owner, ttl)
            if lease is None:
                continue
        await _rely(me, lease, key, owner, ttl, kept)
        me.point("before release")
        with me.log.call(key, "release", owner) as call:
            outcome = await answer(lease.release())
            call.output = UNANSWERED if outcome is Released.UNKNOWN else outcome is Released.RELEASED


async def _acquire(me: Worker, key: str, owner: str, ttl: float, renew: bool) -> tuple[Any, bool]:
    """The lease or None, and whether the store answered."""
    waits = me.chance.random() < 0.5
    lease = None
    with me.log.call(key, "acquire", owner, ttl) as call:
        try:
            if waits:
                lease = await answer(me.once.lock(key, ttl=ttl, wait=WAIT, renew=renew, on_lost="flag"))
            else:
                lease = await answer(me.once.try_lock(key, ttl=ttl, renew=renew, on_lost="flag"))
        except Busy:
            lease = None
        call.output = 0 if lease is None else lease.fence
    me.undone(call, key, "acquire", "release", owner, ttl)
    return lease, call.answered


async def _hand_over(me: Worker, lease: Any, key: str, owner: str, ttl: float) -> tuple[Any, str]:
    """The lease that was resumed and its owner; None if neither of two callers got it."""
    token, resumed, its_owner = lease.hand_over(), None, ""
    for _ in range(2):
        successor = me.fresh_owner()
        with me.log.call(key, "resume", owner, successor, ttl) as call:
            try:
                heir = await answer(me.once.resume(token, renew=False, on_lost="flag"))
                resumed, its_owner, call.output = heir, successor, heir.fence
            except Busy:
                call.output = 0
        me.maybe_resumed(call, key, owner, successor, ttl)
    return resumed, its_owner


async def _rely(me: Worker, lease: Any, key: str, owner: str, ttl: float, kept: bool) -> None:
    """Logs writes while the lease is held; sometimes outlives it, and sometimes renews it, even then."""
    outlives = me.chance.random() < me.job.settings.get("outlive", OUTLIVE)
    ends = local_clock() + (1.3 * ttl if outlives else me.chance.uniform(0.0, 0.05))
    while (now := local_clock()) < ends and not lease.lost:
        me.log.note("write", key, lease.fence, at=now)  # the clock was read before `lost`: it was held at that time
        await me.rest(BETWEEN_WRITES)
    if kept or me.stopped:
        return
    if outlives and me.chance.random() < 0.5:
        await me.rest(max(0.0, ends - local_clock()))
        with me.log.call(key, "renew", owner, ttl) as call:
            try:
                await answer(me.once.renew(lease.token, ttl=ttl))  # by its token: the store decides
                call.output = True
            except LeaseLost:
                call.output = False
    elif me.chance.random() < 0.5 and lease.remaining() > MANUAL * ttl:
        with me.log.call(key, "renew", owner, ttl) as call:
            await answer(lease.renew())
            call.output = True
        me.point("renewed")


def check(evidence: Evidence) -> Iterator[Finding]:
    """Two holders at once, by what they relied on; calls without an order."""
    seen = evidence.observations
    history = [each for each in with_unknown(seen) if not each.key.startswith(KEPT)]
    history += wiped((each.key for each in history), evidence.wipes)
    yield from linearizable("lock", history, LockModel(), evidence.folder)
    if (count := overlaps(seen)) and not evidence.wipes:
        yield Finding("two holders", count)


def overlaps(seen: Observations) -> int:
    """Counts holds that began while another process still relied on an earlier hold of the same key."""
    holds: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for note in seen.of("write"):
        holds[note.key, note.worker, note.detail].append(note.at)
    count, ends = 0, defaultdict[str, float](float)
    for (key, _, _), times in sorted(holds.items(), key=lambda each: min(each[1])):
        count += min(times) <= ends[key]
        ends[key] = max(ends[key], *times)
    return count
