"""The check of tests itself: who leaves something open fails, and nobody else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEAKING = """
import asyncio
import os
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time

import pytest

KEPT = []


class Cycle:
    def __init__(self, held):
        self.held, self.itself = held, self


async def test_a_task_goes_on():
    Cycle(asyncio.create_task(asyncio.sleep(60)))


async def test_a_transport_stays_open():
    listening = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    Cycle(await asyncio.open_connection(*listening.sockets[0].getsockname()))
    listening.close()


def test_a_socket_stays_open():
    Cycle(socket.socket())


@pytest.mark.parametrize("number", range(4))
def test_a_stranger(number):
    for _ in range(20):
        [Cycle(None) for _ in range(1000)]


def test_a_coroutine_is_never_awaited():
    Cycle(asyncio.sleep(1))


def test_a_file_stays_open():
    Cycle(open(__file__))


def test_a_file_that_is_still_used_stays_open():
    KEPT.append(open(__file__))


def test_a_descriptor_stays_open():
    os.open(__file__, os.O_RDONLY)


def test_a_pipe_stays_open():
    KEPT.append(os.pipe())


def test_a_program_goes_on():
    KEPT.append(subprocess.Popen(["sleep", "60"]))


async def test_a_program_of_the_event_loop_goes_on():
    KEPT.append(await asyncio.create_subprocess_exec("sleep", "60"))


async def test_a_server_goes_on():
    KEPT.append(await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0))


def test_an_event_loop_is_never_closed():
    KEPT.append(asyncio.new_event_loop())


def test_a_database_stays_open(tmp_path):
    KEPT.append(sqlite3.connect(tmp_path / "database"))
    KEPT[-1].execute("CREATE TABLE numbers (n)")


def test_a_folder_is_never_removed():
    Cycle(tempfile.TemporaryDirectory())


def test_a_thread_goes_on():
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def test_a_thread_raises_later():
    def late():
        time.sleep(0.1)
        raise OSError

    threading.Thread(target=late).start()


@pytest.mark.parametrize("number", range(4))
def test_another_stranger(number):
    time.sleep(0.05)


@pytest.fixture(scope="module")
def for_all():
    with open(__file__) as file:
        yield file


def test_a_file_of_all(for_all):
    pass


def test_a_program_that_ends_in_time():
    KEPT.append(subprocess.Popen(["sleep", "0.1"]))


def test_a_thread_that_ends_in_time():
    threading.Thread(target=time.sleep, args=(0.1,)).start()


async def test_a_task_that_ends_in_time():
    asyncio.create_task(asyncio.sleep(60)).cancel()
"""
SHARING = """
import socket
import threading

import pytest

KEPT = []


class Server:
    def __init__(self, folder):
        self.folder = folder
        self.files = [open(folder / "store", "w")]
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.connections = []

    def connection(self):
        ours = socket.create_connection(self.socket.getsockname())
        self.connections += [ours, self.socket.accept()[0]]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.socket.close()
    for each in server.connections + server.files:
        each.close()


def test_a_connection_of_a_server_for_all(server):
    server.connection()


def test_a_file_of_a_server_for_all(server):
    server.files.append(open(server.folder / "data", "w"))


def test_a_file_beside_a_server_for_all(server):
    KEPT.append(open(__file__))


def test_a_connection_that_the_server_never_closes(server):
    server.connection()
    KEPT.append(server.connections.pop())


def test_the_last_of_a_server_for_all(server):
    pass
"""
CLOSING = """
import socket
import threading

ENDED = threading.Event()
KEPT = []


def client():
    held = socket.socket()

    def close():
        ENDED.wait()
        held.close()

    threading.Thread(target=close, name="pymongo_closing").start()


def test_a_driver_that_closes_later():
    client()


def test_a_file_beside_a_driver_that_closes_later():
    client()
    KEPT.append(open(__file__))


def test_a_socket_beside_a_driver_that_closes_later():
    client()
    KEPT.append(socket.socket())


def test_the_last_beside_a_driver_that_closes_later():
    ENDED.set()
"""
GUILTY = {
    "test_a_task_goes_on", "test_a_transport_stays_open", "test_a_socket_stays_open",
    "test_a_coroutine_is_never_awaited", "test_a_file_stays_open", "test_a_file_that_is_still_used_stays_open",
    "test_a_descriptor_stays_open", "test_a_thread_goes_on", "test_a_thread_raises_later",
    "test_a_pipe_stays_open", "test_a_program_goes_on", "test_a_program_of_the_event_loop_goes_on",
    "test_a_server_goes_on", "test_an_event_loop_is_never_closed", "test_a_database_stays_open",
    "test_a_folder_is_never_removed", "test_a_file_beside_a_server_for_all", "test_the_last_of_a_server_for_all",
    "test_a_file_beside_a_driver_that_closes_later", "test_the_last_beside_a_driver_that_closes_later",
}  # fmt: skip
CONFTEST = """
from tests import leaks
from tests.conftest import no_task_is_left, pytest_configure


def pytest_runtest_setup(item):
    '''The guilty need no time; what ends in time may need some on a busy machine.'''
    leaks.GONE_WITHIN = 60.0 if "in_time" in item.name else 5.0 if "last" in item.name else 0.5
"""


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.only_with_all)])
def test_the_guilty_test_fails_and_no_stranger(tmp_path: Path, workers: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_leaking.py").write_text(LEAKING)
    (tmp_path / "test_sharing.py").write_text(SHARING)
    (tmp_path / "test_closing.py").write_text(CLOSING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
        "-n",
        str(workers),
        "--dist=loadfile",
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", run.stdout, re.MULTILINE))
    assert failed == GUILTY, run.stdout + run.stderr
    assert "tasks still run" in run.stdout
    assert "unclosed transport" in run.stdout
    opened = re.findall(r"^descriptor .+, opened in \S+::(\w+)$", run.stdout, re.MULTILINE)
    assert list(dict.fromkeys(opened)) == [  # in CI, the summary repeats them
        "test_a_socket_beside_a_driver_that_closes_later",
        "test_a_connection_that_the_server_never_closes",
    ]
