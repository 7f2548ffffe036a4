"""What the process imports from which workers are forked: all stores and workloads, so that a worker imports nothing.

A worker that is a new interpreter imports only what it needs.
"""

import solely.stores.mongo.aio
import solely.stores.mongo.blocking
import solely.stores.postgres.aio
import solely.stores.postgres.blocking
import solely.stores.redis.aio
import solely.stores.redis.blocking
import solely.stores.sqlite.aio
import solely.stores.sqlite.blocking

from .workloads import (
    w1_mutex,
    w2_unfenced_set,
    w3_fenced_set,
    w4_fences,
    w5_dedup,
    w6_reservations,
    w7_claims,
    w8_liveness,
    w9_queue,
)

__all__ = [
    "solely",
    "w1_mutex",
    "w2_unfenced_set",
    "w3_fenced_set",
    "w4_fences",
    "w5_dedup",
    "w6_reservations",
    "w7_claims",
    "w8_liveness",
    "w9_queue",
]
