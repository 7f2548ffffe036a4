"""Explanations: who holds a key, since when, until when, and why a call would be refused."""
