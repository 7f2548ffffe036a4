"""Two pods that share a store: what the document demands of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apps.repos.forge_server import Asked, Gone, Reply, forges
from tests.apps.repos.pods import COMMAND, SOON, Pods, pods, settings, shell
from tests.conftest import STORES
from tests.service.serving import until

TTL = 6.0  # seconds until a pod takes over from one that died: much longer than a pod stands still at a high load
PUSH = "git-receive-pack$"


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    """Two pods that share a Redis, and the forges that they poll and get webhooks from."""
    folder = tmp_path_factory.mktemp("pods")
    with forges(folder / "repositories") as stub:
        project = stub.gitlab.project()
        given = settings(stub, {"ttl": TTL, "command": shell(f"sleep 0.3; {COMMAND}")})
        given["gitlab"] |= {"projects": [project], "poll_every": 1}
        with pods(stub, STORES["valkey"](request), folder, given) as it:
            yield it


@pytest.fixture
def pair(shared: Pods) -> Pods:
    """Two pods that are alive."""
    shared.until_alive(2)
    return shared


def test_two_pods_do_each_job_once_and_one_at_a_time_in_a_repository(pair: Pods) -> None:
    """The same merge request by group hook, project hook and poll; then four commands on it, by both pods at once."""
    gitlab, (first, second) = pair.stub.gitlab, pair.pods
    project = next(iter(gitlab.projects))
    until(lambda: pair.once.watermarks("~repos/"), SOON)  # what happens from now on is polled
    gitlab.merge_request(project)
    hooks = [threading.Thread(target=pair.opened, args=(pod.address, project, 1)) for pod in (first, second)]
    for each in hooks:
        each.start()
    for each in hooks:
        each.join()
    until(lambda: gitlab.comments(project, 1), SOON)
    polls = pair.stub.count("GET", "/merge_requests$")
    until(lambda: pair.stub.count("GET", "/merge_requests$") >= polls + 3, SOON)  # the polls after that saw it too
    pair.until_idle()
    assert sum("reviewed" in each for each in gitlab.comments(project, 1)) == 1

    notes = [gitlab.note(project, 1, f"/copilot number {number}") for number in range(4)]
    for number, note in enumerate(notes):
        for pod in (first, second) if number % 2 else (second, first):
            pair.noted(pod.address, project, 1, note)
    until(lambda: sum("did " in each for each in gitlab.comments(project, 1)) >= len(notes), SOON)
    pair.until_idle()
    repository, pushes = gitlab.repositories[project], [each for each in pair.stub.asked if PUSH[:-1] in each.path]
    assert sorted(repository.file("feature", "work.txt").split()) == sorted(str(note["id"]) for note in notes)
    assert len(repository.messages("feature")) == 1 + len(notes)  # each has built on the one before
    assert sum(each.method == "POST" for each in pushes) == len(notes)  # none was rejected and repeated
    assert sum("did " in each for each in gitlab.comments(project, 1)) == len(notes)
    fences = [int(each.rpartition("Solely-Fence: ")[2]) for each in repository.messages("feature")[1:]]
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.only_with_all)])
def test_a_pod_that_is_killed_in_the_middle_of_a_push_is_finished_by_the_other(pair: Pods, when: str) -> None:
    """Before the forge performs the push, whose git goes on alone and arrives late; or after it was performed."""
    gitlab = pair.stub.gitlab
    project = gitlab.project(f"killed/{when}")
    gitlab.merge_request(project)
    note = gitlab.note(project, 1, "/copilot survive")
    late: list[Reply] = []
    finished = threading.Event()

    def kill(asked: Asked, perform: Callable[[], Reply]) -> Reply:
        reply = perform() if when == "after" else None
        os.kill(_pod_of(pair, f"note:{project}:1:{note['id']}"), signal.SIGKILL)
        if reply is None:
            assert finished.wait(SOON)
        late.append(reply or perform())  # the push of the dead pod arrives when the other has long finished
        raise Gone

    pair.stub.meet("POST", PUSH, kill)
    pair.noted(pair.pods[0].address, project, 1, note)
    until(lambda: any("did " in each for each in gitlab.comments(project, 1)), SOON)
    pair.until_idle()
    finished.set()
    until(lambda: late, SOON)
    assert (b"ng refs/heads/feature" in late[0].body) == (when == "before")
    repository = gitlab.repositories[project]
    assert repository.file("feature", "work.txt") == str(note["id"])
    assert sum("Solely-Job" in each for each in repository.messages("feature")) == 1
    assert sum("did " in each for each in gitlab.comments(project, 1)) == 1


def test_the_command_of_a_pod_that_is_killed_ends(tmp_path: Path) -> None:
    """Another pod performs the job after the ttl: an agent that goes on would work, and cost, beside it."""
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait"
    with forges(tmp_path / "repositories") as stub:
        project = stub.gitlab.project()
        stub.gitlab.merge_request(project)
        note = stub.gitlab.note(project, 1, "/copilot work")
        given = settings(stub, {"command": shell(script)})
        with pods(stub, f"sqlite:///{tmp_path / 'store.db'}", tmp_path, given, count=1) as one:
            one.noted(one.pods[0].address, project, 1, note)
            until(lambda: pids.exists(), SOON)
            started = [int(pid) for pid in pids.read_text().split()]
            os.kill(_pod_of(one, f"note:{project}:1:{note['id']}"), signal.SIGKILL)
            until(lambda: not any(_runs(pid) for pid in started), SOON)


def _runs(pid: int) -> bool:
    """True if it runs: one that ended, and that nobody has waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _pod_of(pair: Pods, id: str) -> int:
    """The process of the pod that performs this run."""
    rows = until(lambda: [row for pod in pair.pods if (row := pod.jobs().get(id)) and row["worker"]], SOON)
    return int(rows[0]["worker"].rpartition("/")[2])
