"""W7, claims: every key has one published result, which everybody gets, whoever runs the work and however it ends."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import solely
from solely.rules import local_clock
from solely.testing.linearizability import ClaimModel

from ..evidence import Evidence, Finding, linearizable, with_unknown
from ..observations import Observations
from ..worker import UNANSWERED, Worker, answer

SPAN = 0.5  # seconds for which a key is claimed anew: each is claimed by several, and many keys are used
KEYS = 4  # at a time
KEEP = 3600.0  # seconds: longer than a run
OUTLIVE = 0.03  # of the winners publish after their ttl
PAGE = 100  # claims read at once after the run


async def work(me: Worker) -> None:
    """Claims keys, runs the work of those that it won, and publishes: until told to stop."""
    ttl = me.job.settings["ttl"]
    while not me.stopped:
        number = me.chance.randrange(me.job.settings.get("keys", KEYS))
        key, owner, claim = f"claim-{int(local_clock() // SPAN)}-{number}", me.fresh_owner(), None
        wait = me.chance.choice((0.0, 0.3, 1.5 * ttl))
        with me.log.call(key, "claim", owner, ttl) as call:
            claim = await answer(me.once.claim(key, ttl=ttl, wait=wait, keep=KEEP, renew=False))
            call.output = claim.fence if claim.won else ["value", claim.value] if claim.cached else 0
        me.undone(call, key, "claim", "release", owner, ttl)
        if claim is None or not claim.won:
            await me.after(call.answered)
            continue
        me.point("won")
        outlives = me.chance.random() < me.job.settings.get("outlive", OUTLIVE)
        await me.rest(1.3 * ttl if outlives else me.chance.uniform(0.0, 0.03))
        me.point("before publish")
        await _publish(me, claim, key, owner)


async def _publish(me: Worker, claim: solely.Claim, key: str, owner: str) -> None:
    if claim.lost:  # it may be published under a new claim of this call: not one operation of the model
        me.log.note("late", key)
    value = f"{owner} ran {key}"
    with me.log.call(key, "publish", owner, value, KEEP) as call:
        done = await answer(claim.publish(value, wait=0.3))
        call.output = True if done.published else False if done.superseded else UNANSWERED
        if done.superseded and done.value is not None:
            me.log.note("result", key, done.value)


def check(evidence: Evidence) -> Iterator[Finding]:
    """Keys with several results, results that are gone, histories without an order."""
    seen = evidence.observations
    published = {each.key: each.input[0] for each in seen.operations if each.name == "publish" and each.output is True}
    counts = Counter(each.key for each in seen.operations if each.name == "publish" and each.output is True)
    if twice := [key for key, count in counts.items() if count > 1]:
        yield Finding("published twice", len(twice), f"twice: {twice[:10]}")
    if differ := [key for key, values in results(seen).items() if len(values) > 1]:
        yield Finding("results differ", len(differ), f"differ: {differ[:10]}")
    late = {note.key for note in seen.of("late")}
    history = [each for each in with_unknown(seen) if each.key not in late]
    yield from linearizable("claim", history, ClaimModel(), evidence.folder)
    if lost := _lost(evidence.url, published):
        yield Finding("result lost", len(lost), f"lost: {lost[:10]}")


def results(seen: Observations) -> dict[str, set[str]]:
    """The results that callers got for each key."""
    found = defaultdict[str, set[str]](set)
    for each in seen.operations:
        if each.name == "publish" and each.output is True:
            found[each.key].add(str(each.input[0]))
        elif isinstance(each.output, tuple):
            found[each.key].add(str(each.output[1]))
    for note in seen.of("result"):
        found[note.key].add(str(note.detail))
    return found


def _lost(url: str, published: dict[str, str]) -> list[str]:
    """The keys whose published result the store does not have any more."""
    keys, lost = sorted(published), list[str]()
    with solely.Client(url, timeout=30.0) as once:
        for start in range(0, len(keys), PAGE):
            page = keys[start : start + PAGE]
            for key, claim in zip(page, once.claim_many(page, ttl=5.0, renew=False), strict=True):
                if not claim.cached or claim.value != published[key]:
                    lost.append(key)
    return lost
