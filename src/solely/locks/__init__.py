"""Locks: one caller at a time holds a key, until it releases it or its lease expires."""
