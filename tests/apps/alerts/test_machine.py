"""Random sequences of alerts, resolutions, acknowledgements and silences, sent to two replicas that freeze, die and
lose their receivers at any moment, against a model of what people must have been told."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from solely.apps.alerts.inputs.labels import label_fingerprint
from solely.apps.alerts.model import Alert, Notification
from solely.apps.alerts.notifications import outbox
from solely.apps.alerts.notifications.outbox import Outbox
from solely.apps.alerts.publishers import Publisher, PublishFailed
from solely.apps.alerts.suppression.open_alerts import OpenAlerts
from solely.apps.alerts.suppression.silences import Silences
from solely.stores.memory import Memory
from solely.testing.clock import ManualClock
from tests.apps.replicas import Replica

HOLD, QUIET = 60.0, 300.0
MOMENT = 0.3  # seconds, in which every replica forgets what it cached
SETTINGS = {"policies": {"critical": {"hold": HOLD, "quiet": QUIET, "limit": 0}}, "max_attempts": 1000, "backoff": [1]}
SWEEPS = 100  # after which the outbox of healthy replicas is empty: a notification takes one or two
FIRING, RESOLVED = "firing", "resolved"

names, replicas = st.sampled_from(["disk"] * 3 + ["cpu"]), st.sampled_from(["a", "b"])
statuses = st.sampled_from([FIRING, FIRING, RESOLVED])
forms = st.sampled_from(["own", "webhook", "v2"])
moods = st.sampled_from(["takes", "takes", "fails", "takes but fails", "refuses", "hangs", "takes and hangs"])


@dataclass
class Told:
    """What people were told of an alert."""

    ids: dict[str, str] = field(default_factory=dict)  # notifications that receivers have, or refused for good → status
    arrived: set[str] = field(default_factory=set)  # those that receivers have
    window: tuple[str, float] | None = None  # the last firing one, and when it was first taken

    @property
    def fires(self) -> bool:
        """True if people know that it fires, and nothing of it failed since."""
        return self.last == self.last_decided == FIRING

    @property
    def last(self) -> str:
        return next((status for id, status in reversed(self.ids.items()) if id in self.arrived), "")

    @property
    def last_decided(self) -> str:
        """Of those that became dead letters, too."""
        return next(reversed(self.ids.values()), "")


@dataclass
class People(Publisher):
    """The receiver of one replica, whose mood the test sets; `told` is what all replicas have told people."""

    told: dict[str, Told]
    refused: set[str]
    clock: ManualClock
    name: str = "people"
    mood: str = "takes"
    replica: Replica | None = None
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    wrong: list[str] = field(default_factory=list)

    def wants(self, alert: Alert) -> bool:
        return True

    async def publish(self, notification: Notification) -> None:
        assert self.replica is not None
        mood = self.mood
        if mood == "fails":
            raise PublishFailed("no connection")
        if mood == "hangs":
            await self._hang()
        if mood == "refuses":
            self.refused.add(notification.id)
            self._take(notification)
            raise PublishFailed("status 400", permanent=True)
        if mood == "takes but fails":  # which nobody can tell from one that did not arrive
            raise PublishFailed("no answer")
        self.told[notification.alert.name].arrived.add(notification.id)
        self._take(notification)
        if mood == "takes and hangs":
            await self._hang()

    async def _hang(self) -> None:
        assert self.replica is not None
        await self.replica.store.elsewhere_until(self.go_on.wait())
        await self.replica.store.alive()

    def _take(self, notification: Notification) -> None:
        told, now = self.told[notification.alert.name], self.clock()
        if notification.id in told.ids:
            return
        if notification.alert.status == FIRING:
            if told.window is not None and now < told.window[1] + QUIET:
                self.wrong.append(f"{notification.alert.name}: {notification.id} within the window of {told.window[0]}")
            told.window = notification.id, now
        else:
            told.window = None
        told.ids[notification.id] = notification.alert.status

    async def close(self) -> None:
        self.go_on.set()


@dataclass
class Known:
    """What senders and operators know of an alert."""

    fires: bool | None = False  # what senders said last; None if two of them contradicted each other
    settled: bool = True  # nothing of it is in flight, in a queue, or lost with a replica that died
    excused: bool = False  # it fired while somebody suppressed it
    acknowledged_until: float | None = 0.0  # None if that is not known
    sending: dict[asyncio.Task[Any], tuple[str, str]] = field(default_factory=dict)  # → status and replica


@dataclass
class Silenced:
    id: str
    ends: float
    known: set[str]  # replicas in which it applies


class AlertsMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.runner, self.ending = asyncio.Runner(), ExitStack()
        self.clock = ManualClock()
        self.memory = Memory(clock=self.clock)
        folder = self.ending.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        self.data_url = f"sqlite:///{folder}/data.db"
        self.told = {"disk": Told(), "cpu": Told()}
        self.known = {"disk": Known(), "cpu": Known()}
        self.silences: dict[str, Silenced] = {}
        self.refused: set[str] = set()
        self.people: dict[str, People] = {}
        self.replicas: dict[str, Replica] = {}
        virtual = SimpleNamespace(monotonic=self.clock)
        for target, value in (
            ("time.time", self.clock),
            ("solely.apps.alerts.worker.time", virtual),
            ("solely.apps.alerts.runtime.build", lambda *_, **__: [self.people["next"]]),
        ):
            self.ending.enter_context(mock.patch(target, value))
        self.ending.enter_context(mock.patch.object(outbox, "_PAUSE", 0.0))
        for name in ("a", "b"):
            self.runner.run(self._start(name))

    async def _start(self, name: str) -> None:
        people = self.people["next"] = People(self.told, self.refused, self.clock)
        replica = Replica(self.memory, apps=("alerts",), data_url=self.data_url, alerts=SETTINGS)
        people.replica = replica
        await replica.open()
        del self.people["next"]
        self.people[name], self.replicas[name] = people, replica
        for each in self.silences.values():
            each.known.add(name)

    # -- senders

    @rule(name=names, status=statuses, form=forms, replica=replicas)
    def alert_is_sent(self, name: str, status: str, form: str, replica: str) -> None:
        self.runner.run(self._send(name, status, form, replica))

    @rule(name=names, status=statuses, form=forms)
    def alert_is_sent_to_both(self, name: str, status: str, form: str) -> None:
        for replica in self.replicas:
            self.runner.run(self._send(name, status, form, replica))

    async def _send(self, name: str, status: str, form: str, replica: str) -> None:
        self.clock.advance(MOMENT)
        it, known = self.replicas[replica], self.known[name]
        silence = self.silences.get(name)
        silenced = silence is not None and replica in silence.known and self.clock() < silence.ends
        may_be_silenced = silence is not None
        acknowledged = known.acknowledged_until
        free = (
            FIRING not in (self.told[name].last, self.told[name].last_decided)
            and known.settled
            and self.people[replica].mood == "takes"
        )
        task = await it.start(_post(it, name, status, form))
        if not task.done():
            known.sending[task] = status, replica
            known.settled = False
            return
        outcome = task.result()
        assert outcome is not None
        alone = not known.sending
        if not alone and any(each != status for each, _ in known.sending.values()):
            known.fires = None
        else:
            known.fires = status == FIRING
        reason = outcome.get("reason", "")
        known.settled = known.settled and outcome["outcome"] != "queued"
        if status == RESOLVED:
            known.acknowledged_until = 0.0 if outcome["outcome"] == "published" else None
            if known.settled:
                known.excused = False
            if free and not may_be_silenced:
                assert reason == "not_firing", outcome
            return
        if silenced:
            assert reason == "silenced", outcome
        elif acknowledged is not None and acknowledged > self.clock():
            assert outcome["outcome"] == "suppressed", outcome
        elif free and not may_be_silenced and acknowledged == 0.0:
            assert outcome["outcome"] == "published", outcome
        known.excused |= reason in ("silenced", "acknowledged")
        if outcome["outcome"] == "published" and known.settled:
            known.excused = False
        if known.settled:
            for other in self._healthy():
                assert name in await self._listed(other), "a firing alert is not listed"

    # -- operators

    @rule(name=names, replica=replicas, lasts=st.sampled_from([100.0, 1000.0]))
    def alert_is_acknowledged(self, name: str, replica: str, lasts: float) -> None:
        async def acknowledge() -> None:
            if not self._frozen(replica):
                body = {"fingerprint": _fingerprint(name), "for": lasts}
                answer = await self.replicas[replica].http.post("/api/alerts/acknowledge", json=body)
                known = self.known[name]
                assert answer.status_code in (200, 404), answer.text
                if known.settled and known.fires is not None and self.told[name].fires:
                    assert answer.status_code == 200, answer.text
                if answer.status_code == 200:
                    self._suppress(name)
                    known.acknowledged_until = self.clock() + lasts if known.settled else None
                    for other in self._healthy():
                        row = (await self._listed(other)).get(name)
                        assert not known.settled or (row is not None and row["acknowledged"]), "not read after a write"

        self.runner.run(acknowledge())

    @rule(name=names, replica=replicas)
    def acknowledgement_is_removed(self, name: str, replica: str) -> None:
        async def remove() -> None:
            if not self._frozen(replica):
                body = {"fingerprint": _fingerprint(name)}
                answer = await self.replicas[replica].http.post("/api/alerts/unacknowledge", json=body)
                until = self.known[name].acknowledged_until
                if until is not None:
                    assert (answer.status_code == 200) == (until > self.clock()), answer.text
                self.known[name].acknowledged_until = 0.0

        self.runner.run(remove())

    @rule(name=names, replica=replicas, form=st.sampled_from(["own", "v2"]))
    def alert_is_silenced(self, name: str, replica: str, form: str) -> None:
        async def silence() -> None:
            if name in self.silences or self._frozen(replica):
                return
            http, now = self.replicas[replica].http, self.clock()
            if form == "own":
                body: dict[str, Any] = {"matchers": [f"name={name}"], "lasts": 1000.0, "reason": "a test wants it"}
                answer = await http.post("/api/alerts/silences", json=body)
            else:
                matcher = {"name": "alertname", "value": name, "isRegex": False, "isEqual": True}
                times = {"startsAt": _moment(now), "endsAt": _moment(now + 1000.0)}
                body = {"matchers": [matcher], **times, "createdBy": "ann", "comment": "a test wants it"}
                answer = await http.post("/api/v2/silences", json=body)
            assert answer.status_code in (200, 201), answer.text
            for other in self._healthy():
                found = (await self.replicas[other].http.get("/api/v2/silences")).json()
                mine = [each["id"] for each in found if each["status"]["state"] == "active" and _of(each, name)]
                assert len(mine) == 1, "not read after a write"
                self.silences[name] = Silenced(mine[0], now + 1000.0, {replica})
            self._suppress(name)

        self.runner.run(silence())

    @rule(name=names, replica=replicas)
    def silence_is_ended(self, name: str, replica: str) -> None:
        async def end() -> None:
            silence = self.silences.get(name)
            if silence is not None and not self._frozen(replica):
                answer = await self.replicas[replica].http.delete(f"/api/v2/silence/{silence.id}")
                assert answer.status_code == 200, answer.text
                silence.ends = min(silence.ends, self.clock())

        self.runner.run(end())

    def _suppress(self, name: str) -> None:
        """From now on what is queued of it is dropped, also what a replica has told people without recording that."""
        known = self.known[name]
        known.excused = True
        if not known.settled:
            self.told[name].window = None

    # -- time

    @rule(seconds=st.sampled_from([1.0, 20.0, HOLD + 1.0, QUIET + 1.0]))
    def time_passes(self, seconds: float) -> None:
        """A second is enough for every replica to read the silences."""
        self.clock.advance(seconds)
        for name in self._healthy():
            self.runner.run(self._jobs(name))

    async def _jobs(self, name: str) -> None:
        for job in self.replicas[name].service.apps["alerts"].jobs():
            if job.name == "silences":
                await job.work()
        for silence in self.silences.values():
            silence.known.add(name)
        if all(len(each.known) == 2 for each in self.silences.values()):
            self.silences = {key: each for key, each in self.silences.items() if each.ends > self.clock()}

    # -- replicas

    @rule(replica=replicas, mood=moods)
    def receiver_changes(self, replica: str, mood: str) -> None:
        self.people[replica].mood = mood

    @rule(mood=st.sampled_from(["takes", "fails"]))
    def receivers_change(self, mood: str) -> None:
        for people in self.people.values():
            people.mood = mood

    @rule(name=names, form=forms, replica=replicas, several=st.lists(statuses, min_size=2, max_size=5))
    def alert_flaps(self, name: str, form: str, replica: str, several: list[str]) -> None:
        for status in several:
            self.alert_is_sent(name, status, form, replica)

    @rule(replica=replicas)
    def outbox_is_swept(self, replica: str) -> None:
        async def sweep() -> None:
            told = {name: len(it.ids) for name, it in self.told.items()}
            task = await self.replicas[replica].start(self._sweep(replica))
            for name, silence in self.silences.items():
                if replica in silence.known and self.clock() < silence.ends and task.done() and self._is_alone(replica):
                    new = list(self.told[name].ids.values())[told[name] :]
                    assert FIRING not in new, "a silenced alert was sent"

        self.runner.run(sweep())

    async def _sweep(self, replica: str) -> None:
        for worker in self.replicas[replica].service.apps["alerts"].workers():
            await worker.drain()

    @rule(replica=replicas, requests=st.integers(0, 12))
    def replica_freezes(self, replica: str, requests: int) -> None:
        """Before so many more requests to the store."""
        self.replicas[replica].store.freeze_after(requests)

    @rule(replica=replicas)
    def replica_goes_on(self, replica: str) -> None:
        self.runner.run(self._go_on(replica))

    async def _go_on(self, replica: str) -> None:
        people, it = self.people[replica], self.replicas[replica]
        it.store.go_on()
        people.go_on.set()
        await it.settle()
        people.go_on.clear()
        self._collect()

    @rule(replica=replicas)
    def replica_dies(self, replica: str) -> None:
        async def die() -> None:
            it, people = self.replicas[replica], self.people[replica]
            for known in self.known.values():
                if any(each == replica for _, each in known.sending.values()):
                    known.fires = None
                known.settled = False
            it.store.die()
            people.go_on.set()
            await it.kill()
            for known in self.known.values():
                known.sending = {task: about for task, about in known.sending.items() if about[1] != replica}
            await self._start(replica)

        self.runner.run(die())

    def _collect(self) -> None:
        """What became of alerts that were held up."""
        for known in self.known.values():
            for task in [each for each in known.sending if each.done()]:
                status, _ = known.sending.pop(task)
                outcome = task.result()
                assert outcome is not None
                known.excused |= outcome.get("reason") in ("silenced", "acknowledged")
                if status == RESOLVED:
                    known.acknowledged_until = None
                if known.fires is not (status == FIRING):
                    known.fires = None

    @rule()
    def all_is_well(self) -> None:
        """Receivers answer, replicas go on, and the outbox is swept: now everything that was promised is true."""
        self.runner.run(self._recover())

    async def _recover(self) -> None:
        for name, people in self.people.items():
            people.mood = "takes"
            await self._go_on(name)
            await self._jobs(name)
        assert not any(known.sending for known in self.known.values())
        queue = self.replicas["a"].service.apps["alerts"].once.queue("~alerts/notifications")
        for _ in range(SWEEPS):
            if not await queue.list():
                break
            self.clock.advance(HOLD / 2)
            for name in self.replicas:
                await self._sweep(name)
        assert not await queue.list(), "the outbox is never empty"
        self.clock.advance(1.0)
        for name, known in self.known.items():
            known.settled = True
            await self._jobs_of_all()
            await self._check(name, known)

    async def _jobs_of_all(self) -> None:
        for name in self.replicas:
            await self._jobs(name)

    async def _check(self, name: str, known: Known) -> None:
        told = self.told[name]
        for replica in self.replicas:
            row = (await self._listed(replica)).get(name)
            if known.fires is False:
                assert row is None, "a resolved alert shows as firing"
            elif known.fires:
                assert row is not None, "a firing alert does not show"
            if told.fires:
                assert row is not None, "people were told that it fires, and it does not show"
        if known.fires is False:
            assert not told.fires, "people were not told that it is resolved"
        elif known.fires and not known.excused:
            assert told.last_decided == FIRING, "people were not told that it fires"
        letters = (await self.replicas["a"].http.get("/v1/dead-letters?group=~alerts/notifications")).json()
        kept = {each["id"].split("/")[0] for each in letters["letters"]}
        assert kept <= self.refused, "what nobody refused is a dead letter"
        if not known.excused:
            assert self.refused & set(told.ids) <= kept | told.arrived, "a dead letter is lost"

    # -- what holds at any moment

    @invariant()
    def one_state_is_told_once(self) -> None:
        for name, people in getattr(self, "people", {}).items():
            assert not people.wrong, f"{name} told people twice: {people.wrong}"

    def _healthy(self) -> list[str]:
        return [name for name in self.replicas if not self._frozen(name)]

    def _frozen(self, replica: str) -> bool:
        store = self.replicas[replica].store
        return store.holds_up or store.disturbed

    def _is_alone(self, replica: str) -> bool:
        return not any(known.sending for known in self.known.values())

    async def _listed(self, replica: str) -> dict[str, dict[str, Any]]:
        answer = await self.replicas[replica].http.get("/api/alerts/firing")
        assert answer.status_code == 200, answer.text
        return {each["alert"]["name"]: each for each in answer.json()["firing"]}

    def teardown(self) -> None:
        async def end() -> None:
            try:
                await self._recover()
            finally:
                for name, replica in self.replicas.items():
                    replica.store.go_on()
                    self.people[name].go_on.set()
                    await replica.close()

        if hasattr(self, "runner"):
            try:
                self.runner.run(end())
            finally:
                self.runner.close()
                self.ending.close()


def _fingerprint(name: str) -> str:
    return label_fingerprint({"alertname": name, "severity": "critical"})


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _of(silence: dict[str, Any], name: str) -> bool:
    return any(each["value"] == name for each in silence["matchers"])


async def _post(replica: Replica, name: str, status: str, form: str) -> dict[str, Any] | None:
    """What became of an alert; None if the replica cannot say."""
    labels = {"alertname": name, "severity": "critical"}
    alert: dict[str, Any] = {"name": name, "severity": "critical", "source": "test", "status": status}
    ends = {"endsAt": "2001-01-01T00:00:00Z"} if status == RESOLVED else {}
    path, body = {
        "own": ("/api/alerts", alert | {"fingerprint": _fingerprint(name)}),
        "webhook": (
            "/api/alerts/alertmanager",
            {"alerts": [{"labels": labels, "status": status, "fingerprint": _fingerprint(name)}]},
        ),
        "v2": ("/api/v2/alerts", [{"labels": labels, **ends}]),
    }[form]
    answer = await replica.http.post(path, json=body)
    if answer.status_code != 200:
        return None
    found = answer.json()
    outcome: dict[str, Any] = found if form == "own" else found["alerts"][0]
    return outcome


def run_machine(examples: int, steps: int = 25, *, shrink: bool = True) -> None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        AlertsMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, derandomize=True, database=None, deadline=None,
            phases=phases, suppress_health_check=list(HealthCheck), print_blob=False,
        ),
    )  # fmt: skip


@pytest.mark.timeout(600)
def test_people_are_told_each_state_once_and_nothing_is_lost(thorough: bool) -> None:
    run_machine(400 if thorough else 25)


async def _nothing_withdrawn(self: Outbox, item: object) -> bool:
    return True


async def _not_closed(self: OpenAlerts, alert: Alert) -> None:
    pass


def _not_silenced(self: Silences, alert: Alert) -> None:
    pass


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("place", "name", "broken"),
    [
        (Outbox, "_withdraw", _nothing_withdrawn),  # what is queued is sent, whatever has happened since
        (OpenAlerts, "close", _not_closed),
        (Silences, "match", _not_silenced),
    ],
)
def test_the_machine_finds_a_planted_bug(place: type, name: str, broken: Callable[..., Any]) -> None:
    with mock.patch.object(place, name, broken), pytest.raises((AssertionError, ExceptionGroup)):
        run_machine(60, shrink=False)
