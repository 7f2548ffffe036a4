"""A service with all applications, and something in every state that an entry, an item or a row can have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, get_args, get_type_hints

import pytest

from solely import AsyncClient, AsyncLease, Tick
from solely.apps.alerts.api.alertmanager import STATES as SILENCE_STATES
from solely.apps.alerts.history import DEAD
from solely.apps.alerts.model import AlertOutcome, Status
from solely.apps.probes.model import KINDS as SCHEMES
from solely.apps.probes.model import Kind as TargetKind
from solely.apps.probes.model import State as TargetState
from solely.apps.repos.jobs.records import STATES as JOB_STATES
from solely.apps.repos.model import JobKind, RepoJob
from solely.apps.triggers.api.batching import BatchDetails
from solely.apps.triggers.model import State as RunState
from solely.dead_letters.hand_over import LetterInHand
from solely.kinds import KINDS
from solely.model import Entry, State
from solely.ops import Acquire, Advance, Op, Read
from solely.schedules.handle import AsyncJob, AsyncSchedule
from solely.schedules.listing import OVERDUE, RUNNING, WAITING
from solely.stores import AsyncStore
from tests.apps.alerts.operator import BROKEN, LOG
from tests.apps.operator import BECAUSE, Operator
from tests.apps.repos.receiving import Receiving, settings_of
from tests.apps.repos.test_webhooks import OTHER, merge_request, note
from tests.apps.signals.test_service import fail_writes, post
from tests.apps.triggers.test_work_http import Desk
from tests.service.serving import LINES, Running, running, until

NASTY = "<b>x</b>&\"'/ü %"
LONG = 3000.0  # seconds: more than a walk takes
PASS = 30  # triggers that the gate lets pass: more than those of a run in each state
GATED = ("buffered", "waiting", "parents", "executing", "abandoned", "failed")  # numbers of the gate
BURST = 60  # triggers, most of which are diverted
DOWN = "http://127.0.0.1:1/"  # where nobody listens
REFUSED = "http://[::1]:1/"  # which the guard does not permit
ABSENT = {"type": "command", "name": "absent", "argv": ["/absent"], "match": {"labels": {"to": "absent"}}}
MOMENTARY = {"line"}  # kinds of entries that last only as long as a request waits
FENCE = 1_794_918_600
NEVER = "0 0 1 1 *"  # the schedule of targets that only a test probes


@contextmanager
def filled(url: str, data_url: str, at: str, *, buffer: str = "store") -> Iterator[FilledService]:
    """The service on this store and database, filled. `at` is the address of a site that answers its probes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("solely.apps.triggers.drainer.DEFERRED", LONG)  # what is buffered stays there
        with running(url=url, data_url=data_url, tokens=LINES, **_settings(at, buffer)) as it:
            yield FilledService(it, is_sql=url.startswith(("sqlite:", "postgresql:")))


def _settings(at: str, buffer: str) -> dict[str, Any]:
    addresses = {"up": at, "down": DOWN, "pending": at, "paused": at, "maintained": at, "refused": REFUSED}
    targets = [
        {"name": name, "url": address, "schedule": NEVER, "failure_threshold": 1, "public": True}
        for name, address in addresses.items()
    ]
    return {
        "alerts": {"publishers": [{**LOG, "match": {"severities": ["critical"]}}, BROKEN, ABSENT]},
        "probes": {"targets": targets, "guard_allow": ["127.0.0.0/8"]},
        "repos": settings_of(),
        "triggers": {"trip_threshold": PASS, "trip_window": LONG, "trip_hold": LONG, "buffer": buffer},
    }


class FilledService(Operator):
    """A service that has something of every kind, made as its user makes it where that is possible."""

    def __init__(self, it: Running, is_sql: bool) -> None:
        super().__init__(it)
        self.is_sql = is_sql  # its store, too
        it.run(_entries(it.service.once))
        it.run(_raw(it.service.store))
        self.outcomes = _alerts(self)  # what senders were told
        _probes(self)
        _repos(Receiving(self))
        _signals(self)
        self.batches = _triggers(Desk(it))  # the ids of batches, which no list has

    def unfilled(self) -> dict[str, set[str]]:
        """The states that the code knows, and in which there is nothing, by what has them."""
        entries = list[Any]()
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            page = self.ask("/v1/entries", limit=1000, after=page["next"])
            entries += page["entries"]
        kinds = {entry["key"].partition("/")[0] for entry in entries}
        gates = self.ask("/api/triggers/gate")["gates"]
        notified = self.ask("/api/alerts/history", limit=1000)["history"]
        schedules = self.ask("/v1/schedules", limit=1000)["schedules"]
        batches = [self.ask(f"/api/v2/batches/{id}") for id in self.batches]
        jobs, targets = self.ask("/api/repos/jobs", limit=1000)["jobs"], self.ask("/api/probes/targets")["targets"]
        there: dict[str, tuple[Iterable[str], Iterable[str]]] = {
            "kind of entry": ({name for name, kind in KINDS.items() if Read in kind.ops} - MOMENTARY, kinds),
            "entry": (State, {entry["state"] for entry in entries}),
            "schedule": ((WAITING, RUNNING, OVERDUE), {each["state"] for each in schedules}),
            "tick": (("", "done", "failed"), {each["outcome"].partition(":")[0] for each in schedules}),
            "run": (get_args(RunState), {run["state"] for run in self.ask("/api/triggers/runs", limit=300)["runs"]}),
            "gate": (GATED, {name for name in GATED if any(gate[name] for gate in gates)}),
            "batch": (get_args(get_type_hints(BatchDetails)["status"]), {batch["status"] for batch in batches}),
            "alert": ({*_outcomes(), DEAD}, {each["outcome"] for each in notified} | self.outcomes),
            "notification": (get_args(Status), {each["status"] for each in notified}),
            "silence": (SILENCE_STATES, {each["status"]["state"] for each in self.ask("/api/v2/silences")}),
            "target": (get_args(TargetState), _states(self, "/api/probes/targets", "targets")),
            "kind of target": (get_args(TargetKind), {SCHEMES[each["url"].partition("://")[0]] for each in targets}),
            "job": (JOB_STATES, {job["state"] for job in jobs}),
            "kind of job": (get_args(JobKind), {job["kind"] for job in jobs}),
        }
        lacking = {name: {*known} - {*found} for name, (known, found) in there.items()}
        return {name: states for name, states in lacking.items() if states}


# -- the library's own


async def _nothing(tick: Tick[AsyncLease]) -> None: ...


async def _fails(tick: Tick[AsyncLease]) -> None:
    raise RuntimeError(NASTY)


async def _once(schedule: AsyncSchedule, job: AsyncJob) -> None:
    """Runs one tick of the schedule."""

    async def last(tick: Tick[AsyncLease]) -> None:
        schedule.stop()
        await job(tick)

    await schedule.run(last)


async def _entries(once: AsyncClient) -> None:
    for key in ("walk", NASTY):
        await once.lock(key, ttl=LONG, renew=False, purpose=NASTY)
        await once.first(key, ttl=LONG)
        await (await once.claim(key, ttl=LONG)).publish({"key": key})
        await once.claim(f"{key}:running", ttl=LONG)
        async with await once.reserve(key, quiet=LONG):
            pass
        await once.reserve(key, quiet=LONG)  # refused, and counted
        await once.reserve(f"{key}:sending", hold=LONG)
        for _ in range(2):
            await once.limit(key, limit=1, per=LONG)
        await once.watermark(key).advance(7)
        await once.every(key, LONG).run_due(_nothing)
        await _once(once.every(f"{key}:failed", 1.0), _fails)
        queue = once.queue(key)
        await queue.push("taken", {"key": key})
        await queue.take(ttl=LONG)
        await queue.push("waiting", {"key": key})
        await queue.push("delayed", {"key": key}, delay=LONG)
        letters = once.dead_letters(key)
        for _ in range(2):  # it fails again
            await letters.push({"key": key}, error=NASTY, key="letter")
        taken = await letters.take((await letters.push({"key": key, "taken": True}, error=NASTY)).id)
        assert isinstance(taken, LetterInHand)
        with suppress(ZeroDivisionError):
            async with once.breaker(key, threshold=1, cooldown=LONG):
                raise ZeroDivisionError
    await _once(once.every("walk:running", 1.0), _nothing)
    short = await once.lock("expired", ttl=0.05, renew=False, on_lost="flag")
    while short.remaining() > 0:
        await once.seen("walk")


async def _raw(store: AsyncStore) -> None:
    """What lasts only while something runs, and so stays here for longer."""
    kept = {"fence/walk": f"{FENCE:019}", "rerun/walk": f'{FENCE:010} {{"group": "walk"}}'}
    held = ("trial/walk", "hint/walk", "replay/walk")
    ops: list[Op] = [Advance(key, text.encode()) for key, text in kept.items()]
    ops += [Acquire(key, NASTY, LONG) for key in held]
    assert not [reply for reply in await store.perform(ops) if isinstance(reply, Exception)]
    while True:  # until the tick is due
        (tick,) = await store.perform([Acquire("tick/walk:running", NASTY, LONG)])
        if isinstance(tick, Entry) and tick.owner == NASTY:
            return
        await asyncio.sleep(0.05)


# -- applications


def _outcomes() -> tuple[str, ...]:
    return get_args(get_type_hints(AlertOutcome)["outcome"])


def _alerts(operator: Operator) -> set[str]:
    def send(fingerprint: str, **more: Any) -> str:
        alert = {"name": NASTY, "source": "db-1", "severity": "critical", "fingerprint": fingerprint, **more}
        return str(_done(operator.post("/api/alerts", alert, "write"))["outcome"])

    outcomes = [send("firing"), send("firing"), send("resolved"), send("resolved", status="resolved"), send(NASTY)]
    outcomes.append(send("broken", labels={"to": "broken", NASTY: NASTY}))
    outcomes.append(send("queued", severity="warning", labels={"to": "broken"}))
    outcomes.append(send("dead", severity="warning", labels={"to": "absent"}))
    send("acknowledged")
    _done(operator.post("/api/alerts/acknowledge", {"fingerprint": "acknowledged", "for": LONG, "comment": NASTY}))
    for name, window in {"active": {}, "pending": {"starts": time.time() + LONG}, "expired": {}}.items():
        body = {"matchers": [f"fingerprint={name}"], "lasts": LONG, "reason": BECAUSE, **window}
        made = _done(operator.post("/api/alerts/silences", body))
        if name == "expired":
            _done(operator.post("/api/alerts/silences/expire", {"id": made["id"], "reason": BECAUSE}))
    send("active")
    until(lambda: {*get_args(Status)} <= {row["status"] for row in operator.ask("/api/alerts/history")["history"]})
    until(lambda: DEAD in {row["outcome"] for row in operator.ask("/api/alerts/history")["history"]})
    return set(outcomes)


def _probes(operator: Operator) -> None:
    for name in ("up", "down", "refused"):
        _done(operator.post("/api/probes/run", {"name": name}))
    _done(operator.post("/api/probes/pause", {"name": "paused", "reason": BECAUSE}))
    for window in ({}, {"starts": (datetime.now(UTC) + timedelta(seconds=LONG)).isoformat()}):
        body = {"targets": ["maintained"], "lasts": LONG, "reason": BECAUSE, **window}
        made = [_done(operator.post("/api/probes/maintenance", body)) for _ in range(2)]
        _done(operator.post("/api/probes/maintenance/end", {"id": made[0]["id"], "reason": BECAUSE}))
    for name, url in {"added": "tcp://127.0.0.1:9", "tls": "tls://127.0.0.1:9", "dns": "dns://127.0.0.1:9/a"}.items():
        _done(operator.post("/api/probes/targets", {"name": name, "url": url, "reason": BECAUSE}))
    until(lambda: _states(operator, "/api/probes/targets", "targets") >= set(get_args(TargetState)))


def _states(operator: Operator, path: str, name: str) -> set[str]:
    return {row["state"] for row in operator.ask(path)[name]}


def _repos(receiving: Receiving) -> None:
    for event in (merge_request(), merge_request(), merge_request(OTHER), note(), note(98, "/copilot " + NASTY)):
        assert receiving.gitlab(event).status_code < 300
    records = receiving.app.work.records
    for number, state in enumerate(JOB_STATES):
        job = RepoJob(
            kind=("review", "command", "issue")[number % 3], forge="gitlab", key=f"review:42:{number}:{'c' * 40}",
            project_path="group/project", mr_iid=number, title=NASTY, author=NASTY, at=time.time(),
        )  # fmt: skip
        receiving.service.on_loop(partial(records.begin(job, f"run-{state}", 1).enter, state, NASTY))
    until(lambda: _states(receiving.operator, "/api/repos/jobs", "jobs") >= set(JOB_STATES))


def _signals(operator: Operator) -> None:
    post(operator, "waiting", "leased", "acknowledged", NASTY)
    _done(operator.post("/api/signals/north/slots/next", {"lease": LONG}, "write"))
    first = operator.ask("/api/signals/waiting")["signals"][0]
    _done(operator.post("/api/signals/acknowledge", {"id": first["id"]}, "write"))
    fail_writes(operator, RuntimeError(NASTY))
    assert post(operator, "failed", group="south/slots")["dead_lettered"] == 1
    fail_writes(operator)


def _triggers(desk: Desk) -> tuple[str, str]:
    """Makes a run in each state; returns the ids of a batch that has ended, and of one that has not."""
    made = {"QUEUED": desk.trigger("queued", {NASTY: NASTY}, tags=["walk"], metadata={NASTY: NASTY})}
    made["DELAYED"] = desk.trigger("delayed", delay="1h", idempotencyKey="delayed")
    for state in ("EXECUTING", "COMPLETED", "FAILED", "CANCELED", "WAITING"):
        made[state] = desk.trigger(state.lower(), idempotencyKey=NASTY, maxAttempts=1)
    desk.trigger("dead")
    desk.take("executing", lease=LONG)
    desk.take("dead", lease=1, worker=NASTY)  # its worker has died
    desk.settle(desk.take("completed"), "complete", output={NASTY: NASTY})
    desk.settle(desk.take("failed"), "fail", error=NASTY)
    _done(desk.post(f"/api/v2/runs/{made['CANCELED']}/cancel", {}))
    desk.settle(desk.take("waiting"), "wait", child=made["QUEUED"])
    batches = [_done(desk.post("/api/v2/tasks/batch", {"items": [{"task": "batched"}] * 2}, "write")) for _ in range(2)]
    for _ in range(2):
        desk.settle(desk.take("batched"), "complete")
    for state in get_args(RunState):
        assert made[state] in {row["id"] for row in desk.ask("/api/triggers/runs", state=state)["runs"]}, state
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: desk.trigger("burst", number, idempotencyKey=f"burst-{number}"), range(BURST)))
    return str(batches[0]["id"]), str(batches[1]["id"])


def _done(answer: Any) -> Any:
    assert answer.status_code < 300, answer.text
    return answer.json()
