"""W2, unfenced set: the negative control. Holders that are stopped between their last look at the lease and their write
overwrite what their successors wrote. No lock can prevent that: a run with pauses must lose data, one without none.

Each holder behaves as well as it can without fences: it looks at `lease.lost` right before it writes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from solely import Busy, StaleFence
from solely.rules import local_clock

from ..evidence import Evidence, Finding
from ..observations import Observations
from ..resources import Sets
from ..worker import Worker, answer

SPAN = 5.0  # seconds for which a set grows, so that rewriting it stays cheap
FENCED = False


async def work(me: Worker) -> None:
    """Adds members to sets under a lock, until told to stop."""
    await add_members(me, Sets(Path(me.job.settings["sets"]), fenced=FENCED))


async def add_members(me: Worker, sets: Sets) -> None:
    """Reads a set under its lock, adds a member, writes it back; logs each member whose write succeeded."""
    ttl = me.job.settings["ttl"]
    while not me.stopped:
        name = f"set-{int(local_clock() // SPAN)}"
        member = me.fresh_owner()
        lease = await _locked(me, name, member, ttl)
        if lease is None:
            await me.after(answered=True)
            continue
        try:
            members = sets.read(name, lease.fence)
            me.point("read")
            if not lease.lost:
                me.point("checked")
                sets.write(name, [*members, member], lease.fence)
                me.log.note("added", name, [member, lease.lost])
        except StaleFence:
            me.log.note("refused", name, member)
        with me.log.call(name, "release", member) as call:
            await answer(lease.release())
            call.output = True


async def _locked(me: Worker, name: str, owner: str, ttl: float) -> Any:
    lease = None
    with me.log.call(name, "acquire", owner, ttl) as call:
        try:
            lease = await answer(me.once.lock(name, ttl=ttl, wait=3 * ttl, on_lost="flag"))
        except Busy:
            lease = None
        call.output = 0 if lease is None else lease.fence
    return lease


def lost_members(seen: Observations, sets: Sets) -> list[str]:
    """The members whose write succeeded, and that are not in the set."""
    contents = sets.contents()
    return [note.detail[0] for note in seen.of("added") if note.detail[0] not in contents.get(note.key, set())]


def check(evidence: Evidence) -> Iterator[Finding]:
    """Lost members are the control's success if a holder was paused; else a violation.

    A process that the machine itself kept waiting beyond its ttl counts as paused: its lease was lost when the write
    returned.
    """
    seen = evidence.observations
    paused = evidence.settings["pauses"] or any(late for _, late in (note.detail for note in seen.of("added")))
    lost = len(lost_members(seen, Sets(Path(evidence.settings["sets"]), fenced=FENCED)))
    if lost:
        yield Finding("control lost" if paused else "lost without a pause", lost)
