"""W3, fenced set: the work of W2 on a resource that compares fences. Nothing is lost and no stale write is accepted,
whatever happens to processes, servers, data and clocks."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ..evidence import Evidence, Finding
from ..resources import Sets
from ..worker import Worker
from .w2_unfenced_set import add_members, lost_members

FENCED = True


async def work(me: Worker) -> None:
    """Adds members to fenced sets under a lock, until told to stop."""
    await add_members(me, Sets(Path(me.job.settings["sets"]), fenced=FENCED))


def check(evidence: Evidence) -> Iterator[Finding]:
    """Members that were lost; writes that were accepted after one with a greater fence."""
    sets = Sets(Path(evidence.settings["sets"]), fenced=FENCED)
    if lost := lost_members(evidence.observations, sets):
        yield Finding("member lost", len(lost), f"lost: {lost[:10]}")
    stale, greatest = 0, defaultdict[str, int](int)
    for name, fence in sets.accepted():
        stale += fence < greatest[name]
        greatest[name] = max(greatest[name], fence)
    if stale:
        yield Finding("stale write accepted", stale)
