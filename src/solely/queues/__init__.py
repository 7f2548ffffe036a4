"""Queues: items that are taken under a lease, and become available again if their taker dies."""
