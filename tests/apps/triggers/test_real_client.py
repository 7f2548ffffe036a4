"""trigger.dev's own public client, from npm, against a running service: every call that the documentation names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from solely.apps.triggers.work import TaskWorker
from solely.apps.triggers.work.tasks import Tasks
from solely.http import Client
from tests.apps.operator import operating
from tests.conftest import NPM
from tests.service.serving import TOKENS

pytestmark = [pytest.mark.only_with_all, pytest.mark.timeout(600)]

VERSIONS = ("4.8.3", "3.3.17")
PATIENT = 300  # seconds: the package has 55 to 134 others
SCRIPT = Path(__file__).with_name("client.mjs")


@pytest.fixture(scope="module")
def npm() -> str:
    assert NPM is not None
    return NPM


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def seen(npm: str, version: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What each call of the client returned. The package is installed once, into the cache of pytest."""
    folder = Path(request.config.cache.mkdir(f"trigger-dev-{version}"))
    if not (folder / "installed").exists():
        words = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", f"@trigger.dev/sdk@{version}"]
        (folder / "package.json").write_text('{"private": true}')
        subprocess.run(words, cwd=folder, check=True, timeout=PATIENT, capture_output=True)
        (folder / "installed").touch()
    shutil.copy(SCRIPT, folder / SCRIPT.name)
    with operating("triggers", {}) as it, working(it.service.address):
        endless = "yes" if version.startswith("3") else "no"
        place = {"ENDLESS": endless, "TRIGGER_API_URL": it.service.address, "TRIGGER_SECRET_KEY": TOKENS["write"]}
        words = ["node", SCRIPT.name]
        ran = subprocess.run(
            words, cwd=folder, env={**os.environ, **place}, timeout=PATIENT, capture_output=True, text=True
        )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


class working:
    """A worker of the tasks `worked` and `broken`, while it is entered."""

    def __init__(self, address: str) -> None:
        task = Tasks()

        @task("worked")
        def worked(payload: dict[str, int]) -> dict[str, int]:
            return {"twice": 2 * payload["n"]}

        @task("broken")
        def broken(payload: object) -> None:
            raise ValueError("it broke")

        self._client = Client(address, token=TOKENS["write"])
        self._worker = TaskWorker(self._client, task, at_once=1, wait=0.5)
        self._thread = threading.Thread(target=self._worker.run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *how: object) -> None:
        assert self._worker.stop(30.0)
        self._thread.join(30.0)
        self._client.close()


def test_a_run_is_triggered_and_read(seen: dict[str, Any]) -> None:
    id = seen["trigger"]["id"]
    assert seen["again"]["id"] == id
    run = seen["retrieve"]
    wanted = {"id": id, "status": "QUEUED", "tags": ["a"], "metadata": {"m": 1}, "isQueued": True, "attemptCount": 0}
    assert {name: run[name] for name in wanted} == wanted
    assert run["payload"] == {"when": "1970-01-01T00:00:00.000Z", "n": 1}, "SuperJSON is unpacked"
    assert (seen["delayed"]["status"], seen["delayed"]["payload"]) == ("DELAYED", "text")
    assert seen["delayed"]["taskIdentifier"] == "hello you"
    assert seen["nothing"]["id"].startswith("run_")


def test_batches_are_triggered_and_read(seen: dict[str, Any], version: str) -> None:
    batch, read = seen["batchTrigger"], seen["batch.retrieve"]
    assert (read["id"], read["status"], read["runCount"]) == (batch["batchId"], "PENDING", 3)
    assert seen["batch.trigger"]["batchId"] != batch["batchId"]
    if version.startswith("3"):
        assert [run["isCached"] for run in batch["runs"]] == [True, False, False]
        assert batch["runs"][0]["id"] == seen["trigger"]["id"]
    else:
        assert read["runs"][0] == seen["trigger"]["id"]
        assert len(set(read["runs"])) == 3


def test_runs_are_listed_page_by_page_by_filters(seen: dict[str, Any]) -> None:
    assert len(seen["list"]["data"]) == 2
    assert len(set(seen["list"]["ids"])) == 6, "each of all pages once"
    assert [run["tags"] for run in seen["list.tag"]] == [["b"]]
    refused = seen["list.refused"]
    assert (refused["status"], "filter[schedule]" in refused["message"]) == (400, True)


def test_a_run_is_tagged_edited_canceled_and_replayed(seen: dict[str, Any]) -> None:
    assert seen["metadata"] == seen["metadata.read"] == {"metadata": {"m": 4, "k": 2}}
    run = seen["canceled"]
    assert (run["status"], run["tags"], run["metadata"]) == ("CANCELED", ["a", "c", "d"], {"m": 4, "k": 2})
    assert seen["cancel"]["id"] == run["id"]
    assert seen["replay"]["id"] != run["id"]
    assert "tags.add" not in seen, "it returns nothing, and was not refused"


def test_a_key_is_reset(seen: dict[str, Any], version: str) -> None:
    if version.startswith("3"):
        assert "refused" in seen["reset"], "this version has no such call"
    else:
        assert len(seen["reset"]["id"]) == 64
        assert seen["after reset"]["id"] != seen["trigger"]["id"]


def test_a_run_is_polled_until_a_worker_has_completed_it(seen: dict[str, Any]) -> None:
    assert (seen["poll"]["status"], seen["poll"]["output"]) == ("COMPLETED", {"twice": 40})


def test_large_payloads_arrive(seen: dict[str, Any]) -> None:
    assert seen["large.again"]["id"] == seen["large"]["id"]
    assert seen["large.read"] == seen["large.batch"] == {"when": "1970-01-01T00:00:00.000Z", "text": 200 * 1024}
    assert seen["larger"]["text"] == 2 * 1024 * 1024
    assert seen["too large"]["status"] == 413


def test_a_subscription_ends_with_its_run(seen: dict[str, Any]) -> None:
    first, last = seen["watched"][0], seen["watched"][-1]
    assert (first["status"], last["status"]) == ("DELAYED", "COMPLETED")
    assert (last["payload"], last["output"]) == ({"n": 21}, {"twice": 42})
    assert [run["status"] for run in seen["watched.ended"]] == ["COMPLETED"]
    assert (seen["watched.failed"][-1]["status"], "it broke" in seen["watched.failed"][-1]["error"]) == ("FAILED", True)


def test_a_subscription_that_is_refused_raises_an_error(seen: dict[str, Any]) -> None:
    assert "there is no run" in seen["watched.unknown"]["message"]
    assert "batches are not offered" in seen["watched.batch"]["message"]


def test_refusals_say_why(seen: dict[str, Any]) -> None:
    assert (seen["missing"]["refused"], seen["missing"]["status"]) == ("NotFoundError", 404)
    assert "there is no run" in seen["missing"]["message"]
    assert (seen["invalid"]["refused"], seen["invalid"]["status"]) == ("BadRequestError", 400)
    assert "length <= 10" in seen["invalid"]["message"]
