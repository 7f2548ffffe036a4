"""All pages of the dashboard, as they are mounted."""

from __future__ import annotations

from . import applications, auditlog, dedup, entries, files, letters, login, overview, watermarks

MODULES = (overview, entries, dedup, letters, watermarks, auditlog, applications, login, files)
ROUTES = [route for module in MODULES for route in module.ROUTES]
