"""Queues: items that are taken under a lease, and taken again if their taker dies."""
