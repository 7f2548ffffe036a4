"""Kills a store's server again and again under load, and judges from the workers' diaries whether a promise broke."""
