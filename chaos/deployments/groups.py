"""Several servers that replace one another: Sentinel, a cluster, a streaming replica, a replica set of three."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Generic, Self, TypeVar

from pymongo.errors import PyMongoError
from redis.crc import key_slot

from tests.mongo_server import SET_NAME, Mongod
from tests.postgres_server import PYPI_POSTGRES, URL_PASSWORD, Postgres, replica_of
from tests.servers import Valkey, ValkeyCluster, ValkeySentinel, until

from .deployment import Deployment

Servers = TypeVar("Servers", ValkeySentinel, ValkeyCluster)


class ValkeyGroup(Deployment, Generic[Servers]):
    """Several Valkey servers, which one URL names."""

    store = "redis"
    make: type[Servers]

    def __enter__(self) -> Self:
        self._group: Servers = self.make().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._group.__exit__()

    def url(self, namespace: str) -> str:
        return f"{self._group.url}?namespace={namespace}"


class SentinelGroup(ValkeyGroup[ValkeySentinel]):
    """A primary, a replica and three Sentinels. Replication is asynchronous: a failover may lose the last writes."""

    name, make = "redis-sentinel", ValkeySentinel

    @property
    def version(self) -> str:
        return f"Valkey {self._group.primary.ask('INFO', 'server')['valkey_version']}, 3 Sentinels"

    def primary(self) -> Valkey:
        """The server that the Sentinels name now."""
        _, port = self._group.sentinels[0].ask("SENTINEL GET-MASTER-ADDR-BY-NAME", "mymaster")
        return next(each for each in (self._group.primary, self._group.replica) if each.port == int(port))

    def fail_over(self) -> None:
        """Kills the primary, which has a replica; returns when that is the primary, and the killed one runs again."""
        before = self.primary()
        until(lambda: before.ask("INFO", "replication")["connected_slaves"] == 1, "a replica")
        before.kill()
        until(lambda: self.primary() is not before, "another primary")
        after = self.primary()
        until(lambda: after.ask("INFO", "replication")["role"] == "master", "its promotion")
        before.start()


class Cluster(ValkeyGroup[ValkeyCluster]):
    """Three primaries without replicas, which share the slots."""

    name, make = "redis-cluster", ValkeyCluster

    @property
    def version(self) -> str:
        return f"Valkey {self._group.nodes[0].ask('INFO', 'server')['valkey_version']}, cluster of 3"

    def used_slots(self) -> list[tuple[int, int]]:
        """(the node, the slot) of every slot that has keys now."""
        return [
            (number, slot)
            for number, node in enumerate(self._group.nodes)
            for slot in sorted({key_slot(key.encode()) for key in node.ask("KEYS", "*")})
        ]

    def move_slot(self, source: int, target: int, slot: int) -> None:
        """Moves a slot with all its keys to another node, as `redis-cli --cluster reshard` does."""
        nodes = self._group.nodes
        ids = [node.ask("CLUSTER", "MYID") for node in nodes]
        nodes[target].ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        nodes[source].ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        place = nodes[target].host, nodes[target].port
        while keys := nodes[source].ask("CLUSTER", "GETKEYSINSLOT", slot, 50):
            nodes[source].ask("MIGRATE", *place, "", 0, 5000, "KEYS", *keys)
        for node in (nodes[target], nodes[source], *nodes):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target])


class StreamingPair(Deployment):
    """A primary and a streaming replica, asynchronous as by default: a promotion may lose the last commits."""

    name, store = "postgres-pair", "postgres"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._primary = stack.enter_context(Postgres(folder=PYPI_POSTGRES))
            self._replica = stack.enter_context(replica_of(self._primary))
            self._servers = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    def url(self, namespace: str) -> str:
        hosts = ",".join(f"{each.host}:{each.port}" for each in (self._primary, self._replica))
        return f"postgresql://postgres:{URL_PASSWORD}@{hosts}/postgres?namespace={namespace}"

    @property
    def version(self) -> str:
        return f"PostgreSQL {self._primary.ask('SHOW server_version')[0][0]}, streaming replica"

    def promote(self) -> None:
        """Kills the primary for good; returns when the replica is the primary."""
        self._primary.kill()
        self._replica.ask("SELECT pg_promote()")
        until(lambda: self._replica.ask("SELECT pg_is_in_recovery()") == [(False,)], "a promotion")


class ReplicaSetNode(Mongod):
    """A member of a replica set that others initiate: ready as soon as it answers."""

    def __init__(self) -> None:
        super().__init__(replica_set=True)

    def _answers(self) -> bool:
        with suppress(PyMongoError):
            return bool(self.ask("hello"))
        return False


class ReplicaSet(Deployment):
    """Three members; the store writes with `w: majority`, so a failover loses nothing that was acknowledged."""

    name, store = "mongo-three", "mongo"

    def _node(self, number: int) -> ReplicaSetNode:
        return ReplicaSetNode()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.nodes = [stack.enter_context(self._node(number)) for number in range(3)]
            members = [{"_id": n, "host": f"{each.host}:{each.port}"} for n, each in enumerate(self.nodes)]
            settings = {"electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 500}
            self.nodes[0].ask("replSetInitiate", {"_id": SET_NAME, "members": members, "settings": settings})
            until(lambda: self.primary() is not None, "a primary")
            until(self._is_whole, "all members")
            self._servers = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    def url(self, namespace: str) -> str:
        hosts = ",".join(f"{each.host}:{each.port}" for each in self.nodes)
        return f"mongodb://{hosts}/chaos?replicaSet={SET_NAME}&namespace={namespace}"

    @property
    def version(self) -> str:
        return f"MongoDB {self.nodes[0].ask('buildInfo')['version']}, replica set of 3"

    def primary(self) -> ReplicaSetNode | None:
        """The member that is the primary now, if there is one."""
        return next((node for node in self.nodes if node.is_primary()), None)

    def _is_whole(self) -> bool:
        with suppress(PyMongoError):
            states = [member["state"] for member in self.nodes[0].ask("replSetGetStatus")["members"]]
            return sorted(states) == [1, 2, 2]
        return False

    def step_down(self) -> None:
        """The primary steps down; returns when there is one again."""
        before = self.primary()
        if before is not None:
            before.step_down(5)
        until(lambda: self.primary() is not None, "a primary")

    def fail_over(self) -> None:
        """Kills the primary; returns when another member is the primary, and the killed one is back."""
        before = self.primary()
        if before is None:
            return
        before.kill()
        until(lambda: any(node.is_primary() for node in self.nodes if node is not before), "another primary")
        before.start()
