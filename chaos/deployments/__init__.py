"""The servers that the battery starts itself, without root: by name, each as a context manager."""

from collections.abc import Callable

from .deployment import Deployment
from .groups import Cluster, ReplicaSet, SentinelGroup, StreamingPair
from .partitioned import PartitionedCluster, PartitionedReplicaSet
from .single import Files, Mongo, PostgreSQL, Redis

DEPLOYMENTS: dict[str, Callable[[], Deployment]] = {
    each.name: each
    for each in (
        Redis,
        PostgreSQL,
        Mongo,
        Files,
        SentinelGroup,
        Cluster,
        StreamingPair,
        ReplicaSet,
        PartitionedCluster,
        PartitionedReplicaSet,
    )
}

__all__ = ["DEPLOYMENTS", "Deployment"]
