"""Checks: how a target is called, and what is expected of it. All connections go through the guard of the kit."""

from .checker import Checker
from .outcome import Outcome

__all__ = ["Checker", "Outcome"]
