"""Processes that poll the same data at once. One process imports everything and forks a child for each that polls,
since an import takes longer than a poll.

    with Pollers() as pollers:
        results = pollers.poll(8, kind="mongo", url=url, sink="signals", path="by_id")
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

GROUPS = [(f"house-{number}", "slots") for number in range(5)]
CREDENTIALS = 20
PATIENT = 60.0  # seconds of timeout for clients whose store is there: a busy machine is no outage


def signals_of(group: tuple[str, str], context: object = None) -> list[dict[str, Any]]:
    """What the wrapped generator makes of the polled data."""
    return [{"house": group[0], "game": group[1], "username": f"user-{number}"} for number in range(CREDENTIALS)]


def credentials() -> list[str]:
    return [f"{house}/{game}/user-{number}" for house, game in GROUPS for number in range(CREDENTIALS)]


class Pollers:
    """The process that forks."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[3],
        )  # fmt: skip
        return self

    def __exit__(self, *how: object) -> None:
        self._process.kill()
        self._process.communicate()

    def poll(self, processes: int, **task: Any) -> list[dict[str, Any]]:
        """What each of so many processes counted; its exit code if it was killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"processes": processes, **task}) + "\n")
        self._process.stdin.flush()
        answer: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
        return answer


# -- in the process that forks


def _serve() -> None:
    fork = multiprocessing.get_context("fork")
    for line in sys.stdin:
        task = json.loads(line)
        barrier, answers = fork.Barrier(task["processes"]), fork.SimpleQueue()
        children = [fork.Process(target=_poll, args=(task, barrier, answers)) for _ in range(task["processes"])]
        for child in children:
            child.start()
        for child in children:
            child.join()
        found = [{"exit": child.exitcode} for child in children if child.exitcode]
        while not answers.empty():
            found.append(answers.get())
        print(json.dumps(found), flush=True)


def _poll(task: dict[str, Any], barrier: Any, answers: Any) -> None:
    from tests.apps.signals.sinks import SINKS

    sink = SINKS[task["kind"]](task["url"], task["sink"])
    if task["path"] == "unprotected":
        answers.put({"generated": _read_check_write(sink, barrier)})
    else:
        answers.put(_protected(task, sink, barrier))
    sink.close()


def _read_check_write(sink: Any, barrier: Any) -> int:
    """The old path, step by step as the document has it: all read that there is no signal, then all write theirs."""
    from solely.apps.signals.model import fresh_id

    written = 0
    for group in GROUPS:
        missing = [each for each in signals_of(group) if not sink.exists(each)]
        barrier.wait()
        for each in missing:
            sink.write(each, fresh_id())
        written += len(missing)
        barrier.wait()
    return written


def _protected(task: dict[str, Any], sink: Any, barrier: Any) -> dict[str, int]:
    """Polls all groups, and those again that another process had, until each was its own once."""
    from solely import Client
    from solely.apps.signals import IdempotentSignalGenerator, SignalOptions

    counts = {"generated": 0, "deduplicated": 0, "contended": 0}
    ends = task.get("dies", "")
    write = _dying(sink.write, ends) if ends else sink.write
    given: dict[str, Any] = {"transaction": sink.transaction} if task["path"] == "transaction" else {}
    with Client(task["url"], timeout=PATIENT, clock=time.time if ends else None) as once:
        generator = IdempotentSignalGenerator(signals_of, write, once, options=SignalOptions(window=300), **given)
        barrier.wait()
        left = list(GROUPS)
        while left:
            results = generator.generate_signals(left)
            errors = [result.error for result in results if result.error]
            assert not errors, errors
            counts["generated"] += sum(result.generated for result in results)
            counts["deduplicated"] += sum(result.deduplicated for result in results)
            counts["contended"] += sum(result.outcome == "contended" for result in results)
            left = [(result.group.house, result.group.game) for result in results if result.outcome == "contended"]
    return counts


def _dying(write: Any, where: str) -> Any:
    """The write, with a SIGKILL to this process before or after the tenth signal is written."""
    written = []

    def dies(signal_: dict[str, Any], id: str, connection: Any = None) -> object:
        written.append(id)
        if where == "before" and len(written) == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = write(signal_, id, connection)
        if where == "after" and len(written) == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return dies


if __name__ == "__main__":
    import psycopg  # noqa: F401 - before the forks
    import pymongo  # noqa: F401 - before the forks

    import tests.apps.signals.sinks  # noqa: F401 - before the forks

    _serve()
