"""Random sequences of calls of the task-trigger API over HTTP, by callers and workers, against a model of what each run
must be. Meanwhile the drainer stands still wherever it may be interrupted, and moves on between the calls and in the
middle of them."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import httpx2
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from solely.apps.triggers.api import options
from tests.apps.operator import operating
from tests.apps.triggers.conftest import PAIRS
from tests.apps.triggers.pauses import SEALED, STORED, Pauses, soon
from tests.apps.triggers.test_work_http import Desk
from tests.service.serving import END, TOKENS, bearer

AT_ONCE = 3  # items that the drainer has at once: others wait in the buffer
LEASE, DELAY, AHEAD = 3600.0, 3600.0, 20_000.0  # seconds: none expires by itself, and all do by a clock that is ahead
SHORT, MARGIN = 0.1, 0.05  # seconds that a key may live, and by which the clock of a database may differ from ours
ENDED = {"COMPLETED", "FAILED", "CANCELED"}

Race = tuple[
    int, list[tuple[int, bool]]
]  # the access before which a request stops, and what the drainer does meanwhile

tasks, keys = st.sampled_from(["a", "b"]), st.sampled_from(["", "k1", "k2"])
tags = st.sampled_from(["x", "y", "z"])
numbers = st.integers(0, 9)
moves = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([False, False, False, True])), min_size=1, max_size=6)
races: st.SearchStrategy[Race | None] = st.none() | st.tuples(st.integers(1, 6), moves)
metadata_edits = st.sampled_from(
    [
        {"metadata": {"n": 5}},
        {"operations": [{"type": "append", "key": "log", "value": "x"}, {"type": "increment", "key": "n", "value": 1}]},
    ]
)


class Interruption(NamedTuple):
    """A change of a run, of this key, after so many steps of the drainer; and how many it does afterwards."""

    change: str
    before: int
    after: int
    key: str
    race: Race | None


interruptions = st.builds(
    Interruption,
    st.sampled_from(["cancel", "tag", "edit", "reset"]),
    st.integers(0, 2),
    st.integers(0, 3),
    keys,
    races,
)


@dataclass
class Expected:
    """A run by the answers that callers got. `due`: it can be taken now. `stored`: SQL is known to have it."""

    id: str
    task: str
    payload: Any
    key: str = ""
    tags: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    state: str = "QUEUED"
    most: int = 3
    frees_key: bool = False
    attempts: int = 0
    token: str = ""
    child: str = ""
    due: bool = True
    stored: bool = False

    @property
    def read(self) -> dict[str, Any]:
        """What everybody reads of it."""
        facts = {"status": self.state, "attemptCount": self.attempts, "taskIdentifier": self.task}
        return {"id": self.id, "tags": self.tags, "metadata": self.metadata, **facts}


class Protection(NamedTuple):
    """The run that a key protects, surely before one moment, and surely no longer after another."""

    id: str
    lives_until: float
    is_over_at: float


FOREVER, UNSURE = (1e12, 1e12), (0.0, 1e12)


class Place(NamedTuple):
    """A service, what stands still in it, and a thread for the request that is interrupted."""

    desk: Desk
    pauses: Pauses
    pool: ThreadPoolExecutor
    named: Iterator[int]


class TriggersMachine(RuleBasedStateMachine):
    def __init__(self, place: Place) -> None:
        super().__init__()
        self.desk, self.pauses, self.pool, named = place
        self.prefix = f"m{next(named)}-"
        self.runs: dict[str, Expected] = {}
        self.keys: dict[tuple[str, str], Protection] = {}
        self.held: list[tuple[str, str]] = []  # what workers believe to have leased: runs and tokens
        self.touched: list[str] = []
        self.count = itertools.count()
        self.ahead = 0.0

    # -- how the API is called

    def send(
        self, method: str, path: str, body: Any = None, race: Race | None = None, **headers: str
    ) -> httpx2.Response:
        """The response. With a race, the request stands still while the drainer moves."""
        ask = partial(self.desk.service.http.request, method, path, json=body)
        send = partial(ask, headers={**bearer(TOKENS["write"]), **headers})
        if race is None:
            answer = send()
        else:
            self.pauses.stop_request(race[0])
            sent = self.pool.submit(send)
            if soon(lambda: sent.done() or self.pauses.request):
                self.pauses.stop_request(0)
            if self.pauses.request:
                self.drainer_moves(race[1])
                self.pauses.resume_request()
            answer = sent.result(END)
        assert answer.status_code < 500, answer.text
        self.pauses.settle()
        return answer

    def ask(self, path: str, race: Race | None = None, **query: Any) -> Any:
        answer = self.send("GET", path + ("?" + str(httpx2.QueryParams(query)) if query else ""), None, race)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def name(self, task: str) -> str:
        return self.prefix + task

    def nth(self, number: int) -> Expected:
        return [*self.runs.values()][number % len(self.runs)]

    def touch(self, id: str) -> None:
        self.touched = [*self.touched, id][-2:]

    # -- triggers

    def accept(self, made: Expected, cached: bool, sent: float, life: tuple[float, float]) -> None:
        """Checks that a key has one run, and adds that of a trigger that was answered."""
        place, answered = (made.task, made.key), time.time()
        known = self.keys.get(place) if made.key else None
        if cached:
            assert known is not None, f"{made.id} is answered, which nothing has made"
            assert made.id == known.id
            assert sent < known.is_over_at, "the key protects nothing any more"
        else:
            assert known is None or answered > known.lives_until, f"{known.id} has the key"
            assert made.id not in self.runs
            self.runs[made.id] = made
            if made.key:
                self.keys[place] = Protection(made.id, *life)
        self.touch(made.id)

    @rule(
        task=tasks, key=keys, burst=st.booleans(), race=races, own_tags=st.lists(tags, unique=True, max_size=1),
        waits=st.sampled_from([False, False, False, True]), later=st.booleans(), most=st.integers(1, 3),
        frees_key=st.booleans(), short=st.sampled_from([False, False, False, True]),
    )  # fmt: skip
    def trigger(
        self, task: str, key: str, burst: bool, race: Race | None, own_tags: list[str], waits: bool, later: bool,
        most: int, frees_key: bool, short: bool,
    ) -> None:  # fmt: skip
        payload, life, sent = next(self.count), FOREVER, time.time()
        given: dict[str, Any] = {"tags": own_tags, "maxAttempts": most, "freeKeyOnFailure": frees_key}
        given |= {"resumeParentOnCompletion": True} if waits else {}
        given |= {"delay": DELAY} if later else {}
        given |= {"idempotencyKey": key} if key else {}
        with pytest.MonkeyPatch.context() as patch:
            if short and key:  # a second, which has passed but for a moment
                given["idempotencyKeyTTL"] = 1
                patch.setattr(options, "now", lambda: time.time() - 1 + SHORT)
            self.pauses.burst = burst
            body = {"payload": payload, "options": given}
            answer = self.send("POST", f"/api/v1/tasks/{self.name(task)}/trigger", body, race)
        assert answer.status_code == 200, answer.text
        if short and key:
            life = sent + SHORT - MARGIN, time.time() + SHORT + MARGIN
        found = answer.json()
        state = "DELAYED" if later else "QUEUED"
        made = Expected(found["id"], self.name(task), payload, key, [*own_tags], {}, state, most, frees_key)
        made.due, made.stored = not later, not found["buffered"]
        self.accept(made, found["isCached"], sent, life)
        if waits:
            self.runs[found["id"]].stored = True

    @rule(items=st.lists(st.tuples(tasks, keys), min_size=1, max_size=3), burst=st.booleans())
    def trigger_batch(self, items: list[tuple[str, str]], burst: bool) -> None:
        self.pauses.burst, sent, payload = burst, time.time(), next(self.count)
        body = [
            {"task": self.name(task), "payload": payload, "options": {"idempotencyKey": key} if key else {}}
            for task, key in items
        ]
        answer = self.send("POST", "/api/v2/tasks/batch", {"items": body})
        assert answer.status_code == 200, answer.text
        found = zip(answer.json()["runs"], items, strict=True)
        for run, (task, key) in sorted(found, key=lambda each: each[0]["isCached"]):
            made = Expected(run["id"], self.name(task), payload, key, stored=not run["buffered"])
            self.accept(made, run["isCached"], sent, FOREVER)

    @precondition(lambda self: self.runs)
    @rule(number=numbers, key=st.sampled_from(["", "r1", "r2"]), burst=st.booleans(), race=races)
    def replay(self, number: int, key: str, burst: bool, race: Race | None) -> None:
        old, sent, self.pauses.burst = self.nth(number), time.time(), burst
        header = {"idempotency-key": key} if key else {}
        answer = self.send("POST", f"/api/v1/runs/{old.id}/replay", None, race, **header)
        if answer.status_code == 400:
            assert old.key == key != "", answer.text
            return
        assert answer.status_code == 200, answer.text
        found = answer.json()
        made = Expected(found["id"], old.task, old.payload, key, [*old.tags], {**old.metadata}, "QUEUED", old.most)
        made.frees_key, made.stored = old.frees_key, not found["buffered"]
        self.accept(made, found["isCached"], sent, FOREVER)

    @rule(task=tasks, key=st.sampled_from(["k1", "k2", "r1"]), race=races)
    def reset(self, task: str, key: str, race: Race | None) -> None:
        body, sent = {"taskIdentifier": self.name(task)}, time.time()
        answer = self.send("POST", f"/api/v1/idempotencyKeys/{key}/reset", body, race)
        known = self.keys.pop((self.name(task), key), None)
        if known is None or sent > known.is_over_at:
            assert answer.status_code == 404, answer.text
        elif time.time() < known.lives_until:
            assert answer.status_code == 200, answer.text

    @rule()
    def short_keys_expire(self) -> None:
        ends = max((each.is_over_at for each in self.keys.values() if each.is_over_at < FOREVER[0]), default=0.0)
        soon(lambda: time.time() > ends)

    # -- changes

    @precondition(lambda self: self.runs)
    @rule(number=numbers, race=races)
    def cancel(self, number: int, race: Race | None) -> None:
        run = self.nth(number)
        assert self.send("POST", f"/api/v2/runs/{run.id}/cancel", {}, race).status_code == 200
        if run.state not in ENDED:
            self.end(run, "CANCELED")
        self.touch(run.id)

    @precondition(lambda self: self.runs)
    @rule(number=numbers, tag=tags, race=races)
    def tag(self, number: int, tag: str, race: Race | None) -> None:
        run = self.nth(number)
        assert self.send("POST", f"/api/v1/runs/{run.id}/tags", {"tags": tag}, race).status_code == 200
        run.tags += [tag] if tag not in run.tags else []
        self.touch(run.id)

    @precondition(lambda self: self.runs)
    @rule(number=numbers, edit=metadata_edits, race=races)
    def edit_metadata(self, number: int, edit: dict[str, Any], race: Race | None) -> None:
        run = self.nth(number)
        answer = self.send("PUT", f"/api/v1/runs/{run.id}/metadata", edit, race)
        there = run.metadata
        appended = {"log": [*there.get("log", []), "x"], "n": there.get("n", 0) + 1}
        run.metadata = edit.get("metadata", {**there, **appended})
        assert (answer.status_code, answer.json()) == (200, {"metadata": run.metadata})
        self.touch(run.id)

    def end(self, run: Expected, state: str, *, due: bool = True) -> None:
        """The run has ended, and those that waited for it can be taken."""
        run.state = state
        for parent in self.runs.values():
            if parent.state == "WAITING" and parent.child == run.id:
                parent.state, parent.due = "QUEUED", due
        place = (run.task, run.key)
        if state == "FAILED" and run.frees_key and run.key and self.keys.get(place, (None,))[0] == run.id:
            if due:
                del self.keys[place]
            else:  # it gave its key up by a clock that is ahead
                self.keys[place] = Protection(run.id, *UNSURE)

    # -- workers

    @rule(task=tasks, others_died=st.booleans())
    def take(self, task: str, others_died: bool) -> None:
        """A worker takes a run. If others died, all leases have expired, and all that was delayed is due."""
        self.taken(task, others_died)

    def taken(self, task: str, others_died: bool) -> Expected | None:
        """The run that a worker took; None if it got none."""
        app: Any = self.desk.service.service.apps["triggers"]
        if others_died:
            self.ahead += AHEAD
            app.leases.clock = lambda: time.time() + self.ahead
        try:
            answer = self.send("POST", "/api/v1/workers/take", {"tasks": [self.name(task)], "lease": LEASE})
        finally:
            app.leases.clock = None
        assert answer.status_code == 200, answer.text
        taken = answer.json()["run"]
        left = [each for each in self.runs.values() if each.task == self.name(task)]
        if others_died:
            self.fail_exhausted(left, taken is None)
        due = {each.id for each in left if self.can_be_taken(each, others_died)}
        if taken is None:
            assert [id for id in due if self.runs[id].stored] == [], "a stored run that is due is given to a worker"
            return None
        assert taken["id"] in due, f"it is {self.runs[taken['id']]}"
        run = self.runs[taken["id"]]
        run.state, run.attempts, run.token, run.stored = "EXECUTING", run.attempts + 1, taken["token"], True
        facts = {"payload": run.payload, "attempt": run.attempts, "tags": run.tags, "metadata": run.metadata}
        assert {name: taken[name] for name in facts} == facts
        self.held.append((run.id, run.token))
        self.touch(run.id)
        return run

    @staticmethod
    def can_be_taken(run: Expected, others_died: bool) -> bool:
        if others_died:
            return run.state in ("QUEUED", "DELAYED") or (run.state == "EXECUTING" and run.attempts < run.most)
        return run.state in ("QUEUED", "DELAYED") and run.due

    def fail_exhausted(self, runs: list[Expected], all_of_them: bool) -> None:
        """Of runs whose worker died in their last attempt, those fail that are found before one that can be taken."""
        for run in runs:
            if run.state == "EXECUTING" and run.attempts >= run.most:
                status = self.ask(f"/api/v3/runs/{run.id}")["status"]
                assert status == "FAILED" or (status == "EXECUTING" and not all_of_them)
                if status == "FAILED":
                    self.end(run, "FAILED", due=False)

    def settled(self, number: int, how: str, **body: Any) -> Expected | None:
        """The run of a worker that ends an attempt so; None if it has lost the run, which it learns. If no worker has
        one, one takes a run first."""
        if not self.held and not self.taken("a", others_died=False):
            return None
        id, token = self.held.pop(number % len(self.held))
        answer = self.send("POST", f"/api/v1/runs/{id}/{how}", {"token": token, **body})
        run = self.runs[id]
        self.touch(id)
        if run.state != "EXECUTING" or run.token != token:
            assert answer.status_code == 410, answer.text
            return None
        assert answer.status_code == 200, answer.text
        return run

    @rule(number=numbers)
    def complete(self, number: int) -> None:
        run = self.settled(number, "complete", output=number)
        if run is not None:
            self.end(run, "COMPLETED")

    @rule(number=numbers, soon=st.booleans(), retry=st.booleans())
    def fail(self, number: int, soon: bool, retry: bool) -> None:
        run = self.settled(number, "fail", error="no", retry=retry, delay=0 if soon else DELAY)
        if run is not None and retry and run.attempts < run.most:
            run.state, run.due = "DELAYED", soon
        elif run is not None:
            self.end(run, "FAILED")

    @rule(number=numbers)
    def release(self, number: int) -> None:
        run = self.settled(number, "release")
        if run is not None:
            run.state, run.due, run.attempts = "QUEUED", True, run.attempts - 1

    @precondition(lambda self: self.runs)
    @rule(number=numbers, of=numbers)
    def wait_for_child(self, number: int, of: int) -> None:
        parent = self.held[number % len(self.held)][0] if self.held else ""
        child = self.nth(of)
        if parent in ("", child.id):
            return
        run = self.settled(number, "wait", child=child.id)
        if run is not None:
            child.stored, run.child, run.attempts, run.due = True, child.id, run.attempts - 1, True
            run.state = "QUEUED" if child.state in ENDED else "WAITING"

    @rule()
    def heartbeat(self) -> None:
        if not self.held:
            return
        body = {"runs": [{"id": id, "token": token} for id, token in self.held], "lease": LEASE}
        answer = self.send("POST", "/api/v1/workers/heartbeat", body).json()["runs"]
        mine = [self.runs[id].state == "EXECUTING" and self.runs[id].token == token for id, token in self.held]
        assert [each["left"] is not None for each in answer] == mine

    # -- the drainer

    @rule(moves=moves)
    def drainer_moves(self, moves: list[tuple[int, bool]]) -> None:
        """It does its next step with an item, or drops the item, which is then taken again."""
        for number, fails in moves:
            order = {id: place for place, id in enumerate(self.runs)}
            ids = sorted(self.pauses.items, key=lambda id: order.get(id, len(order)))
            if not ids:
                return
            id = ids[number % len(ids)]
            done = self.pauses.move(id, fails=fails)
            if id in self.runs and (done == STORED or (done == SEALED and not fails)):
                self.runs[id].stored = True

    @rule(several=st.lists(interruptions, min_size=2, max_size=6))
    def runs_are_changed_while_they_are_drained(self, several: list[Interruption]) -> None:
        """The shortest way to what is rarely met by chance: a buffered run is changed after so many steps of the
        drainer, which then goes on. Each is read after each change and step."""
        plain: dict[str, Any] = {"task": "a", "own_tags": [], "waits": False, "most": 2, "frees_key": False}
        for each in several:
            while self.pauses.items:  # nothing else is in its way
                self.drainer_moves([(0, False)])
            self.trigger(**plain, key=each.key, burst=True, race=None, later=False, short=False)
            number = [*self.runs].index(self.touched[-1])
            self.drainer_moves([(0, False)] * each.before)
            if each.change == "reset":
                self.reset("a", each.key or "k1", each.race)
                self.trigger(**plain, key=each.key, burst=True, race=None, later=False, short=False)
            elif each.change == "tag":
                self.tag(number, "x", each.race)
            elif each.change == "cancel":
                self.cancel(number, each.race)
            else:
                self.edit_metadata(number, {"metadata": {"n": 7}}, each.race)
            for _ in range(each.after):
                self.what_was_touched_is_read_as_written()
                self.drainer_moves([(0, False)])
            self.what_was_touched_is_read_as_written()
            self.taken("a", others_died=False)

    # -- what is read

    @precondition(lambda self: self.runs)
    @rule(number=numbers, race=races)
    def read(self, number: int, race: Race | None) -> None:
        self.check(self.nth(number), self.ask(f"/api/v3/runs/{self.nth(number).id}", race))

    @staticmethod
    def check(run: Expected, found: dict[str, Any], *, payload: bool = True) -> None:
        wanted = {**run.read, **({"payload": run.payload} if payload else {})}
        assert {name: found.get(name) for name in wanted} == wanted

    @rule(by=st.sampled_from(["", "x", "QUEUED", "CANCELED"]))
    def list_runs(self, by: str) -> None:
        """A list has all stored runs, each as it is read by its id."""

        def mine(run: Expected) -> bool:
            return by in ("", run.state, *run.tags)

        kind: Literal["status", "tag"] = "status" if by.isupper() else "tag"
        query: dict[str, Any] = {"filter[taskIdentifier]": f"{self.name('a')},{self.name('b')}", "page[size]": 100}
        query |= {f"filter[{kind}]": by} if by else {}
        found = self.ask("/api/v1/runs", **query)["data"]
        ids = [run["id"] for run in found]
        assert len({*ids}) == len(ids)
        assert {id for id, run in self.runs.items() if run.stored and mine(run)} <= {*ids}
        for run in found:
            assert mine(self.runs[run["id"]])
            self.runs[run["id"]].stored = True
            self.check(self.runs[run["id"]], run, payload=False)

    @invariant()
    def what_was_touched_is_read_as_written(self) -> None:
        for id in {*self.touched}:
            self.check(self.runs[id], self.ask(f"/api/v3/runs/{id}"))

    def teardown(self) -> None:
        """All that is buffered is stored. Then each accepted run is there, as it was written, and a worker gets every
        one that has not ended."""
        failed = sys.exc_info()[0] is not None
        self.pauses.stop_request(0)
        if self.pauses.request:
            self.pauses.resume_request()
        while self.pauses.items:
            self.drainer_moves([(0, False)])
        if failed:
            return
        for run in self.runs.values():
            run.stored = True
        self.list_runs("")
        self.held.clear()
        for number, run in enumerate([*self.runs.values()]):
            if run.state == "WAITING":  # maybe for each other
                self.cancel(number, None)
        for task in ("a", "b"):
            while self.taken(task, others_died=True):
                self.complete(-1)
        assert {run.state for run in self.runs.values()} <= ENDED
        for run in self.runs.values():
            self.check(run, self.ask(f"/api/v3/runs/{run.id}"))


class Kind(NamedTuple):
    """Where runs are buffered, and how many examples are tried there."""

    buffer: str
    examples: int


KINDS = {"memory-sqlite": Kind("store", 15), "sqlite-sqlite": Kind("sql", 15), "valkey-postgres": Kind("store", 5)}
ALL, STEPS = 8, 15  # how many times as many examples `--all` tries; calls of an example


@pytest.fixture(scope="module", params=[each for each in KINDS if each in ("memory-sqlite", *PAIRS)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, kind: str) -> Iterator[Place]:
    """A service whose drainer stands still, on each kind of database and buffer."""
    url, data_url = PAIRS[kind](request) if kind in PAIRS else ("memory://", "sqlite:///:memory:")
    given = {"buffer": KINDS[kind].buffer, "drain_at_once": AT_ONCE}
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        pauses = Pauses(patch, AT_ONCE)
        with operating("triggers", given, url=url, data_url=data_url) as it:
            pauses.watch(it.service)
            yield Place(Desk(it.service), pauses, pool, itertools.count())


@pytest.mark.timeout(900)  # a failure is made smaller for some minutes
def test_no_sequence_of_calls_loses_a_run_or_a_change(place: Place, kind: str, thorough: bool) -> None:
    how = settings(
        max_examples=KINDS[kind].examples * (ALL if thorough else 1),
        stateful_step_count=STEPS * (2 if thorough else 1),
        derandomize=not thorough,
        database=None,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    machine: Any = partial(TriggersMachine, place)
    run_state_machine_as_test(machine, settings=how)
