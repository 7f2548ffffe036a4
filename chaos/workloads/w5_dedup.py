"""W5, dedup: every id is delivered many times, by several processes; exactly one delivery of each is the first."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import solely
from solely.testing.linearizability import MarkModel

from ..evidence import Evidence, Finding, linearizable, with_unknown
from ..worker import Worker, answer

KEEP = 3600.0  # seconds: longer than a run, so that no mark expires in it
BATCH = 20  # ids of a call of `first_many`
PAGE = 500  # marks read at once after the run


async def work(me: Worker) -> None:
    """Delivers its share of all deliveries, each once, one by one and in batches; a process that replaces a killed one
    goes on where that was."""
    settings = me.job.settings
    deliveries = [number % settings["ids"] for number in range(settings["ids"] * settings["copies"])]
    random.Random(settings["deal"]).shuffle(deliveries)
    mine = deliveries[settings["share"] :: settings["shares"]][settings.get("done", 0) :]
    while mine and not me.stopped:
        many = settings.get("batch", BATCH) if me.chance.random() < 0.5 else 1
        batch, mine = mine[:many], mine[many:]
        await _deliver(me, [f"id-{number}" for number in batch])
        me.point("delivered")


async def _deliver(me: Worker, ids: list[str]) -> None:
    owners = [me.fresh_owner() for _ in ids]
    with ExitStack() as calls:
        begun = [calls.enter_context(me.log.call(id, "first", who, KEEP)) for id, who in zip(ids, owners, strict=True)]
        if len(ids) == 1:
            begun[0].output = await answer(me.once.first(ids[0], ttl=KEEP))
        else:
            for call, first in zip(begun, await answer(me.once.first_many(ids, ttl=KEEP)), strict=True):
                call.output = first
    for call, id, owner in zip(begun, ids, owners, strict=True):
        if not call.answered:  # the call removes the mark that it may have made
            me.log.note("unknown", id, ["forget", owner, call.begin])


def check(evidence: Evidence) -> Iterator[Finding]:
    """Ids that two deliveries got, that none got, and marks that are gone."""
    seen = evidence.observations
    firsts = Counter(each.key for each in seen.operations if each.output is True)
    doubtful = {each.key for each in seen.operations if not each.answered}
    if twice := [id for id, count in firsts.items() if count > 1]:
        yield Finding("first twice", len(twice), f"first twice: {twice[:10]}")
    if nobody := {each.key for each in seen.operations} - firsts.keys() - doubtful:
        yield Finding("nobody was first", len(nobody), f"nobody: {sorted(nobody)[:10]}")
    yield from linearizable("mark", with_unknown(seen), MarkModel(), evidence.folder)
    if gone := _missing(evidence.url, sorted(firsts)):
        yield Finding("mark lost", len(gone), f"lost: {gone[:10]}")


def _missing(url: str, ids: list[str]) -> list[str]:
    """The ids of these that are not marked any more."""
    gone = list[str]()
    with solely.Client(url, timeout=30.0) as once:
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            gone += [id for id, mark in zip(page, once.read_marks(page), strict=True) if mark is None]
    return gone
