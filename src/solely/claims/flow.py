"""Decisions of claims: win the right to run, or get the winner's outcome. Only the first waiter of a process asks the
store; the other waiters get the reply at once from their `Flight`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..errors import INTERRUPTIONS, Mismatch, SolelyError, is_unanswered
from ..flow import RUN, Ask, Flow, Join, Run, Wait, WakeAll, replies_or_raise, undo
from ..holder import Signer
from ..leases.flow import Here, LeaseTerms, identity, look_again, wait_for_local_holder
from ..leases.hold import Hold
from ..model import DONE, FREE, Entry
from ..ops import Acquire, Read, Release, make
from .flights import Done, Flight, Flights, note_holder, settled

Result = Hold | Done | Entry  # won; finished; timed out, with the entry that blocked it


def claim(
    key: str,
    terms: LeaseTerms,
    flights: Flights,
    fingerprint: str,
    info: Signer,
    won: Callable[[Hold], object] = identity,
) -> Flow[tuple[Result, float]]:
    """The hold if won, the outcome if finished, else the entry that blocked it for all of terms.wait; and the seconds
    waited. Raises Mismatch if it is held or finished under another fingerprint.

    Calls won(hold) before any other caller of this process can look for the hold.
    """
    ttl, wait, _, client, polls = terms
    run: Run = yield RUN
    owner, start = run.fresh_owner(), run.now()
    flight = flights.join(key, fingerprint) if wait else Flight(fingerprint)
    requested = answered = doubtful = late = False
    looks = 0
    try:
        if wait:
            here = flights.keeper.here
            first: Run | None = yield make(Join, (key, wait, partial(_no_use, key, flight, here, fingerprint)))
            if first is None or key in here or flight.holder_fingerprint or flight.done is not None:
                blocked = yield from _behind(key, start + wait, flights, flight, fingerprint, first is not None)
                if blocked is not None:
                    return blocked, run.now() - start
        while flight.done is None:
            requested = True
            queued = client if wait else ""
            entry: Entry = yield make(Acquire, (key, owner, ttl, info(), queued, 0.0, fingerprint, False, True))
            answered = True
            doubtful, now = run.doubtful, run.now()
            if entry.owner == owner:
                hold = Hold(key, owner, ttl, entry, run.sent, doubtful, run.now)
                if now < hold.deadline:
                    hold.waited = now - start
                    won(hold)
                    if flight.mixed:
                        yield from note_holder(key, flight, fingerprint)
                    return hold, hold.waited
            elif entry.state is DONE:
                flight.done = yield from settled(entry, flights)
                break
            refuse_other(key, fingerprint, entry.fingerprint)
            if entry.owner == owner or entry.gone:  # the reply came too late: this attempt is over
                yield Release(key, owner, True)
                entry = entry._replace(state=FREE) if entry.owner else entry
                owner = run.fresh_owner()
                if not late:  # as in `leases.flow.acquire`
                    late = True
                    continue
            left = start + wait - now
            if left <= 0:
                if wait or doubtful:
                    yield Release(key, owner, doubtful)  # leaves the entry's queue, or passes the offer on
                requested = False
                return entry, now - start
            yield from note_holder(key, flight, entry.fingerprint)
            yield Wait(key, min(left, look_again(entry, looks, ttl, polls)))
            looks += 1
        if doubtful or (requested and not 0 < entry.fence <= flight.done.fence):
            # A late copy of an unanswered try must not acquire the key after the outcome is forgotten; and an outcome
            # from another caller of this process may be older than the holder that this one is queued behind.
            yield from undo([Release(key, owner, doubtful)])
        requested = False
        refuse_other(key, fingerprint, flight.done.fingerprint)
        return flight.done, run.now() - start
    except SolelyError:
        if requested:
            yield from undo([Release(key, owner, run.doubtful)])
            yield WakeAll(key)  # if that left the entry's queue, the next waiter must join it again
        raise
    except INTERRUPTIONS as why:
        if requested and (answered or is_unanswered(why)):
            yield Release(key, owner, is_unanswered(why))
        raise
    finally:
        if wait:
            flights.leave(key, flight)


def _behind(
    key: str, until: float, flights: Flights, flight: Flight, fingerprint: str, first: bool
) -> Flow[Entry | None]:
    """None once this caller may ask the store, or the outcome is known; the entry if the wait is over.

    A caller whose payload differs from the holder's does not wait: it reads the entry and raises Mismatch.
    """
    here = flights.keeper.here
    if flight.done is not None:
        return None
    if not first or _no_use(key, flight, here, fingerprint):
        entry: Entry = yield Read(key)
        run: Run = yield RUN
        if entry.state is DONE:
            flight.done = yield from settled(entry, flights)
        refuse_other(key, fingerprint, entry.fingerprint)
        return entry if run.now() >= until and flight.done is None else None
    if key in here:
        yield from wait_for_local_holder(key, until, here)
    return None


def _no_use(key: str, flight: Flight, here: Here, fingerprint: str) -> bool:
    """True if there is no use in waiting: the outcome is known, or it will be that of another payload."""
    return flight.done is not None or _differs(fingerprint, _holder_fingerprint(key, flight, here))


def _holder_fingerprint(key: str, flight: Flight, here: Here) -> str:
    hold = here.get(key)
    return flight.holder_fingerprint if hold is None else hold.fingerprint


def _differs(fingerprint: str, known: str) -> bool:
    return bool(fingerprint and known and fingerprint != known)  # a caller without a fingerprint accepts any


def refuse_other(key: str, fingerprint: str, known: str) -> None:
    """Raises Mismatch if both fingerprints are given and differ."""
    if _differs(fingerprint, known):
        name = key.partition("/")[2]
        text = (
            f"claim {name!r} was made with another payload (fingerprint {known[:8]}…; this one is {fingerprint[:8]}…)"
        )
        raise Mismatch(f"{text}; use another key for another request", key=name)


def claim_many(keys: Sequence[str], ttl: float, fingerprints: Sequence[str], info: str) -> Flow[list[Result]]:
    """`claim` without a wait, for all keys in one batch; of a repeated key, only the first occurrence can win.

    Raises Mismatch, with nothing held, if any of them is held or finished under another fingerprint.
    """
    if not keys:
        return []
    owner: str = yield Ask.OWNER
    distinct: dict[str, str] = {}
    answered = False
    for key, fingerprint in zip(keys, fingerprints, strict=True):
        distinct.setdefault(key, fingerprint)
    try:
        replies = yield [Acquire(key, owner, ttl, info, fingerprint=f, value=True) for key, f in distinct.items()]
        answered = True
        run: Run = yield RUN
        entries: dict[str, Entry] = dict(zip(distinct, replies_or_raise(replies), strict=True))
        for key, fingerprint in zip(keys, fingerprints, strict=True):
            refuse_other(key, fingerprint, entries[key].fingerprint)
        results = {key: _result(entry, owner, ttl, run) for key, entry in entries.items()}
        lost = [key for key, result in results.items() if not isinstance(result, Hold)]
        useless = [key for key in lost if run.doubtful or entries[key].owner]
        if useless:  # the reply came too late, or a copy of an unanswered try may still acquire it
            yield from undo([Release(key, owner, True) for key in useless])
    except INTERRUPTIONS as why:
        if answered or is_unanswered(why):  # else nothing was sent
            yield from undo([Release(key, owner, True) for key in distinct])
        raise
    return [_first(results, entries, key) for key in keys]


def _first(results: dict[str, Result], entries: dict[str, Entry], key: str) -> Result:
    """The result; a second occurrence of the key finds it held."""
    result = results[key]
    if isinstance(result, Hold):
        results[key] = entries[key]
    return result


def _result(entry: Entry, owner: str, ttl: float, run: Run) -> Result:
    sent, doubtful, now = run.sent, run.doubtful, run.now()
    if entry.owner == owner:
        hold = Hold(entry.key, owner, ttl, entry, sent, doubtful, run.now)
        return hold if now < hold.deadline else entry._replace(state=FREE)
    done = entry.state is DONE
    return Done(entry.value, entry.fingerprint, entry.fence, entry.attempts) if done else entry
