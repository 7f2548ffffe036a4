"""Groups of servers on three network namespaces, joined by a bridge: any of the three can be cut off from the others.

Needs root, and a kernel that lets it make namespaces. Clients are outside and reach all three at any time, as clients
on a network of their own do: so both sides of a partition are asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Self

from redis.exceptions import RedisError

from tests.servers import Valkey, free_port, until

from .deployment import Deployment
from .groups import ReplicaSet, ReplicaSetNode

IP = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
_numbers = count()
NODE_TIMEOUT = 1_500  # ms after which a node of the cluster counts as gone: short partitions already lead to a failover


def why_not() -> str:
    """Why this machine cannot make network namespaces; "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if IP is None:
        return "there is no ip command (iproute2)"
    name = f"chaos-try-{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("link", "add", f"chy{os.getpid() % 10_000}", "type", "bridge")
        _ip("link", "del", f"chy{os.getpid() % 10_000}")
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made: {error.stderr.strip()}"
    finally:
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "del", name)
    return ""


def _ip(*arguments: str) -> None:
    assert IP is not None
    subprocess.run([IP, *arguments], check=True, capture_output=True, text=True, timeout=30)


class Network:
    """Three namespaces with an address each, and a bridge to which they are connected."""

    def __init__(self) -> None:
        # Names of their own: the kernel removes the links of an earlier network some time after it was deleted.
        number = next(_numbers)
        self._id = f"{os.getpid() % 10_000}{number}"
        subnet = f"10.231.{(os.getpid() + number) % 250}"
        self.bridge = f"chb{self._id}"
        self.names = [f"chaos-{self._id}-{number}" for number in range(3)]
        self.hosts = [f"{subnet}.{number + 1}" for number in range(3)]
        self._gateway = f"{subnet}.254/24"

    def __enter__(self) -> Self:
        try:
            _ip("link", "add", self.bridge, "type", "bridge")
            _ip("addr", "add", self._gateway, "dev", self.bridge)
            _ip("link", "set", self.bridge, "up")
            for number, (name, host) in enumerate(zip(self.names, self.hosts, strict=True)):
                outside, inside = f"cho{self._id}{number}", f"chi{self._id}{number}"
                _ip("netns", "add", name)
                _ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
                _ip("link", "set", outside, "master", self.bridge, "up")
                _ip("-n", name, "addr", "add", f"{host}/24", "dev", inside)
                _ip("-n", name, "link", "set", inside, "up")
                _ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", self.bridge)

    @contextmanager
    def cut_off(self, number: int) -> Iterator[None]:
        """The two others and this one send each other nothing, while the block lasts."""
        others = [other for other in range(3) if other != number]
        routes = [(number, other) for other in others] + [(other, number) for other in others]
        for here, there in routes:
            _ip("-n", self.names[here], "route", "add", "blackhole", f"{self.hosts[there]}/32")
        try:
            yield
        finally:
            for here, there in routes:
                _ip("-n", self.names[here], "route", "del", "blackhole", f"{self.hosts[there]}/32")


class ValkeyInside(Valkey):
    """A node of a cluster in one of the namespaces."""

    def __init__(self, namespace: str, host: str) -> None:
        super().__init__(
            cluster_enabled="yes",
            cluster_port=free_port(),
            cluster_node_timeout=NODE_TIMEOUT,
            protected_mode="no",
            repl_diskless_sync_delay=0,
        )
        self.host = host
        self._namespace = namespace

    def _command(self) -> list[str]:
        assert IP is not None
        return [IP, "netns", "exec", self._namespace, *super()._command()]


class MongodInside(ReplicaSetNode):
    """A member of a replica set in one of the namespaces."""

    def __init__(self, namespace: str, host: str) -> None:
        super().__init__()
        self.host = host
        self._namespace = namespace

    def _command(self) -> list[str]:
        assert IP is not None
        return [IP, "netns", "exec", self._namespace, *super()._command()]


class PartitionedCluster(Deployment):
    """A Redis Cluster on three hosts: a primary on each, whose replica is on the next one."""

    name, store = "redis-partitioned", "redis"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.network = stack.enter_context(Network())
            places = list(zip(self.network.names, self.network.hosts, strict=True))
            self.primaries = [stack.enter_context(ValkeyInside(*place)) for place in places]
            self.replicas = [stack.enter_context(ValkeyInside(*place)) for place in (*places[1:], places[0])]
            self._join()
            self._servers = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    def url(self, namespace: str) -> str:
        nodes = ",".join(f"{node.host}:{node.port}" for node in self.primaries)
        return f"redis+cluster://{nodes}?namespace={namespace}"

    @property
    def version(self) -> str:
        return f"Valkey {self.primaries[0].ask('INFO', 'server')['valkey_version']}, cluster of 3 + 3 on 3 hosts"

    def _join(self) -> None:
        nodes = [*self.primaries, *self.replicas]
        for number, node in enumerate(nodes):
            node.ask("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(self.primaries):
            node.ask("CLUSTER ADDSLOTSRANGE", 16_384 * number // 3, 16_384 * (number + 1) // 3 - 1)
        for node in nodes[1:]:
            bus = node.ask("CONFIG GET", "cluster-port")["cluster-port"]
            nodes[0].ask("CLUSTER MEET", node.host, node.port, bus)
        for node in nodes:
            until(lambda n=node: int(n.ask("CLUSTER INFO")["cluster_known_nodes"]) == 6, "all nodes")  # type: ignore[misc]
        for primary, replica in zip(self.primaries, self.replicas, strict=True):
            until(lambda p=primary, r=replica: self._follows(r, p), "a replica")  # type: ignore[misc]
        self.await_whole()

    @staticmethod
    def _follows(replica: Valkey, primary: Valkey) -> bool:
        with suppress(RedisError):
            replica.ask("CLUSTER REPLICATE", primary.ask("CLUSTER", "MYID"))
            return bool(replica.ask("INFO", "replication").get("master_link_status") == "up")
        return False

    def await_whole(self) -> None:
        """Returns when every node serves or follows again."""
        for node in (*self.primaries, *self.replicas):
            until(lambda n=node: n.ask("CLUSTER INFO")["cluster_state"] == "ok", "the cluster")  # type: ignore[misc]


class PartitionedReplicaSet(ReplicaSet):
    """A MongoDB replica set of three, on three hosts."""

    name = "mongo-partitioned"

    def _node(self, number: int) -> ReplicaSetNode:
        return MongodInside(self.network.names[number], self.network.hosts[number])

    def __enter__(self) -> Self:
        self.network = Network().__enter__()
        try:
            return super().__enter__()
        except BaseException:
            self.network.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.network.__exit__()

    def await_whole(self) -> None:
        """Returns when there is a primary again."""
        until(lambda: self.primary() is not None, "a primary")
