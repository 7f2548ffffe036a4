"""Processes whose threads contend for one key. Each opens its client once and then takes turns on request."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Self

import redis
import redis_lock

import solely

from .peers import TTL
from .workers import Turn, thread_turns

HEAD_START = 0.1  # seconds between the request to the processes and the first turn: enough to reach all of them
ENDS_WITHIN = 10.0  # seconds that a process may take to close its client; one that is stuck is then killed
WAIT = 60.0  # seconds: longer than any repetition, so that no thread gives up

_spawning = multiprocessing.get_context("spawn")


@contextmanager
def open_ours(url: str) -> Iterator[Turn]:
    """Our blocking client."""
    with solely.Client(url) as once:

        def turn(hold: Callable[[], object]) -> None:
            with once.lock("key", ttl=TTL, wait=WAIT):
                hold()

        yield turn


@contextmanager
def open_python_redis_lock(url: str) -> Iterator[Turn]:
    """python-redis-lock with its defaults."""
    with redis.StrictRedis.from_url(url) as client:

        def turn(hold: Callable[[], object]) -> None:
            with redis_lock.Lock(client, "key", expire=int(TTL)):
                hold()

        yield turn


class Fleet:
    """Running processes with several threads each."""

    def __init__(
        self, opened: Callable[[str], AbstractContextManager[Turn]], url: str, processes: int, threads: int
    ) -> None:
        self._arguments = (opened, url, threads)
        self._pipes = [_spawning.Pipe() for _ in range(processes)]
        self._processes = [
            _spawning.Process(target=_serve, args=(theirs, *self._arguments), daemon=True) for _, theirs in self._pipes
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        for ours, theirs in self._pipes:
            theirs.close()
            ours.recv()  # its client is open
        return self

    def turns(self, seconds: float) -> list[int]:
        """Returns how many turns each thread of each process had in that time."""
        begin = perf_counter() + HEAD_START
        for ours, _ in self._pipes:
            ours.send((begin, seconds))
        return [count for ours, _ in self._pipes for count in ours.recv()]

    def __exit__(self, *_: object) -> None:
        for ours, _theirs in self._pipes:
            ours.close()
        for process in self._processes:
            process.join(ENDS_WITHIN)
            process.kill()


def _serve(
    pipe: "Connection[Any, Any]", opened: Callable[[str], AbstractContextManager[Turn]], url: str, threads: int
) -> None:
    with opened(url) as turn:
        pipe.send("open")
        while True:
            try:
                begin, seconds = pipe.recv()
            except EOFError:
                return
            pipe.send(thread_turns(turn, threads, begin, seconds))
