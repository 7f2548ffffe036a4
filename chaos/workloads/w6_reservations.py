"""W6, reservations and limits: one sender at a time and none in a quiet window; never more hits in any window of time
than the limit allows."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from solely import ReservationMismatch, UnknownReservation
from solely.rules import local_clock
from solely.testing.linearizability import Operation, ReservationModel

from ..evidence import Evidence, Finding, linearizable, with_unknown
from ..worker import LATE, UNANSWERED, Worker, answer

SPAN = 2.0  # seconds for which a key is used
QUIET = 0.5  # seconds
LIMIT, PER = 3, 1.0  # hits per seconds
DRIFT = 0.98  # of a window: clocks may differ by a per cent, their timers are coarse


async def work(me: Worker) -> None:
    """Reserves and then records, releases or forgets; hits limits: until told to stop."""
    while not me.stopped:
        if me.chance.random() < 0.4:
            await _hit(me, f"limit-{me.chance.randrange(2)}")
        else:
            await _send(me, f"send-{int(local_clock() // SPAN)}-{me.chance.randrange(2)}", me.job.settings["ttl"])
        await me.rest(me.chance.uniform(0.0, 0.02))


async def _hit(me: Worker, key: str) -> None:
    with me.log.call(key, "hit", me.fresh_owner(), LIMIT, PER) as call:
        call.output = bool(await answer(me.once.limit(key, limit=LIMIT, per=PER)))


async def _send(me: Worker, key: str, hold: float) -> None:
    owner, reserved = me.fresh_owner(), None
    with me.log.call(key, "reserve", owner, hold) as call:
        reserved = await answer(me.once.reserve(key, hold=hold, quiet=QUIET, renew=False))
        late = local_clock() - call.begin > LATE * hold  # it then says "reserved" although it may have been free
        call.output = reserved.fence or (UNANSWERED if late else 0)
    me.undone(call, key, "reserve", "release", owner, hold)
    if not reserved:
        await me.after(call.answered)
        return
    me.point("reserved")
    await me.rest(me.chance.uniform(0.0, 0.03))
    if me.chance.random() < 0.3:
        with me.log.call(key, "release", owner) as call:
            call.output = await answer(reserved.release())
        return
    me.point("sent")
    with me.log.call(key, "record", owner, QUIET) as call:
        try:
            await answer(reserved.record())
            call.output = True
        except (ReservationMismatch, UnknownReservation):
            call.output = False


def check(evidence: Evidence) -> Iterator[Finding]:
    """Senders at once or in a quiet window; windows with too many hits."""
    history = with_unknown(evidence.observations)
    sends = [each for each in history if each.name != "hit"]
    yield from linearizable("reservation", sends, ReservationModel(), evidence.folder)
    if count := over_limit(each for each in history if each.name == "hit"):
        yield Finding("over the limit", count)


def over_limit(hits: Iterable[Operation]) -> int:
    """Counts hits that were allowed although, for certain, `limit` others were allowed less than a window before."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for hit in hits:
        if hit.output is True:
            by_key[hit.key].append(hit)
    count = 0
    for allowed in by_key.values():
        allowed.sort(key=lambda each: each.begin)
        for first, last in zip(allowed, allowed[LIMIT:], strict=False):
            between = [each for each in allowed if each.begin >= first.begin and each.end <= last.end]
            count += len(between) > LIMIT and last.end - first.begin < PER * DRIFT
    return count
