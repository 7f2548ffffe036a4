"""Kills a store's server repeatedly under load, and checks by what the workers observed that no promise broke."""
