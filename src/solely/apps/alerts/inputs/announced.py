"""Announcements of other applications of the service: `service.announce(…)`."""

from __future__ import annotations

from ....kit import Announcement
from ..model import MAX_FINGERPRINT, Alert, part_of
from .labels import LONGEST_VALUE, cut_labels, cut_text

SUMMARY = "summary"  # the annotation that monitors use for the sentence that people read


def alert_of(given: Announcement) -> Alert:
    """The alert, cut to our bounds instead of refused. A fingerprint that is too long becomes a digest."""
    fingerprint = given.fingerprint if len(given.fingerprint) <= MAX_FINGERPRINT else part_of(given.fingerprint)
    return Alert(
        name=cut_text(given.name),
        severity=cut_text(given.severity),
        source=cut_text(given.source),
        fingerprint=fingerprint,
        labels=cut_labels(given.labels),
        annotations={SUMMARY: cut_text(given.summary, LONGEST_VALUE)} if given.summary else {},
        status=given.status,
    )
