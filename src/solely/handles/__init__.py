"""Handles: what a caller has in hand, a lease, a claim, a reservation, …, for threads and for asyncio."""
