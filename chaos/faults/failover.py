"""Faults of groups of servers: one replaces another, or takes over a part of its keys."""

from __future__ import annotations

import time

from ..deployments.groups import Cluster, ReplicaSet, SentinelGroup, StreamingPair
from ..deployments.single import Mongo, PostgreSQL
from .fault import Arena, Fault

FENCES = frozenset({"W3", "W4", "W8"})  # what holds although the last writes may be lost
AT_ONCE = 5  # slots that are moved before the next look at which are used


class SentinelFailover(Fault):
    """The primary is killed, and Sentinel promotes its replica, which may lack the last writes."""

    kind = "sentinel failover"
    deployments = ("redis-sentinel",)
    workloads = FENCES
    counted = frozenset({"W1"})

    def inject(self, arena: Arena) -> None:
        assert isinstance(arena.deployment, SentinelGroup)
        for _ in arena.few():
            arena.rest(0.5, 1.5)
            arena.deployment.fail_over()
            arena.injected += 1
        time.sleep(1.0)


class SlotMigration(Fault):
    """Slots of a Redis Cluster move to other nodes while their keys are used."""

    kind = "slot migration"
    deployments = ("redis-cluster",)

    def inject(self, arena: Arena) -> None:
        assert isinstance(arena.deployment, Cluster)
        for _ in arena.moments():
            arena.rest(0.0, 0.2)
            used = arena.deployment.used_slots()
            for source, slot in arena.chance.sample(used, min(AT_ONCE, len(used))):
                arena.deployment.move_slot(source, (source + arena.chance.choice((1, 2))) % 3, slot)
                arena.injected += 1


class StepDown(Fault):
    """The primary of a MongoDB replica set steps down."""

    kind = "step-down"
    deployments = ("mongo", "mongo-three")

    def inject(self, arena: Arena) -> None:
        for _ in arena.few():
            arena.rest(0.3, 1.0)
            if isinstance(arena.deployment, ReplicaSet):
                arena.deployment.step_down()
            else:
                assert isinstance(arena.deployment, Mongo)
                arena.deployment.server.step_down()
                arena.deployment.server.await_primary()
            arena.injected += 1


class KillPrimary(Fault):
    """The primary of a MongoDB replica set of three is killed, and another member takes over."""

    kind = "kill primary"
    deployments = ("mongo-three",)

    def inject(self, arena: Arena) -> None:
        assert isinstance(arena.deployment, ReplicaSet)
        for _ in arena.few():
            arena.rest(0.3, 1.0)
            arena.deployment.fail_over()
            arena.injected += 1


class Restart(Fault):
    """PostgreSQL is restarted: transactions are rolled back, connections closed."""

    kind = "postgres restart"
    deployments = ("postgres",)

    def inject(self, arena: Arena) -> None:
        assert isinstance(arena.deployment, PostgreSQL)
        for _ in arena.moments():
            arena.rest(0.3, 1.0)
            arena.deployment.server.restart()
            arena.injected += 1


class Promotion(Fault):
    """The primary is killed for good, and its streaming replica promoted, which may lack the last commits."""

    kind = "replica promotion"
    deployments = ("postgres-pair",)
    workloads = FENCES
    counted = frozenset({"W1"})

    def inject(self, arena: Arena) -> None:
        assert isinstance(arena.deployment, StreamingPair)
        time.sleep(arena.seconds / 2)
        arena.deployment.promote()
        arena.injected += 1
        time.sleep(1.0 + arena.seconds / 2)
