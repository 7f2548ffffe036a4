"""Claim: win the right to run, or get the winner's outcome. Only the first of a process's line asks the store; what it
learns, everyone in the line learns at once, from their `Flight`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..errors import Interrupted, Mismatch, SolelyError
from ..flow import RUN, Ask, Flow, Join, Run, Wait, WakeAll, replies_or_raise, undo
from ..leases.flow import Here, LeaseTerms, itself, let_pass, look_again
from ..leases.hold import Hold
from ..model import DONE, FREE, Entry
from ..ops import Acquire, Read, Release, make
from .flights import Done, Flight, Flights, heard, settled

Result = Hold | Done | Entry  # won; finished; neither in time, and what was in the way


def claim(
    key: str, terms: LeaseTerms, flights: Flights, fingerprint: str, info: str, won: Callable[[Hold], object] = itself
) -> Flow[tuple[Result, float]]:
    """The hold if won, the outcome if finished, else the entry that was in the way for all of terms.wait; and the
    seconds waited. Raises Mismatch if it is held or finished under another fingerprint.

    `won` is given the hold before anyone else of this process can look for it.
    """
    ttl, wait, _, client, polls = terms
    run: Run = yield RUN
    owner, start = run.fresh_owner(), run.now()
    flight = flights.join(key, fingerprint) if wait else Flight(fingerprint)
    asked = answered = doubtful = late = False
    looks = 0
    try:
        if wait:
            here = flights.keeper.here
            first: Run | None = yield make(Join, (key, wait, partial(_no_use, key, flight, here, fingerprint)))
            if first is None or key in here or flight.held_as or flight.done is not None:  # else nobody is before us
                blocked = yield from _behind(key, start + wait, flights, flight, fingerprint, first is not None)
                if blocked is not None:
                    return blocked, run.now() - start
        while flight.done is None:
            asked = True
            queued = client if wait else ""
            entry: Entry = yield make(Acquire, (key, owner, ttl, info, queued, 0.0, fingerprint, False, True))
            answered = True
            doubtful, now = run.doubtful, run.now()
            if entry.owner == owner:
                hold = Hold(key, owner, ttl, entry, run.sent, doubtful, run.now)
                if now < hold.deadline:
                    hold.waited = now - start
                    won(hold)
                    if flight.mixed:
                        yield from heard(key, flight, fingerprint)
                    return hold, hold.waited
            elif entry.state is DONE:
                flight.done = yield from settled(entry, flights)
                break
            refuse_other(key, fingerprint, entry.fingerprint)
            if entry.owner == owner or entry.gone:  # the answer came too late to be of use: this attempt is over
                yield Release(key, owner, True)
                entry = entry._replace(state=FREE) if entry.owner else entry
                owner = run.fresh_owner()
                if not late:  # as in `lock.acquire`
                    late = True
                    continue
            left = start + wait - now
            if left <= 0:
                if wait or doubtful:
                    yield Release(key, owner, doubtful)  # leaves the queue of the entry, or passes the offer on
                asked = False
                return entry, now - start
            yield from heard(key, flight, entry.fingerprint)
            yield Wait(key, min(left, look_again(entry, looks, ttl, polls)))
            looks += 1
        if doubtful or (asked and not 0 < entry.fence <= flight.done.fence):
            # a late copy of an unanswered try must not take the key once the outcome is forgotten; and what we heard
            # from others of this process may be older than the holder behind whom we are queued
            yield from undo([Release(key, owner, doubtful)])
        asked = False
        refuse_other(key, fingerprint, flight.done.fingerprint)
        return flight.done, run.now() - start
    except Interrupted as why:
        if asked and (answered or why.unanswered):
            yield Release(key, owner, why.unanswered)
        raise
    except SolelyError:
        if asked:
            yield from undo([Release(key, owner, run.doubtful)])
            yield WakeAll(key)  # if that gave up this process's place in the queue, the first of the line asks anew
        raise
    finally:
        if wait:
            flights.leave(key, flight)


def _behind(
    key: str, until: float, flights: Flights, flight: Flight, fingerprint: str, first: bool
) -> Flow[Entry | None]:
    """None once it is this caller's turn to ask the store, or the outcome is known; the entry if the wait is over.

    A caller that knows to be of another payload than what it waits for does not wait: it looks, and is refused.
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
        yield from let_pass(key, until, here)
    return None


def _no_use(key: str, flight: Flight, here: Here, fingerprint: str) -> bool:
    """True if waiting tells nothing new: the outcome is known, or it will be another payload's."""
    return flight.done is not None or _differs(fingerprint, _held_as(key, flight, here))


def _held_as(key: str, flight: Flight, here: Here) -> str:
    hold = here.get(key)
    return flight.held_as if hold is None else hold.fingerprint


def _differs(fingerprint: str, known: str) -> bool:
    return bool(fingerprint and known and fingerprint != known)  # who gives none asks for whatever was asked for


def refuse_other(key: str, fingerprint: str, known: str) -> None:
    """Raises Mismatch if both are given and are not the same."""
    if _differs(fingerprint, known):
        name = key.partition("/")[2]
        text = (
            f"claim {name!r} was made with another payload (fingerprint {known[:8]}…; this one is {fingerprint[:8]}…)"
        )
        raise Mismatch(f"{text}; use another key for another request", key=name)


def claim_many(keys: Sequence[str], ttl: float, fingerprints: Sequence[str], info: str) -> Flow[list[Result]]:
    """As `claim` without waiting, for all keys in one batch; of a key that occurs twice, the first one may win.

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
        if useless:  # answered too late, or a copy of an unanswered try may still take it
            yield from undo([Release(key, owner, True) for key in useless])
    except (Interrupted, SolelyError) as why:
        if answered or not isinstance(why, Interrupted) or why.unanswered:  # else nothing was sent
            yield from undo([Release(key, owner, True) for key in distinct])
        raise
    return [_first(results, entries, key) for key in keys]


def _first(results: dict[str, Result], entries: dict[str, Entry], key: str) -> Result:
    """The result; who asks for a hold again finds it taken."""
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
