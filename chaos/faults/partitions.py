"""Partitions between three hosts, where network namespaces can be made."""

from __future__ import annotations

from ..deployments.partitioned import PartitionedCluster, PartitionedReplicaSet, why_not
from .fault import Arena, Fault


class Partition(Fault):
    """One host of three is cut off from the two others, while clients reach all three. A Redis Cluster may then have,
    for a moment, two primaries for the same slots: that is counted. Fences hold."""

    kind = "partition"
    deployments = ("redis-partitioned", "mongo-partitioned")
    workloads = frozenset({"W3", "W4"})
    counted = frozenset({"W1"})

    def why_not(self, deployment: str) -> str:
        return why_not()

    def inject(self, arena: Arena) -> None:
        group = arena.deployment
        assert isinstance(group, PartitionedCluster | PartitionedReplicaSet)
        for _ in arena.few():
            arena.rest(0.3, 1.0)
            with group.network.cut_off(arena.chance.randrange(3)):
                arena.rest(3.0, 6.0)
            group.await_whole()
            arena.rest(0.5, 1.0)
            arena.injected += 1
