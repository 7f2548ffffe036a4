"""The examples as anyone would start them, in real processes; http/test_examples.py has those with a web server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import isolated
from tests.http.test_examples import SERVERS
from tests.servers import Valkey

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
END = 120  # seconds for an example to end: it takes some seconds, but a test machine can be very busy


@contextmanager
def started(*words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process of this Python in the checkout, which is ended with the block."""
    given = {**os.environ, "PYTHONPATH": f"{ROOT}/src", "PYTHONUNBUFFERED": "1", **environment}
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(command, cwd=ROOT, env=given, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def output(*words: str, **environment: str) -> str:
    with started(*words, **environment) as process:
        printed, _ = process.communicate(timeout=END)
        assert process.returncode == 0
        return printed


def test_every_example_is_listed_and_tested() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")} - {"__init__.py"}
    assert set(re.findall(r"^\| \[(.+?)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)) == files
    assert {f"{name}_app.py" for name in SERVERS} | {"threads.py", "cron_job.py", "celery_app.py"} == files


def test_plain_threads(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'solely.db'}"
    assert output("examples.threads", SOLELY_URL=url) == "balance 36, mails sent 1, receipts ['receipt of order-7']\n"
    assert "mails sent 0" in output("examples.threads", SOLELY_URL=url), "another process sends the mail again"


def test_one_of_several_hosts_makes_the_report(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'solely.db'}"
    with (
        started("examples.cron_job", SOLELY_URL=url) as one,
        started("examples.cron_job", SOLELY_URL=url) as two,
        started("examples.cron_job", SOLELY_URL=url) as three,
    ):
        printed = sorted(host.communicate(timeout=END)[0] for host in (one, two, three))
    assert printed == [*["another host makes the report\n"] * 2, "the report was made\n"]


def test_a_celery_task_is_queued_once(valkey: Valkey, valkey_url: str) -> None:
    environment = {"SOLELY_URL": isolated(valkey_url), "BROKER_URL": f"redis://127.0.0.1:{valkey.port}/0"}
    with started("examples.celery_app", **environment) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline() == "the second is IGNORED\n"  # no worker runs yet
        worker = ("celery", "--quiet", "--app", "examples.celery_app", "worker", "--pool", "solo", "--without-mingle")
        with started(*worker, "--without-gossip", "--loglevel", "error", **environment):
            printed, _ = sender.communicate(timeout=END)
    assert re.fullmatch(r"synced acme under fence \d+\n", printed)
