"""Leases: what locks, claims, reservations and breakers share: a hold, its deadline, renewal and loss."""
