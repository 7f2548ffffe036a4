"""The worker: takes runs of its tasks from a service, renews their leases while they run, and reports what became of
each. Any number of workers may share the work; one that dies loses its runs to the others when its leases expire.

Tasks run on threads, so that neither a blocking nor a long task keeps a lease from being renewed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from .... import (
    InvalidInput,
    LeaseLost,
    Limited,
    PermanentFailure,
    Postpone,
    Refused,
    Retry,
    StoreFailed,
    StoreUnavailable,
)
from ....kit import get_logger, plain_function, printable
from ..model import CANCELED
from .children import Children, WaitsForChild
from .tasks import RunAttempt, WorkerTask
from .wire import MAX_ERROR, LeaseStates, SettledRun, TakenRuns

if TYPE_CHECKING:
    from ....kit.commands import ServiceClient

log = get_logger("solely.triggers")
T = TypeVar("T")

WAIT = 5.0  # seconds that a take waits at the service: `stop` waits as long, and an idle slot asks that often
RENEWALS = 3  # renewals per lease: two may be lost before the lease is
AGAIN = (0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between tries while the service is unreachable: it restarts within some
OVERDUE = "the attempt took longer than the max_hold of its task"
CLEAN_UP = 5.0  # seconds that a cancelled task may take to end: a few closing round trips
LOOK = 0.2  # seconds between looks whether all slots have ended: nobody notices
Report = Callable[[str], object]


class TaskWorker:
    """Runs tasks of one service, `at_once` at a time, each under a lease of so many seconds.

    A task ends its run by returning the output; otherwise by what it raises: Retry(after=…) retries, Postpone(after=…)
    retries without counting an attempt, PermanentFailure and msgspec.ValidationError fail the run for good, and any
    other error is retried with the service's backoff until the run has no attempt left.
    """

    def __init__(
        self,
        service: ServiceClient,
        tasks: Mapping[str, WorkerTask],
        *,
        at_once: int = 4,
        lease: float = 30.0,
        wait: float = WAIT,
        name: str = "",
        report: Report = log.info,
    ) -> None:
        self._service, self._tasks, self._report = service, dict(tasks), plain_function("report", report)
        self._lease, self._wait = lease, wait
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._slots = {threading.Thread(target=self._work, daemon=True) for _ in range(at_once)}
        self._started: list[threading.Thread] = []
        self._running: dict[str, RunAttempt] = {}  # by token
        self._changed = threading.Condition()  # notified whenever a run has ended
        self._stopping, self._over = threading.Event(), threading.Event()
        self._until_empty = False
        self._error: Exception | None = None

    def run(self, *, until_empty: bool = False) -> None:
        """Works until `stop`; with `until_empty`, until nothing is due. Raises InvalidInput or StoreDenied if the
        service refuses this worker."""
        self._until_empty = until_empty
        self._started = [threading.Thread(target=self._renew_all, daemon=True), *self._slots]
        for thread in self._started:
            thread.start()
        while self._slots and not self._stopping.wait(LOOK):
            pass
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Takes nothing new, and has `run` return; a signal handler may call it."""
        self._stopping.set()

    def stop(self, timeout: float = 10.0) -> bool:
        """Takes nothing new and waits for the runs in flight; asynchronous tasks that take longer are cancelled, and
        their runs given back. False if a task still runs: it is left to its lease, since no thread can be ended."""
        self.end()
        with self._changed:
            if not self._changed.wait_for(lambda: not self._running, timeout):
                for run in list(self._running.values()):
                    run.cancel()
                self._changed.wait_for(lambda: not self._running, CLEAN_UP)
            self._over.set()
        for slot in self._started:  # a take that is answered only now is given back
            slot.join(0.0 if self._running else self._wait + CLEAN_UP)
        return not self._running

    # -- a slot

    def _work(self) -> None:
        try:
            while not self._stopping.is_set() and (self._work_once() or not self._until_empty):
                pass
        except Exception as error:  # noqa: BLE001 - `run` raises it: the service refuses this worker, or it is a bug
            self._error = error
            self._stopping.set()
        finally:
            self._slots.discard(threading.current_thread())
            if not self._slots:  # nothing runs: there is no lease to renew, also if nobody calls `stop`
                self._over.set()

    def _work_once(self) -> bool:
        """Takes a run and performs it; False if none was due."""
        token, wait = secrets.token_hex(16), 0.0 if self._until_empty else self._wait
        body = {
            "tasks": [*self._tasks], "lease": self._lease, "wait": wait, "worker": self.name, "token": token,
        }  # fmt: skip
        sent, taken = self._insist(lambda: self._service.post("/api/v1/workers/take", body, TakenRuns, wait))
        if taken is None or taken.run is None:
            return False
        children = Children(self._service, taken.run.id, lambda ask: self._insist(ask, run)[1])
        run = RunAttempt(taken.run, sent, self._tasks[taken.run.task].max_hold, children)
        with self._changed:  # `stop` sees the run, or the run sees that the worker stops
            if not self._stopping.is_set():
                self._running[token] = run
        if token not in self._running:
            self._settle(run, "release", {})
            return False
        try:
            self._perform(run)
        finally:
            with self._changed:
                del self._running[token]
                self._changed.notify_all()
        return True

    def _perform(self, run: RunAttempt) -> None:
        """Runs the task and settles the run by what it returned or raised."""
        try:
            output = self._tasks[run.task](run)
        except Postpone as error:
            self._settle(run, "release", {"delay": error.after or 0.0})
        except WaitsForChild as waits:
            self._settle(run, "wait", {"child": waits.child})
        except asyncio.CancelledError:
            self._settle(run, *(("fail", {"error": OVERDUE}) if run.overdue else ("release", {})))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any error of a task is the end of its attempt
            self._settle(run, "fail", _failure(error))
        else:
            self._complete(run, output)

    def _complete(self, run: RunAttempt, output: object) -> None:
        """Completes the run. If its output cannot be sent, it fails for good: a retry would repeat what was done."""
        try:
            self._settle(run, "complete", {"output": msgspec.to_builtins(output)})
        except (TypeError, InvalidInput) as error:
            self._settle(run, "fail", {"error": f"the output was not accepted: {error}"[:MAX_ERROR], "retry": False})

    def _settle(self, run: RunAttempt, how: str, body: dict[str, Any]) -> None:
        """Reports the end of the attempt. If the service refuses it, another worker has the run, or a person canceled
        it; if the service is unreachable while the lease lasts, the lease expires and the run is tried again."""
        path, said = f"/api/v1/runs/{run.id}/{how}", {"token": run.token, **body}
        try:
            settled = self._insist(lambda: self._service.post(path, said, SettledRun), run)[1]
            became = f"is {settled.state}" if settled is not None else "is left to its lease"
        except (LeaseLost, Refused) as error:
            became = f"was not recorded: {error}"
        self._report(printable(f"{run.task} {run.id}, attempt {run.attempt}, {became}"))

    def _insist(self, ask: Callable[[], T], run: RunAttempt | None = None) -> tuple[float, T | None]:
        """The answer, and when the request was sent. Repeats it while the service fails: None once the worker stops,
        or the lease of the run has ended."""
        for pause in chain(AGAIN, repeat(AGAIN[-1])):
            sent = time.monotonic()
            try:
                return sent, ask()
            except (StoreUnavailable, StoreFailed, Limited, msgspec.DecodeError) as error:
                self._report(printable(f"the service failed, and is asked again: {error}"))
            if run is None:
                self._stopping.wait(pause)
            else:
                time.sleep(min(pause, max(0.0, run.remaining())))
            if self._stopping.is_set() if run is None else run.remaining() <= 0:
                break
        return sent, None

    # -- leases

    def _renew_all(self) -> None:
        """Renews the leases of all runs in flight until the worker has stopped."""
        while not self._over.wait(self._lease / RENEWALS):
            runs = list(self._running.values())
            try:
                self._renew([run for run in runs if not run.overdue])
            except Exception as error:  # noqa: BLE001 - whatever it was, the next renewal may succeed
                self._report(printable(f"leases were not renewed: {error}"))
            for run in runs:
                if run.lost or run.overdue:
                    run.end()

    def _renew(self, runs: list[RunAttempt]) -> None:
        if not runs:
            return
        body = {"lease": self._lease, "runs": [{"id": run.id, "token": run.token} for run in runs]}
        sent = time.monotonic()
        states = self._service.post("/api/v1/workers/heartbeat", body, LeaseStates).runs
        for run, known in zip(runs, states, strict=True):
            if known.left is not None:
                run.renewed(sent, known.left)
            else:
                run.canceled = known.state == CANCELED
                run.end()


def _failure(error: BaseException) -> dict[str, Any]:
    """How the run fails: its error as text, and whether and when it is tried again."""
    text = "".join(traceback.format_exception_only(error)).strip()
    where = traceback.extract_tb(error.__traceback__)[-1:]
    described = text + "".join(f"\n  in {frame.name}, {frame.filename}:{frame.lineno}" for frame in where)
    permanent = isinstance(error, (PermanentFailure, msgspec.ValidationError))
    after = error.after if isinstance(error, Retry) else None
    return {"error": described[:MAX_ERROR], "retry": not permanent, "delay": after}
