"""Whether a notification is sent: one order of reasons, for alerts that come in and for what waits in the outbox.

A decision depends on facts alone. It is made first with the facts at hand and again when the store has been read: a
fact that is not looked up yet does not suppress anything.
"""

from __future__ import annotations

from typing import NamedTuple

RESERVED, QUIET, LIMITED = "reserved", "quiet", "limited"  # why the store refuses a reservation
SILENCED, NO_PUBLISHER, ACKNOWLEDGED, FLAPPING = "silenced", "no_publisher", "acknowledged", "flapping"
GROUPED = "grouped"  # its group was notified, or others of its group still fire
NOT_FIRING = "not_firing"  # resolved, and no firing notification was sent
FIRING_QUEUED = "firing_queued"  # resolved, and the firing notification waits in the outbox: it is sent first
RESOLVED_QUEUED = "resolved_queued"  # it fires again, and the resolved notification is being sent: that one is first
SUPERSEDED = "superseded"  # it waits in the outbox, and a later notification says the contrary
SENT = "sent"  # this very notification was sent: what waits in the outbox is a copy of it


class Facts(NamedTuple):
    """What is known of a notification. A duration is the seconds that a reason still applies; None if it does not."""

    firing: bool
    group: bool = False  # it shares its window with the alerts of its group
    sent: bool = False
    silenced: float | None = None
    wanted: bool = True  # by at least one publisher
    window: str = ""  # why its reservation was refused; empty if it was granted or not yet requested
    window_left: float = 0.0
    acknowledged: float | None = None
    flapping: float | None = None
    others_fire: bool = False  # of its group
    was_firing: bool = True  # it was in its group until now
    opened: bool = True  # a firing notification was sent since it was last resolved
    firing_queued: bool = False
    resolved_queued: bool = False
    superseded: bool = False


class Decision(NamedTuple):
    """Why it is not sent, and for how many seconds; it is sent if there is no reason. `trace` is that of the alert that
    was sent instead, if it is known."""

    reason: str = ""
    left: float = 0.0
    trace: str = ""


SEND = Decision()


def decide(facts: Facts) -> Decision:
    """The first reason that applies, else SEND."""
    if facts.sent:
        return Decision(SENT)
    if facts.superseded:
        return Decision(SUPERSEDED)
    if facts.resolved_queued:
        return Decision(RESOLVED_QUEUED)
    refused = _firing(facts) if facts.firing else _resolved(facts)
    return refused or SEND


def _firing(facts: Facts) -> Decision | None:
    if facts.silenced is not None:
        return Decision(SILENCED, facts.silenced)
    if not facts.wanted:
        return Decision(NO_PUBLISHER)
    if facts.window:
        shared = facts.group and facts.window != LIMITED
        return Decision(GROUPED if shared else facts.window, facts.window_left)
    if facts.acknowledged is not None:
        return Decision(ACKNOWLEDGED, facts.acknowledged)
    return Decision(FLAPPING, facts.flapping) if facts.flapping is not None else None


def _resolved(facts: Facts) -> Decision | None:
    """A silence, an acknowledgement or a `match` that changed does not suppress it: people were notified."""
    if facts.others_fire:
        return Decision(GROUPED if facts.was_firing else NOT_FIRING)
    if not facts.opened:
        return Decision(FIRING_QUEUED if facts.firing_queued else NOT_FIRING)
    return Decision(facts.window, facts.window_left) if facts.window else None
