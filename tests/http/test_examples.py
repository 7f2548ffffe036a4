"""The examples, as anyone would start them: each behind a real server of its own, asked the conformance suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from solely.testing.http_idempotency import CheckOutcome, Target, run
from tests.servers import free_port, until

ROOT = Path(__file__).parent.parent.parent
NEEDS_MORE = {  # checks of what an example does not offer: slow, failing and large responses, cookies
    "cookie_is_not_replayed",
    "copy_in_flight_does_not_run",
    "copy_in_flight_gets_retry_after",
    "other_payload_in_flight_is_refused",
    "copy_after_flight_is_replayed",
    "failure_is_no_dead_end",
    "exception_is_no_dead_end",
    "large_response_runs_once",
}
SERVERS = {
    "fastapi": ["uvicorn", "examples.fastapi_app:app", "--log-level=warning", "--port={port}"],
    "starlette": ["uvicorn", "examples.starlette_app:app", "--log-level=warning", "--port={port}"],
    "flask": ["waitress", "--listen=127.0.0.1:{port}", "--threads=16", "examples.flask_app:app"],
    "django": ["waitress", "--listen=127.0.0.1:{port}", "--threads=16", "examples.django_app:app"],
}


@contextmanager
def example(name: str, folder: Path) -> Iterator[Target]:
    """The example, running."""
    port = free_port()
    command = [sys.executable, "-m", *(part.format(port=port) for part in SERVERS[name])]
    environment = {**os.environ, "SOLELY_URL": f"sqlite:///{folder / 'solely.sqlite3'}", "PYTHONPATH": f"{ROOT}/src"}
    target = Target(
        url=f"http://127.0.0.1:{port}/orders",
        other_url=f"http://127.0.0.1:{port}/refunds",
        max_request=1024 * 1024,
        headers={"Authorization": "Bearer one"},
        other_headers={"Authorization": "Bearer two"},
    )
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            until(lambda: server.poll() is not None or answers(target), f"{name} answers")
            assert server.poll() is None, (folder / "log").read_text()
            yield target
        finally:
            server.terminate()
            server.wait(10)


def answers(target: Target) -> bool:
    try:
        return bool(target.send(method="GET").status)
    except OSError:
        return False


@pytest.mark.parametrize("name", SERVERS)
def test_the_example_conforms(name: str, tmp_path: Path) -> None:
    with example(name, tmp_path) as target:
        results = run(target)
        stranger = target.send("k", headers={})
    assert [result for result in results if result.outcome is CheckOutcome.FAILED] == []
    assert {result.check.name for result in results if result.outcome is CheckOutcome.NOT_RUN} == NEEDS_MORE
    assert (stranger.status, json.loads(stranger.body)["title"]) == (403, "The client is unknown")
