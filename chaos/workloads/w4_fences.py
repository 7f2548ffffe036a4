"""W4, fence growth: of two holds of a key, one of which was granted before the other was requested, the later one has
the greater fence: through expiry, release, restart, loss of all data and failover."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from solely.testing.linearizability import Operation

from ..evidence import Evidence, Finding
from ..worker import Worker, answer

KEYS = 2


async def work(me: Worker) -> None:
    """Acquires and releases the same few keys, as often as possible."""
    ttl = me.job.settings["ttl"]
    while not me.stopped:
        key, owner, lease = f"fence-{me.chance.randrange(KEYS)}", me.fresh_owner(), None
        with me.log.call(key, "acquire", owner, ttl) as call:
            lease = await answer(me.once.try_lock(key, ttl=ttl, renew=False, on_lost="flag"))
            call.output = 0 if lease is None else lease.fence
        if lease is None:
            await me.after(call.answered)
            continue
        me.point("acquired")
        with me.log.call(key, "release", owner) as call:
            await answer(lease.release())
            call.output = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fences that did not grow."""
    if count := regressions(evidence.observations.operations):
        yield Finding("fence did not grow", count)


def regressions(operations: Iterable[Operation]) -> int:
    """Counts grants whose fence is not greater than one that was granted before they were requested."""
    grants = [each for each in operations if each.name == "acquire" and each.answered and each.output]
    events = sorted([(each.begin, 1, each) for each in grants] + [(each.end, 0, each) for each in grants])
    count, greatest = 0, defaultdict[str, int](int)
    before: dict[Operation, int] = {}
    for _, begins, each in events:
        if begins:
            before[each] = greatest[each.key]
        else:
            count += each.output <= before[each]
            greatest[each.key] = max(greatest[each.key], each.output)
    return count
