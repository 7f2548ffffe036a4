"""Handoffs: many workers contend for one key; each holds it for a millisecond and passes it on, fast and fairly."""

from collections.abc import Awaitable, Callable
from functools import partial

import solely

from .harness import Case, Effort, Figures, Goal, Place, interleave, print_medians, ratios, valkey
from .peers import RawConnection
from .workers import TTL, Loop, fairness, task_turns

TASKS = 20


def _tasks(place: Place, effort: Effort) -> Figures:
    with valkey(place) as server, Loop() as loop:
        once = loop.enter(solely.AsyncClient(server.url))
        connections = [loop.enter(RawConnection.open(server)) for _ in range(TASKS)]

        async def ours(number: int, hold: Callable[[], Awaitable[object]]) -> None:
            async with once.lock("key", ttl=TTL):
                await hold()

        async def raw_blpop(number: int, hold: Callable[[], Awaitable[object]]) -> None:
            token = await connections[number].send("BLPOP", "token", int(TTL))
            assert token is not None
            await hold()
            await connections[number].send("LPUSH", "token", 1)

        server.ask("LPUSH", "token", 1)
        sides = {turn.__name__: partial(run_tasks, loop, turn, effort.handoff_seconds) for turn in (ours, raw_blpop)}
        turns = interleave(sides, effort.handoffs)
    return figures("handoff.redis.async.20", turns, effort)


def run_tasks(loop: Loop, turn: Callable[..., Awaitable[object]], seconds: float) -> list[int]:
    """Returns how many turns each of the tasks had."""
    return loop.run(task_turns(turn, TASKS, seconds))


def figures(key: str, turns: dict[str, list[list[int]]], effort: Effort) -> Figures:
    """Returns the two figures of a handoff: its rate compared with the peer's, and its fairness."""
    rates = {name: [sum(each) / effort.handoff_seconds for each in counts] for name, counts in turns.items()}
    print_medians(rates)
    ours, peer = turns
    return {
        f"{key}.vs_{peer}": ratios(rates[ours], rates[peer]),
        f"{key}.fairness": [fairness(counts) for counts in turns[ours]],
    }


FAIRNESS = "fewest / most turns of a worker"

CASES = [
    Case(
        [
            Goal("handoff.redis.async.20.vs_raw_blpop", 0.8, "a token in a list, a connection per worker"),
            Goal("handoff.redis.async.20.fairness", 0.8, FAIRNESS),
        ],
        Place.APART,
        _tasks,
    ),
]
