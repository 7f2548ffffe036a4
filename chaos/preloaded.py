"""What the process imports from which workers are forked: all stores and workloads, so that a worker imports nothing.

A worker that is a new interpreter imports only what it needs.
"""

from importlib import import_module

from .workloads import WORKLOADS

for store in ("mongo", "postgres", "redis", "sqlite"):
    for mode in ("aio", "blocking"):
        import_module(f"solely.stores.{store}.{mode}")
for workload in WORKLOADS.values():
    import_module(f"chaos.workloads.{workload.module}")
