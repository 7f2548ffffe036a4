"""A real process with a client of its own, that runs what the test tells it, line by line.

worker = Worker(url)
worker.run("lease = once.lock('a', ttl=1)")
worker.run("lease.fence")                # the value; WorkerError names what was raised
worker.tell("lease.renew()")             # says it without waiting for the answer: worker.answer() gets it
"""

from __future__ import annotations

import ast
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from tests.forked import PIPE, Forked

ANSWERS_WITHIN = 90.0  # seconds: an answer takes milliseconds, but a test machine can be very busy


class WorkerError(Exception):
    """What the line raised, in the worker; `kind` is the name of its class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Worker:
    """Starts at once; `once` is its client of `url`, `url` the URL, `solely` the package."""

    def __init__(self, url: str, **options: Any) -> None:
        self._process = Forked("tests.client.worker", url, json.dumps(options), stdin=PIPE, stdout=PIPE)
        self._heard = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, line: str) -> Any:
        """The line's value once it ran, None for a statement; raises WorkerError if it raised."""
        self.tell(line)
        return self.answer()

    def tell(self, line: str) -> None:
        """Hands the line over and does not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The value of the earliest line that was told and not yet answered."""
        reply = json.loads(self._line())
        if "error" in reply:
            raise WorkerError(*reply["error"])
        return reply["value"]

    def stop(self) -> None:
        """SIGSTOP: it does nothing more until `go_on`."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: it has no moment to let go of anything."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Kills it if it runs still."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        ends = time.monotonic() + ANSWERS_WITHIN
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._heard:
                if not selector.select(max(0.0, ends - time.monotonic())):
                    raise TimeoutError(f"worker {self.pid} gave no answer within {ANSWERS_WITHIN:g} s")
                more = os.read(self._process.stdout.fileno(), 1 << 16)
                if not more:
                    raise ChildProcessError(f"worker {self.pid} ended with {self._process.wait()}")
                self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return line


def _perform(line: str, names: Mapping[str, Any]) -> Any:
    *statements, last = ast.parse(line).body
    scope: Any = names
    if isinstance(last, ast.Expr):
        exec(compile(ast.Module(statements, []), "<test>", "exec"), scope)
        return eval(compile(ast.Expression(last.value), "<test>", "eval"), scope)
    exec(compile(line, "<test>", "exec"), scope)
    return None


def _serve(url: str, options: dict[str, Any]) -> None:
    import solely

    names = {"once": solely.Client(url, **options), "url": url, "solely": solely, "time": time, "os": os}
    for told in sys.stdin:
        try:
            value = _perform(json.loads(told), names)
            plain = isinstance(value, str | int | float | list | None)
            reply: dict[str, Any] = {"value": value if plain else repr(value)}
        except BaseException as error:
            reply = {"error": [type(error).__name__, str(error)]}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], json.loads(sys.argv[2]))
