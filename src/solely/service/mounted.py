"""What is mounted: every module that has ROUTES, in the order of the documents. A new noun adds one line."""

from __future__ import annotations

from . import health, openapi, policy
from .api import claims, deadletters, entries, events, limits, locks, marks, ops, reservations, watermarks
from .dashboard import pages
from .routes import Route

MODULES = (
    locks, marks, claims, reservations, limits, watermarks, deadletters, entries, events, ops, health, openapi, policy,
    pages,
)  # fmt: skip


def all_routes() -> list[Route]:
    """The routes of all modules."""
    return [route for module in MODULES for route in module.ROUTES]
