"""The cache: what it costs to be told of a mark that this process has seen."""

from itertools import cycle, islice
from time import perf_counter

import solely

from .harness import Case, Effort, Figures, Goal, Place, interleave

KEYS = [f"key-{number}" for number in range(10_000)]  # as many as the cache keeps by default
CALLS = 100_000  # per second of effort: half a second at 5 µs each


def _seen(place: Place, effort: Effort) -> Figures:
    with solely.Client("memory://", cache=True) as once:
        once.first_many(KEYS)

        def microseconds() -> float:
            asked = list(islice(cycle(KEYS), int(CALLS * effort.seconds)))
            seen = once.seen
            begun = perf_counter()
            for key in asked:
                seen(key)
            return (perf_counter() - begun) / len(asked) * 1e6

        return {"seen.cache.us": interleave({"ours": microseconds}, effort.repetitions)["ours"]}


CASES = [Case([Goal("seen.cache.us", 10.0, "µs per call, 10,000 keys", at_most=True)], Place.CLIENT_ONLY, _seen)]
