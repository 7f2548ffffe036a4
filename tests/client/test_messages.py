"""What the library logs is a sentence that a person can act on, also where nobody has set up logging."""

import ast
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import solely

SOURCE = Path(solely.__file__).parent
APART = ("service", "apps", "cli")  # programs, which set up logging of their own, with events and fields
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}

LOSES_A_LEASE = """
import time
import solely

with solely.Client("memory://") as once:
    lease = once.lock("nightly report", ttl=0.2, renew=False)
    end = time.monotonic() + 30
    while not lease.lost_how and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.5)
    print(lease.fence)
"""


def messages() -> Iterator[tuple[str, str]]:
    """Where something is logged, and its text."""
    for file in sorted(SOURCE.rglob("*.py")):
        if file.relative_to(SOURCE).parts[0] in APART:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            of_log = isinstance(node.func.value, ast.Name) and node.func.value.id == "log"
            place = 1 if node.func.attr == "log" else 0
            if not of_log or not (node.func.attr in LEVELS or place):
                continue
            text = node.args[place]
            if isinstance(text, ast.Constant):
                yield f"{file.relative_to(SOURCE)}:{node.lineno}", str(text.value)


def test_every_message_is_a_sentence() -> None:
    found = dict(messages())
    assert len(found) > 20
    assert {where: text for where, text in found.items() if len(text.split()) < 3} == {}


def test_a_lost_lease_is_readable_without_logging_set_up() -> None:
    environ = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    ran = subprocess.run(
        [sys.executable, "-c", LOSES_A_LEASE], capture_output=True, text=True, timeout=120, env=environ, check=True
    )
    (line,) = ran.stderr.splitlines()
    assert line.startswith("lease_lost: ")
    assert "'lock/nightly report'" in line
    assert ran.stdout.strip() in line
    assert "expired" in line


def test_its_facts_stay_fields_of_the_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "solely"), solely.Client("memory://") as once:
        lease = once.lock("a")
    (record,) = caplog.records
    assert record.message.startswith("client_closed_with_leases: ")
    assert (vars(record)["key"], vars(record)["count"]) == ("lock/a", 1)
    assert lease.lost


def test_no_owner_is_in_a_message(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever has it can let go of what it holds."""
    from solely.drivers.retrying import log_not_undone
    from solely.ops import Release

    log_not_undone([Release("lock/a", "the-secret-owner"), Release("lock/b", "the-secret-owner")])
    (record,) = caplog.records
    assert "the-secret-owner" not in str(vars(record))
    assert record.message.startswith("undo_failed: Release and 1 more of 'lock/a' was not performed")
