"""Alerts: one notification per alert, under any concurrency."""

from .app import App

__all__ = ["App"]
