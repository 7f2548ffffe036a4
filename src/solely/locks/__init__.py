"""Locks: one caller at a time holds a key, for as long as its lease lasts."""
