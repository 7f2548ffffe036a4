"""Drivers perform flows: one for threads, one for asyncio, one for simulation."""
