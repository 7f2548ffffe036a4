"""Checks: how a target is called, and what is expected of it. All connections go through the guard of the kit."""

from .checker import Checker
from .outcome import PHASES, DnsSections, Outcome

__all__ = ["PHASES", "Checker", "DnsSections", "Outcome"]
