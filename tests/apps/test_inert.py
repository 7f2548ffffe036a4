"""All applications are mounted by default, and inert until they are configured: none acts outside of the service."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from solely.apps import APPS, find
from solely.service.announce import Announcement
from solely.service.settings import Settings
from tests.service.serving import running

ACTS = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen", "os.posix_spawn", "os.fork")


@contextmanager
def watched() -> Iterator[list[str]]:
    """Notes what other threads than this one do outside of the process."""
    acted, here, watching = list[str](), threading.get_ident(), [True]

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event in ACTS and threading.get_ident() != here:
            acted.append(f"{event} {arguments!r:.200}")

    sys.addaudithook(note)  # which cannot be taken away again
    try:
        yield acted
    finally:
        watching.clear()


@pytest.mark.parametrize("name", APPS)
def test_an_application_is_mounted_by_default_and_needs_no_settings(name: str) -> None:
    assert name in Settings().mounted
    assert isinstance(Settings().section(name), find(name).Settings)


def test_without_settings_no_application_calls_another_host_or_starts_a_program() -> None:
    with watched() as acted, running() as it:
        assert set(it.service.apps) == set(APPS)
        for app in it.service.apps.values():
            for job in app.jobs():
                it.run(_perform(job.work))
        alert = {"name": "Disk full", "severity": "critical", "source": "db-1"}
        assert it.post("/api/alerts", alert).json()["outcome"] == "published"
        it.run(it.service.announce(Announcement("Target down", "critical", "probes", "probes/db")))
    assert acted == []


def test_the_watch_notices_a_program() -> None:
    import subprocess

    with watched() as acted:
        thread = threading.Thread(target=subprocess.run, args=(["/bin/true"],))
        thread.start()
        thread.join()
    assert any("/bin/true" in each for each in acted)


async def _perform(work: Any) -> None:
    await work()
