"""python -m bench.peer_program LIBRARY URL: one process of one library, which works on request.

Each line of stdin is a JSON request and gets one line on stdout. It runs in the environment of the library, so it uses
the standard library alone.
"""

import json
import os
import sys
import time
from itertools import count
from typing import Any

from .libraries import LIBRARIES, Library
from .workers import thread_rate, thread_turns

_fresh = count()


def main() -> None:
    """Serves until stdin ends."""
    name, url = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # so that nothing else is printed there
    with LIBRARIES[name](url) as library:
        print(json.dumps("open"), file=replies)
        for line in sys.stdin:
            request = json.loads(line)
            before = time.process_time()
            print(json.dumps([_perform(library, **request), time.process_time() - before]), file=replies)


def _perform(library: Library, do: str, seconds: float, begin: float = 0.0, threads: int = 1) -> Any:
    if do == "pairs":
        assert library.pair
        return thread_rate(library.pair, threads, seconds)
    if do == "turns":
        assert library.turn
        return thread_turns(library.turn, threads, begin, seconds)
    call = library.call
    assert call
    if do == "replays":
        return thread_rate(call, 1, seconds)
    return thread_rate(lambda key: call(f"{os.getpid()}-{next(_fresh)}"), 1, seconds)


if __name__ == "__main__":
    main()
