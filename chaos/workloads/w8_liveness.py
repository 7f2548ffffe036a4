"""W8, liveness: after the last fault, a free key can be acquired within its ttl and one second; nobody waits for ever.

Workers hold a few keys for most of a ttl, so that a fault leaves some of them held by nobody. When all is well again, a
fresh worker acquires each of them. Time in which the machine did not run that worker does not count: a thread beside it
measures by how much its short sleeps last too long.

The fresh worker also waits for a key that another caller of its own process holds, and that an admin clears meanwhile:
the waiter looks again after a second, although the holder does not know yet.
"""

import asyncio
import threading
import time
from collections.abc import Iterator

import solely
from solely import Busy
from solely.rules import local_clock

from ..evidence import Evidence, Finding
from ..worker import Worker, answer

KEYS = 3
MARGIN = 1.0  # seconds above the ttl: a waiter that missed a hint looks again after that long
WAIT = 60.0  # seconds: who waits that long for a free key would wait for ever
HELD = 120.0  # seconds: the holder renews at half of it, which is when it learns that it was cleared
PATIENCE = 12.0  # seconds for a waiter of the same process, which looks again after one
PASSED_WITHIN = 5.0  # seconds after the clear: between the second of a waiter that looks again, and its patience
TICK = 0.01  # seconds between two looks of the meter


async def work(me: Worker) -> None:
    """Holds keys until told to stop; as the fresh worker, acquires each of them once."""
    ttl = me.job.settings["ttl"]
    if me.job.settings.get("fresh"):
        me.log.note("fresh", "")
        await _reach(me)
        for number in range(KEYS):
            await _measure(me, f"live-{number}", ttl)
        await _clear(me, f"cleared-{me.number}")
        return
    while not me.stopped:
        lease = None
        with me.log.call(key := f"live-{me.chance.randrange(KEYS)}", "acquire", me.fresh_owner(), ttl) as call:
            try:
                lease = await answer(me.once.lock(key, ttl=ttl, wait=2 * ttl, on_lost="flag"))
            except Busy:
                lease = None
            call.output = 0 if lease is None else lease.fence
        if lease is None:
            continue
        me.point("acquired")
        await me.rest(me.chance.uniform(0.0, 0.5) * ttl)
        with me.log.call(key, "release", "") as call:
            await answer(lease.release())
            call.output = True


async def _reach(me: Worker) -> None:
    """Returns when the store answers a plain read: from then on it counts how long a grant takes."""
    begin, call = local_clock(), None
    while (call is None or not call.answered) and local_clock() < begin + WAIT:
        with me.log.call("reached", "seen") as call:
            call.output = await answer(me.once.seen("reached"))


async def _measure(me: Worker, key: str, ttl: float) -> None:
    owner, lease, meter = me.fresh_owner(), None, DelayMeter()
    begin = local_clock()
    with meter:
        while lease is None and local_clock() < begin + WAIT:  # an error is no wait: it is tried again
            with me.log.call(key, "acquire", owner, ttl) as call:
                try:
                    lease = await answer(me.once.lock(key, ttl=ttl, wait=WAIT, on_lost="flag"))
                except Busy:
                    lease = None
                call.output = 0 if lease is None else lease.fence
    me.log.note("waited", key, [lease is not None, local_clock() - begin, meter.delay])
    if lease is not None:
        await answer(lease.release())


async def _clear(me: Worker, key: str) -> None:
    """Holds the key, waits for it as a second caller of this process, and clears it as an admin elsewhere would."""
    lease = None
    with me.log.call(key, "acquire", me.fresh_owner(), HELD) as call:
        lease = await answer(me.once.lock(key, ttl=HELD, wait=WAIT, on_lost="flag"))
        call.output = lease.fence
    if lease is None:
        return
    waiter = asyncio.ensure_future(_wait_for(me, key))
    with solely.Client(me.job.url, timeout=30.0) as admin:
        await asyncio.to_thread(admin.clear_lock, key, reason="chaos")
        cleared, meter = local_clock(), DelayMeter()
        with meter:
            granted = await waiter
        me.log.note("cleared", key, [granted, local_clock() - cleared, meter.delay])


async def _wait_for(me: Worker, key: str) -> bool:
    """True if the key could be acquired while its holder, of this process, does not know that it lost it."""
    try:
        if isinstance(me.once, solely.Client):
            await asyncio.to_thread(me.once.lock, key, ttl=HELD, wait=PATIENCE)
        else:
            await me.once.lock(key, ttl=HELD, wait=PATIENCE, on_lost="flag")
    except Busy:
        return False
    return True


class DelayMeter:
    """Measures for how long the machine did not run this process, by sleeps that lasted too long."""

    def __init__(self) -> None:
        self.delay = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def _measure(self) -> None:
        while not self._over.is_set():
            begin = local_clock()
            time.sleep(TICK)
            self.delay += local_clock() - begin - TICK

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def check(evidence: Evidence) -> Iterator[Finding]:
    """Free keys that could not be acquired in time.

    The delay of the machine counts twice: it strikes the server as it does the worker.
    """
    ttl, seen = evidence.settings["ttl"], evidence.observations
    waits = [note.detail for note in seen.of("waited")]
    if never := sum(not granted for granted, _, _ in waits):
        yield Finding("waited for ever", never)
    late = [waited for granted, waited, delay in waits if granted and waited > ttl + MARGIN + 2 * delay]
    if late:
        yield Finding("acquired late", len(late), f"seconds: {late}")
    clears = [note.detail for note in seen.of("cleared")]
    if never := sum(not granted or waited > PASSED_WITHIN + 2 * delay for granted, waited, delay in clears):
        yield Finding("waited for what was cleared", never, f"granted, seconds, delay of the machine: {clears}")
    expected = KEYS * max(1, len(seen.of("fresh")))
    if len(waits) < expected:
        yield Finding("waited for ever", expected - len(waits), "a fresh worker did not end")
