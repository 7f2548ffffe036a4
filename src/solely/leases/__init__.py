"""Leases: the hold of a key, its deadline, renewal and loss, as locks, claims, reservations and breakers share them."""
