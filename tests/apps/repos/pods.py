"""The application at work on the stub forges: in this process, or as pods that share a store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from solely import Client
from tests.apps.operator import BECAUSE, Operator, operating
from tests.apps.repos.forge_server import TOKEN, Forges
from tests.service.serving import LINES, TOKENS, Process, bearer, until

HOOK = "webhook-token-of-these-tests"
QUEUE = "~repos/jobs"
STARTS = 60.0  # seconds for a pod to begin on a machine that others use too
SOON = 60.0  # seconds within which a job is done even then
OVER = ("done", "nothing", "superseded", "ignored", "failed")

# What the commands do: each says which job it worked on, and those that write leave a line for it.
REVIEW = 'cat feature.txt; echo "reviewed $SOLELY_JOB_HEAD_SHA"'
COMMAND = 'echo "$SOLELY_JOB_NOTE_ID" >> work.txt; echo "did $SOLELY_JOB_NOTE_ID"'
ISSUE = 'echo "$SOLELY_JOB_TITLE" > "$SOLELY_JOB_ISSUE_KEY.txt"; echo "worked on $SOLELY_JOB_ISSUE_KEY"'


def shell(script: str, **more: Any) -> dict[str, Any]:
    """The settings of a command that is a script."""
    return {"argv": ["sh", "-c", script], **more}


def settings(stub: Forges, jobs: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The section [repos] for the stub forges. A job that finds its forge away is tried again after a second."""
    usual: dict[str, Any] = {
        "review": shell(REVIEW),
        "command": shell(COMMAND),
        "issue": shell(ISSUE),
        "outage_pause": 1,
    }
    usual["folder"] = str(stub.folder.parent)  # a pod that is killed leaves its clones there
    return {
        "gitlab": {"url": stub.url, "token": TOKEN, "webhook_tokens": [HOOK]},
        "github": {"url": f"{stub.url}/api/v3", "token": TOKEN, "webhook_secrets": [HOOK]},
        "jobs": {**usual, **(jobs or {})},
        **more,
    }


class Hooks:
    """Sends webhooks as GitLab does, to whichever address."""

    def __init__(self, stub: Forges) -> None:
        self.stub = stub
        self._deliveries = 0

    def opened(self, address: str, project: int, iid: int) -> httpx2.Response:
        """Reports that the merge request was opened."""
        event = self.stub.gitlab.merge_request_event(project, iid)
        return self.send(address, "Merge Request Hook", event)

    def noted(self, address: str, project: int, iid: int, note: dict[str, Any]) -> httpx2.Response:
        """Reports a comment."""
        return self.send(address, "Note Hook", self.stub.gitlab.note_event(project, iid, note))

    def send(self, address: str, event: str, body: dict[str, Any]) -> httpx2.Response:
        """Each delivery has an id of its own, as those of two hooks have."""
        self._deliveries += 1
        headers = {"x-gitlab-token": HOOK, "x-gitlab-event": event, "idempotency-key": f"delivery-{self._deliveries}"}
        answer = httpx2.post(f"{address}/api/repos/gitlab", json=body, headers=headers, timeout=SOON)
        assert answer.status_code in (200, 202), answer.text
        return answer


class Working(Hooks):
    """A service in this process, and what it says of itself."""

    def __init__(self, stub: Forges, operator: Operator) -> None:
        super().__init__(stub)
        self.operator = operator
        self.address = operator.service.address

    def jobs(self) -> dict[str, dict[str, Any]]:
        """The recorded runs, by id."""
        return {row["id"]: row for row in self.operator.ask("/api/repos/jobs")["jobs"]}

    def until_over(self, id: str) -> dict[str, Any]:
        """The run once it is over, with its log."""
        until(lambda: self.jobs().get(id, {}).get("state") in OVER, SOON)
        found: dict[str, Any] = self.operator.ask("/api/repos/job", id=id)
        return found

    def locked(self) -> list[dict[str, Any]]:
        """The repositories that are locked, as the page shows them."""
        found: list[dict[str, Any]] = self.operator.ask("/repos", format="json")["locked"]
        return found

    def clear_lock(self, row: Mapping[str, Any]) -> None:
        """Takes the lock from its holder, as an admin may."""
        key = f"lock/~repos/lock:{row['repository']}"
        body = {"key": key, "fence": row["fence"], "reason": BECAUSE}
        assert self.operator.post("/v1/entries/clear", body).json() == {"cleared": True}

    def until_polled(self) -> None:
        """Returns once every source was polled: what happens from now on is found."""
        rows = "/api/repos/watermarks"
        until(lambda: all(row["watermark"] for row in self.operator.ask(rows)["watermarks"]), SOON)

    def until_state(self, id: str, state: str) -> dict[str, Any]:
        """The run once it is in this state."""
        until(lambda: self.jobs().get(id, {}).get("state") == state, SOON)
        return self.jobs()[id]


@contextmanager
def working(stub: Forges, jobs: Mapping[str, Any] | None = None, **more: Any) -> Iterator[Working]:
    """A service with the application on the memory store."""
    with operating("repos", settings(stub, jobs, **more)) as operator:
        yield Working(stub, operator)


class Pod:
    """`solely serve` with the application, as a process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.address = process.address()
        until(self.ready, STARTS)

    def ready(self) -> bool:
        try:
            return httpx2.get(f"{self.address}/readyz", timeout=SOON).status_code == 200
        except httpx2.TransportError:
            return False

    def jobs(self) -> dict[str, dict[str, Any]]:
        """The recorded runs, by id."""
        answer = httpx2.get(f"{self.address}/api/repos/jobs", headers=bearer(TOKENS["read"]), timeout=SOON)
        return {row["id"]: row for row in answer.json()["jobs"]} if answer.status_code == 200 else {}


class Pods(Hooks):
    """Pods that share a store and a database. Each has its log in a folder of its own."""

    def __init__(self, stub: Forges, once: Client, folder: Path, variables: Mapping[str, str]) -> None:
        super().__init__(stub)
        self.once = once
        self._folder, self._variables, self._started = folder, variables, 0
        self._ends = ExitStack()
        self.pods: list[Pod] = []

    def start(self, count: int) -> None:
        """Starts so many pods, at once."""
        processes = []
        for _ in range(count):
            own = self._folder / f"pod-{self._started}"
            own.mkdir()
            self._started += 1
            processes.append(self._ends.enter_context(Process(own, **self._variables)))
        self.pods += [Pod(each) for each in processes]

    def until_alive(self, count: int) -> None:
        """Replaces the pods that were killed."""
        self.pods = [pod for pod in self.pods if pod.ready()]
        self.start(count - len(self.pods))

    def close(self) -> None:
        self._ends.close()

    @property
    def logs(self) -> str:
        """What all pods have logged."""
        return "".join(each.read_text() for each in self._folder.glob("pod-*/service.log"))

    def until_idle(self) -> None:
        """Returns once every job that was received is over: the queue is empty."""
        until(lambda: self.once.queue(QUEUE).count() == 0, SOON)


@contextmanager
def pods(stub: Forges, url: str, folder: Path, given: Mapping[str, Any], count: int = 2) -> Iterator[Pods]:
    """So many pods on this store, with these settings."""
    variables = {
        "SOLELY_URL": url, "SOLELY_DATA_URL": f"sqlite:///{folder / 'data.db'}", "SOLELY_TOKENS": ",".join(LINES),
        "SOLELY_APPS": "repos", "SOLELY_STOP_TIMEOUT": "2",
        **{f"SOLELY_REPOS_{name.upper()}": json.dumps(value) for name, value in given.items()},
    }  # fmt: skip
    with Client(url) as once:
        it = Pods(stub, once, folder, variables)
        try:
            it.start(count)
            yield it
        finally:
            it.close()
