"""Notifications: from the outbox to the publishers, also when a worker dies or a receiver is unreachable."""
