"""scripts/bench cluster: what a lock + release costs on Redis Clusters of 1, 2 and 3 nodes, and how they share it.

Clients and nodes share the cores of this machine, so the figures are CPU time per node, not what separate machines
would reach: a node's capacity is one second of CPU per second divided by its share of the cost.
"""

import argparse
import asyncio
import json
import os
import time
from typing import Any

import solely
from tests.servers import ValkeyCluster

from .metering import cpu_seconds, machine
from .workers import TTL

TASKS = 50
KEYS = 10_000


async def _pairs(url: str, seconds: float) -> tuple[int, float]:
    """Returns how often tasks acquired and released random keys, and the CPU seconds that took them."""
    calls = 0
    async with solely.AsyncClient(url) as once:
        await once.first("open")
        end, cpu = time.perf_counter() + seconds, time.process_time()

        async def work() -> None:
            nonlocal calls
            while time.perf_counter() < end:
                async with once.lock(f"key-{int.from_bytes(os.urandom(4)) % KEYS}", ttl=TTL):
                    calls += 1

        await asyncio.gather(*(work() for _ in range(TASKS)))
    return calls, time.process_time() - cpu


def measure(nodes: int, seconds: float) -> dict[str, Any]:
    with ValkeyCluster(nodes) as cluster:
        asyncio.run(_pairs(cluster.url, 0.5))
        before = [cpu_seconds([node.pid]) for node in cluster.nodes]
        calls, client = asyncio.run(_pairs(cluster.url, seconds))
        spent = [cpu_seconds([node.pid]) - then for node, then in zip(cluster.nodes, before, strict=True)]
    busiest = max(spent) / calls
    return {
        "calls": calls,
        "client_us": round(client / calls * 1e6, 1),
        "store_us": round(sum(spent) / calls * 1e6, 1),
        "share_of_each_node": [round(each / sum(spent), 3) for each in spent],
        "busiest_node_us": round(busiest * 1e6, 1),
        "pairs_per_s_that_fill_the_busiest_node": round(1 / busiest),
    }


def main(arguments: list[str]) -> int:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(prog="scripts/bench cluster", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"command": " ".join(["scripts/bench cluster", *arguments]), "machine": machine()}
    for nodes in (1, 2, 3):
        found[f"{nodes} nodes" if nodes > 1 else "1 node"] = measure(nodes, options.seconds)
    print(json.dumps(found, indent=1))
    return 0
