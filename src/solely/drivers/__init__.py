"""Drivers: who performs a flow. One for threads, one for asyncio, one that simulates."""
