"""Random sequences of webhooks, polls, failures, repeats, replays and deaths of two replicas, against a model of what
each job must have done: its command runs until it has succeeded once, and its result is pushed and posted once.

Both replicas are whole services on one store, whose clock the machine moves; the forge answers on loopback. Only git
and the commands are stand-ins, so that the machine decides when a command ends, and how. A replica dies at any
operation on its store, before or after that is performed, and nothing of it goes on after that.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from solely import AsyncClient, QueueWorker
from solely.apps.repos.app import ReposApp
from solely.apps.repos.intake import KNOWN, QUEUED, JobIntake, Outcome
from solely.apps.repos.jobs import handlers
from solely.apps.repos.jobs.assembly import JobServices, assemble
from solely.apps.repos.jobs.commands import CommandFailed, CommandOutput
from solely.apps.repos.jobs.git import GitUnreachable, PushDeclined, PushRejected
from solely.apps.repos.jobs.markers import failure_marker, marker_of, run_id
from solely.apps.repos.jobs.performer import JobPerformer
from solely.apps.repos.jobs.postings import Posting
from solely.apps.repos.jobs.results import JobResults
from solely.apps.repos.jobs.settings import JobCommand, JobSettings
from solely.apps.repos.model import FAILURES, JOBS, RepoJob, own, received_key
from solely.data import Journal
from solely.ops import Op
from solely.service.app import AsgiApp
from solely.service.mount import mount
from solely.service.service import Service
from solely.stores import Answers, AsyncStore
from solely.stores.memory import Memory
from solely.stores.memory.handles import AsyncMemoryStore
from solely.testing import ManualClock
from tests.apps.operator import BECAUSE
from tests.apps.repos.forge_server import TOKEN, Forges, forges, lost_answer, refusal
from tests.apps.repos.pods import HOOK
from tests.service.serving import LINES, TOKENS, bearer
from tests.service.serving import settings as service_settings

MAX_ATTEMPTS = 2
TTL = 600.0  # seconds of the leases of a job: no machine is so slow that they would have to be renewed
DAY = 24 * 3600.0
ENDINGS = ("well", "well", "fails", "declined", "answer lost", "post lost", "forge away")
JOB_SETTINGS = JobSettings(
    review=JobCommand(argv=("review",)),
    command=JobCommand(argv=("command",)),
    max_attempts=MAX_ATTEMPTS,
    ttl=TTL,
    lock_wait=0.0,
    outage_pause=2.0,
)
EXAMPLES, MORE = 25, 400
REPLICAS = ("a", "b")
replicas = st.sampled_from(REPLICAS)
numbers = st.integers(0, 11)  # which of the events that there are, or of the repeats of its deliveries
Death = tuple[int, bool] | None
endings = st.sampled_from(ENDINGS)
# A process dies at which operation on the store, and whether that is performed.
deaths = st.none() | st.none() | st.tuples(st.integers(0, 9), st.booleans())
_names = count()


class Killed(BaseException):
    """The process has died: nothing catches this."""


class MortalStore(AsyncMemoryStore):
    """The handle of a process on the store, until that dies."""

    left: int | None = None  # operations until then; None while it lives on
    performs_last = False
    dead = False

    def perform(self, ops: Sequence[Op]) -> asyncio.Future[Answers]:
        if self.left == 0:
            self.dead, self.left = True, None
            if self.performs_last:
                super().perform(ops)
        if self.dead:
            answer: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
            answer.set_exception(Killed())
            return answer
        if self.left is not None:
            self.left -= 1
        return super().perform(ops)


class OneService(Service):
    """A service whose connection to the store the machine can end. Nothing happens in it by itself."""

    memory: Memory

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()

    def another_store(self) -> AsyncStore:
        self.mortal = MortalStore(self.memory)
        return self.mortal


@dataclass
class Commit:
    id: str
    run: str  # that made it; empty: a person


@dataclass
class Repository:
    """A repository as far as jobs see it, in place of one on disk."""

    folder: Path = Path()
    branches: dict[str, list[Commit]] = field(default_factory=dict)

    def tip(self, branch: str) -> str:
        """The head that the forge reports: of a person, so that what a command pushes is not one more review."""
        return next((each.id for each in reversed(self.branches.get(branch, [])) if not each.run), "")

    def commit(self, branch: str, *_: object, **__: object) -> str:
        self.branches.setdefault(branch, []).append(Commit(f"{next(_names):040x}", ""))
        return self.tip(branch)

    def git(self, *_: str) -> str:
        return ""


class StandIn:
    """A clone of such a repository, as `GitClone`."""

    world: ClassVar[World]
    work = Path()

    def __init__(self, folder: Path, url: str, *_: object) -> None:
        self._origin = self.world.repositories[url]
        self._branches: dict[str, list[Commit]] = {}
        self._made = Commit("", "")

    async def clone(self) -> None:
        self._branches = {name: list(commits) for name, commits in self._origin.branches.items()}

    async def has(self, commit: str) -> bool:
        return any(commit == each.id for commits in self._branches.values() for each in commits)

    async def tip(self, branch: str) -> str:
        found = self._branches.get(branch)
        return found[-1].id if found else ""

    async def commit_of(self, run: str, branch: str, target: str) -> str:
        return next((each.id for each in self._branches[branch] if each.run == run), "")

    async def last_fence(self, branch: str, target: str) -> int:
        return 0

    async def check_out(self, commit: str) -> None:
        assert await self.has(commit)

    async def commit(self, start: str, message: str, trailers: Sequence[str], author: object) -> str:
        self._made = Commit(f"{next(_names):040x}", trailers[0].partition(": ")[2])
        return self._made.id

    async def push(self, commit: str, branch: str, start: str) -> None:
        how = self.world.pushes.pop(self._made.run, "")
        if how == "declined":
            raise PushDeclined("the forge declined the push")
        if self._origin.branches[branch][-1].id != start:
            raise PushRejected("the branch has changed")
        self._origin.branches[branch].append(self._made)
        if how == "answer lost":
            raise GitUnreachable("no answer")


@dataclass
class RunningCommand:
    """A command that waits for the machine to end it."""

    job: RepoJob
    ends: asyncio.Future[str]


@dataclass
class World:
    """What all replicas share beside the store."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    pushes: dict[str, str] = field(default_factory=dict)  # how the next push of a run fares, if not well
    running: dict[str, RunningCommand] = field(default_factory=dict)  # by worker
    begun: Counter[str] = field(default_factory=Counter)  # commands, by the key of their job
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    wrong: list[str] = field(default_factory=list)  # what must not happen, and has

    async def run_command(self, command: object, job: RepoJob, folder: Path, secrets: Iterable[str]) -> CommandOutput:
        """As `commands.run_command`."""
        name = _worker.get()
        others = [each.job for each in self.running.values()]
        if job.key in [each.key for each in others]:
            self.wrong.append(f"two commands of {job.key} at a time")
        if job.kind == "command" and job.git_http_url in [
            each.git_http_url for each in others if each.kind == job.kind
        ]:
            self.wrong.append(f"two writers of {job.git_http_url} at a time")
        self.begun[job.key] += 1
        self.running[name] = it = RunningCommand(job, asyncio.get_running_loop().create_future())
        self.changed.set()
        try:
            if await it.ends == "fails":
                raise CommandFailed("exited with 1", "its log")
        finally:
            del self.running[name]
        return CommandOutput("It is done.", "its log")


_worker: ContextVar[str] = ContextVar("worker")  # the name of the one that a task works for


@dataclass
class Expected:
    """What has become of a job so far. `settled` is how often its command had begun when nothing was to begin it again:
    it had succeeded, or it had failed for good and no person has asked for more."""

    project: int
    iid: int
    runs: int = 0  # how often a person had it begin anew
    accepted: bool = False
    settled: int | None = None
    letters: set[str] = field(default_factory=set)  # that it has ever been


class Replica:
    """A service, and the half of it that performs jobs, which dies and comes back."""

    def __init__(self, name: str, memory: Memory, given: dict[str, Any], world: World) -> None:
        self.name, self.world = name, world
        service = OneService(service_settings(**given))
        service.memory = memory
        self.service, self.asgi = service, AsgiApp(service, mount(service))
        transport = httpx2.ASGITransport(app=self.asgi)
        self.http = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60.0)
        self.task: asyncio.Task[Any] | None = None

    @property
    def app(self) -> ReposApp:
        app = self.service.apps["repos"]
        assert isinstance(app, ReposApp)
        return app

    async def open(self) -> None:
        await self.asgi.open()
        self.begin()

    def begin(self) -> None:
        """The worker as one that has just started."""
        app, metrics = self.app, self.service.metrics
        self.store = MortalStore(self.service.memory)
        once = AsyncClient(store=self.store)
        self.journal = Journal(self.service.data, app._statement("record_job"), order=("id",))
        services = JobServices(once, self.journal, app.queries, metrics, _report)
        self.parts = assemble(services, msgspec.structs.replace(app.settings, jobs=JOB_SETTINGS), app.callers)
        options: Any = {"ttl": TTL, "max_attempts": MAX_ATTEMPTS}
        letters = once.dead_letters(own(JOBS))
        self.jobs = QueueWorker(once.queue(own(JOBS)), self.parts.performer.perform, dead_letters=letters, **options)
        letters = once.dead_letters(own(FAILURES))
        self.notices = QueueWorker(once.queue(own(FAILURES)), self.parts.notices.post, dead_letters=letters)
        self.service.dashboard.replays[own(JOBS)] = self.jobs.replay

    async def run(self, work: Coroutine[Any, Any, Any], death: Death) -> None:
        """Has the worker do this, until it is done, waits for its command, or dies."""
        _worker.set(self.name)
        self.task = asyncio.create_task(work)
        await self.go_on(death)

    async def go_on(self, death: Death) -> None:
        """Returns when the worker has nothing to do, waits for its command, or has died and begun again."""
        assert self.task is not None
        self.store.left, self.store.performs_last = death or (None, False)
        while not self.task.done() and self.name not in self.world.running:
            begun = asyncio.ensure_future(self.world.changed.wait())
            await asyncio.wait({self.task, begun}, timeout=60.0, return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
            self.world.changed.clear()
        if self.task.done():
            task, self.task = self.task, None
            try:
                task.result()
            except Killed:
                self.begin()  # what it had not recorded is lost
                return
        self.store.left = None
        await self.journal.flush()

    async def drain(self) -> None:
        """Performs what is due."""
        await self.jobs.drain()
        await self.notices.drain()

    async def ask(
        self, path: str, body: object, headers: Mapping[str, str], death: Death = None
    ) -> httpx2.Response | None:
        """The answer; None if the service has died before it. It is back at once."""
        mortal = self.service.mortal
        mortal.left, mortal.performs_last = death or (None, False)
        try:
            return await self.http.post(path, json=body, headers=dict(headers))
        except Killed:
            return None
        finally:
            mortal.left, mortal.dead = None, False

    async def act(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What an admin is answered."""
        answer = await self.ask(path, body, bearer(TOKENS["admin"]))
        assert answer is not None
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def replay(self, id: str) -> None:
        """Replays this dead letter; ends with the worker if that dies."""
        headers = bearer(TOKENS["admin"])
        answer = await self.http.post("/v1/dead-letters/replay", json={"group": own(JOBS), "id": id}, headers=headers)
        assert answer.status_code == 200, answer.text

    async def close(self) -> None:
        await self.http.aclose()
        await self.service.close()


async def _report(job: RepoJob, error: str) -> None:
    """Alerts are not of interest here."""


class ReposMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.runner, self.ends = asyncio.Runner(), ExitStack()
        folder = Path(self.ends.enter_context(tempfile.TemporaryDirectory()))
        self.stub: Forges = self.ends.enter_context(forges(folder / "forge"))
        self.world = StandIn.world = World()
        patch = self.ends.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(handlers, "GitClone", StandIn)
        patch.setattr(handlers, "run_command", self.world.run_command)
        patch.setattr(self.stub, "repository", self._repository)
        self.clock = ManualClock(time.time())
        self.expected: dict[str, Expected] = {}
        self.events: list[tuple[str, str, dict[str, Any]]] = []  # key, name and body
        self.replaying: set[str] = set()
        self.failed: set[str] = set()  # for good
        self.fresh = 1_000  # the next delivery that is none of those before
        self.runner.run(self._begin(folder))

    def _repository(self, path: str) -> Repository:
        made = self.world.repositories[f"{self.stub.url}/{path}.git"] = Repository()
        made.commit("main")
        return made

    async def _begin(self, folder: Path) -> None:
        gitlab = self.stub.gitlab
        self.projects = [gitlab.project("group/one"), gitlab.project("group/two")]
        hooks = {"url": self.stub.url, "token": TOKEN, "webhook_tokens": [HOOK], "projects": self.projects}
        given = {
            "data_url": f"sqlite:///{folder / 'data.db'}", "tokens": LINES, "apps": ("repos",), "history": 0,
            "repos": {"gitlab": {**hooks, "poll_every": DAY}, "jobs": {"folder": str(folder)}},
        }  # fmt: skip
        self.memory = Memory(clock=self.clock)
        self.own = AsyncClient(store=AsyncMemoryStore(self.memory))
        self.queue, self.letters = self.own.queue(own(JOBS)), self.own.dead_letters(own(JOBS))
        self.replicas = {name: Replica(name, self.memory, given, self.world) for name in REPLICAS}
        for replica in self.replicas.values():
            await replica.open()
        for source in self.replicas["a"].app.pollers.sources:
            await self.replicas["a"].app.pollers.poll(source)  # what happens from now on is polled

    # -- what happens at the forge

    @precondition(lambda self: len(self.events) < 5)
    @rule(number=numbers, review=st.booleans())
    def something_happens(self, number: int, review: bool) -> None:
        gitlab, project = self.stub.gitlab, self.projects[number % 2]
        if review or not gitlab.merge_requests[project]:
            branch = f"feature-{len(self.events)}"
            gitlab.repositories[project].commit(branch, {})
            iid = gitlab.merge_request(project, branch)["iid"]
            event = gitlab.merge_request_event(project, iid)
            key = f"review:{project}:{iid}:{event['object_attributes']['last_commit']['id']}"
            self.events.append((key, "Merge Request Hook", event))
        else:
            iid = gitlab.merge_requests[project][number // 2 % len(gitlab.merge_requests[project])]["iid"]
            note = gitlab.note(project, iid, "/copilot work")
            key = f"note:{project}:{iid}:{note['id']}"
            self.events.append((key, "Note Hook", gitlab.note_event(project, iid, note)))
        self.expected[key] = Expected(project, iid)

    # -- what the service is told

    @precondition(lambda self: self.events)
    @rule(number=numbers, delivery=st.integers(0, 2), replica=replicas, death=deaths)
    def event_is_delivered(self, number: int, delivery: int, replica: str, death: Death) -> None:
        """By any hook, in any order, again, and also while the replica dies."""
        key, name, body = self.events[number % len(self.events)]
        headers = {"x-gitlab-token": HOOK, "x-gitlab-event": name, "idempotency-key": f"{key}/{delivery}"}
        answer = self.runner.run(self.replicas[replica].ask("/api/repos/gitlab", body, headers, death))
        if answer is not None:
            assert answer.status_code in (200, 202), answer.text
            assert [each["key"] for each in answer.json()["jobs"]] == [key]
            self.expected[key].accepted = True

    @precondition(lambda self: self.events)
    @rule(number=numbers, replica=replicas, token=st.sampled_from(["", "another", HOOK.upper()]))
    def event_is_forged(self, number: int, replica: str, token: str) -> None:
        """The invariant finds a job that nobody reported."""
        _, name, body = self.events[number % len(self.events)]
        headers = {"x-gitlab-token": token, "x-gitlab-event": name, "idempotency-key": "forged"}
        answer = self.runner.run(self.replicas[replica].ask("/api/repos/gitlab", body, headers))
        assert answer is not None
        assert answer.status_code == 401

    @rule(replica=replicas, death=deaths)
    def forge_is_polled(self, replica: str, death: Death) -> None:
        it = self.replicas[replica]

        async def poll() -> bool:
            it.service.mortal.left, it.service.mortal.performs_last = death or (None, False)
            try:
                for source in it.app.pollers.sources:
                    await it.app.pollers.poll(source)
                return True
            except Killed:
                return False
            finally:
                it.service.mortal.left, it.service.mortal.dead = None, False

        if self.runner.run(poll()):
            for expected in self.expected.values():
                expected.accepted |= not expected.runs  # one that was forgotten may be older than the poll looks back

    # -- what workers do

    @rule(replica=replicas, death=deaths)
    def worker_works(self, replica: str, death: Death) -> None:
        it = self.replicas[replica]
        if it.task is None:
            self.runner.run(it.run(it.drain(), death))

    @precondition(lambda self: self.world.running)
    @rule(replica=replicas, how=endings, death=deaths)
    def command_ends(self, replica: str, how: str, death: Death) -> None:
        self._end(replica if replica in self.world.running else next(iter(self.world.running)), how, death)

    @precondition(lambda self: self.events)
    @rule(number=numbers, replica=replicas, several=st.lists(st.tuples(endings, deaths), min_size=1, max_size=3))
    def event_is_worked_on(self, number: int, replica: str, several: list[tuple[str, Death]]) -> None:
        """It is reported, and attempt follows attempt."""
        self.event_is_delivered(number, 0, replica, None)
        for how, death in several:
            self.worker_works(replica, None)
            if replica in self.world.running:
                self._end(replica, how, death)
            self.each_job_is_done_once_and_none_is_lost()
            if not self.world.running:
                self.time_passes(2 * TTL)

    @precondition(lambda self: self.events and not self.world.running)
    @rule(replica=replicas)
    def everything_is_reported_a_day_later(self, replica: str) -> None:
        self.time_passes(DAY + 3600.0)
        for number in range(len(self.events)):
            self.event_is_delivered(number, self.fresh, replica, None)
        self.fresh += 1
        self.each_job_is_done_once_and_none_is_lost()
        self.worker_works(replica, None)

    def _end(self, replica: str, how: str, death: Death = None) -> None:
        """Ends the command of this worker; if nobody dies meanwhile, the job is settled by that."""
        it, running = self.replicas[replica], self.world.running[replica]
        key, expected = running.job.key, self.expected[running.job.key]
        item, run = self._read(key), self._run(key)
        posts = rf"merge_requests/{expected.iid}/notes$"
        if how == "post lost":
            self.stub.meet("POST", posts, lost_answer)
        elif how == "forge away":
            self.stub.meet("POST", posts, refusal(503, 1))
        elif how != "fails" and running.job.kind == "command":
            self.world.pushes[run] = how
        running.ends.set_result(how)
        store = it.store
        self.runner.run(it.go_on(death))
        self.world.pushes.pop(run, None)
        self.stub._met.clear()
        if store.dead or key in self.replaying:
            self._replayed(key)
            return
        final = item is not None and item.attempts >= MAX_ATTEMPTS
        if (how == "declined" and running.job.kind == "command") or (how == "fails" and final):
            assert self._letters(key) - expected.letters, "it failed for good, and is no dead letter"
        if how != "fails":
            expected.settled = self.world.begun[key]

    @precondition(lambda self: self.world.running)
    @rule(replica=replicas)
    def worker_is_killed(self, replica: str) -> None:
        """While its command runs, which ends with it."""
        replica = replica if replica in self.world.running else next(iter(self.world.running))
        it, running = self.replicas[replica], self.world.running[replica]
        it.store.dead = True
        running.ends.set_exception(Killed())
        self.runner.run(it.go_on((0, False)))
        self._replayed(running.job.key)

    def _replayed(self, key: str) -> None:
        if key in self.replaying:  # whatever came of it, nothing begins it again by itself
            self.replaying.discard(key)
            self.expected[key].settled = self.world.begun[key]

    @rule(replica=replicas)
    def lost_jobs_are_looked_for(self, replica: str) -> None:
        """As each service does about once a minute."""

        async def look() -> None:
            for _ in range(2):
                await self.replicas[replica].parts.performer.fail_lost()

        if self.replicas[replica].task is None:
            self.runner.run(look())

    # -- what people do

    @precondition(lambda self: self.events)
    @rule(number=numbers, replica=replicas, again=st.booleans())
    def person_repeats_or_forgets(self, number: int, replica: str, again: bool) -> None:
        key, _, _ = self.events[number % len(self.events)]
        expected, act = self.expected[key], "repeat" if again else "forget"
        if key in self.replaying or key in [each.job.key for each in self.world.running.values()]:
            return
        answer = self.runner.run(self.replicas[replica].act(f"/api/repos/{act}", {"key": key, "reason": BECAUSE}))
        if answer["queued" if again else "forgotten"]:
            expected.runs, expected.settled, expected.accepted = expected.runs + 1, None, again

    @rule(number=numbers, replica=replicas, death=deaths)
    def person_replays(self, number: int, replica: str, death: Death) -> None:
        it = self.replicas[replica]
        letters = self.runner.run(self._all_letters())
        if it.task is not None or not letters:
            return
        letter = letters[number % len(letters)]
        key = letter.payload["key"]
        if self._read(key) is not None or key in self.replaying:
            return
        self.replaying.add(key)
        self.runner.run(it.run(it.replay(letter.id), death))
        if it.task is None:
            self._replayed(key)

    # -- time

    @precondition(lambda self: not self.world.running)
    @rule(seconds=st.sampled_from([3.0, 2 * TTL, DAY + 3600.0]))
    def time_passes(self, seconds: float) -> None:
        """Leases of workers that died, pauses, and the marks of jobs expire."""
        if seconds > DAY:
            for name in REPLICAS:
                self.lost_jobs_are_looked_for(name)
        self.clock.advance(seconds)
        self.stub.ahead += timedelta(seconds=seconds)

    # -- the model

    @invariant()
    def each_job_is_done_once_and_none_is_lost(self) -> None:
        if hasattr(self, "runner"):
            assert self.world.wrong == []
            for key, expected in self.expected.items():
                self._check(key, expected)

    def _check(self, key: str, expected: Expected) -> None:
        comments = self.stub.gitlab.comments(expected.project, expected.iid)
        commits = [each for branch in self._repository_of(expected).branches.values() for each in branch]
        runs = [run_id(key, number) for number in range(expected.runs + 1)]
        for run in runs:
            assert _with(comments, marker_of(run, TOKEN)) <= 1, f"two results of {run}"
            assert _with(comments, failure_marker(run, TOKEN)) <= 1, f"two failures of {run}"
            assert sum(each.run == run for each in commits) <= 1, f"two commits of {run}"
        item, letters, begun = self._read(key), self._letters(key), self.world.begun[key]
        done = _with(comments, marker_of(runs[-1], TOKEN)) == 1
        if not expected.accepted and not expected.runs and not done:
            assert not begun or item is not None or letters, "a job of which nobody has heard"
        if expected.accepted:
            assert item is not None or letters or done, "an accepted job is lost"
        if done or any(each.run == runs[-1] for each in commits):
            expected.settled = begun if expected.settled is None else expected.settled
        if item is None and letters - expected.letters:  # it has just failed for good, and was not left in between
            expected.letters |= letters
            expected.settled = begun
            self.failed.add(key)
        if expected.settled is None:
            self.failed.discard(key)
        elif key not in self.replaying:
            assert begun == expected.settled, "a job that was over began again"
        if key in self.failed and key not in self.replaying:
            assert item is None, "a job that failed for good is in the queue again"

    def _repository_of(self, expected: Expected) -> Repository:
        return self.world.repositories[self.stub.gitlab.projects[expected.project]["git_http_url"]]

    def _run(self, key: str) -> str:
        return run_id(key, self.expected[key].runs)

    def _read(self, key: str) -> Any:
        return self.runner.run(self.queue.read(key))

    def _letters(self, key: str) -> set[str]:
        return {each.id for each in self.runner.run(self._all_letters()) if each.payload["key"] == key}

    async def _all_letters(self) -> list[Any]:
        return list(await self.letters.list())

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        with self.ends, self.runner:
            try:
                self._finish()
            finally:
                self.runner.run(self._close())

    def _finish(self) -> None:
        """Everything that was accepted is performed, or has failed for good, once nothing goes wrong any more."""
        for _ in range(40):
            while self.world.running:
                self._end(next(iter(self.world.running)), "well")
            self.time_passes(2 * TTL)
            self.worker_works("a", None)
            self.each_job_is_done_once_and_none_is_lost()
            if not self.world.running and not self.runner.run(self.queue.count()):
                break
        else:
            raise AssertionError("jobs wait for ever")

    async def _close(self) -> None:
        for name in [*self.world.running]:
            self.replicas[name].store.dead = True
            self.world.running[name].ends.set_exception(Killed())
        for replica in self.replicas.values():
            if replica.task is not None:
                await asyncio.wait({replica.task})
                replica.task.exception()
            await replica.close()
        await self.own.close()


def _with(comments: list[str], marker: str) -> int:
    return sum(marker in each for each in comments)


def check(examples: int, **more: Any) -> None:
    run_state_machine_as_test(
        ReposMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            **more,
        ),
    )


def test_jobs_are_performed_once_whatever_happens(thorough: bool) -> None:
    check(MORE if thorough else EXAMPLES)


# -- that it would find a defect


async def _nothing(*_: object) -> None:
    """In place of a step that is left out."""


async def _marked_first(intake: JobIntake, job: RepoJob, delivery: str) -> Outcome:
    fresh = await intake._once.first(received_key(job.key), ttl=job.keep)
    if fresh:
        await intake._queue.push(job.key, msgspec.to_builtins(job))
    return QUEUED if fresh else KNOWN


async def _never(*_: object) -> bool:
    return False


BUGS: dict[str, tuple[object, str, object]] = {
    "a job that failed for good runs again after a day": (JobPerformer, "_stays_failed", _nothing),
    "a job is known before it is in the queue": (JobIntake, "_decide", _marked_first),
    "a result is not kept until it is posted": (JobResults, "keep", _nothing),
    "a comment is not looked for": (Posting, "is_posted", _never),
}


@pytest.mark.only_with_all
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[bug])
    with pytest.raises(AssertionError):
        check(MORE, phases=[Phase.generate])
